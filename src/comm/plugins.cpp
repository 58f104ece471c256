#include "comm/plugins.h"

#include <dlfcn.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/env.h"

namespace ringattn::comm {
namespace {

constexpr const char* kFile = "libringattn_ucx.so";
constexpr const char* kEntry = "ringattn_transport_ucx_v1";
using Entry = const ringattn_transport_v1* (*)(int quiet);

// Never destroyed: a table refers to it.
std::string& why_not() {
  static auto* const text = new std::string();
  return *text;
}

std::int32_t no_score(const char** why) {
  if (why != nullptr) *why = why_not().c_str();
  return 0;
}
constexpr ringattn_transport_v1 missing() {
  ringattn_transport_v1 table{};
  table.struct_size = sizeof table;
  table.abi = RINGATTN_TRANSPORT_ABI;
  table.name = kUcxName;
  table.caps = RINGATTN_TRANSPORT_PROCESSES;
  table.score = no_score;
  return table;
}
constexpr ringattn_transport_v1 kMissing = missing();

// What UCX reads while it is being loaded, and no call can change later: without these it takes over signals of the
// process, patches its memory functions, starts a thread and prints to its standard output.
class LoadSettings {
 public:
  LoadSettings() {
    constexpr std::pair<const char*, const char*> kWanted[] = {
        {"UCX_ERROR_SIGNALS", ""},        {"UCX_DEBUG_SIGNO", "0"},  {"UCX_HANDLE_ERRORS", "none"},
        {"UCX_MEM_EVENTS", "n"},          {"UCX_VFS_ENABLE", "n"},   {"UCX_WARN_UNUSED_ENV_VARS", "n"},
        {"UCX_WARN_INVALID_CONFIG", "n"}, {"UCX_LOG_LEVEL", "error"}};
    for (const auto& [name, value] : kWanted) {
      if (std::getenv(name) == nullptr && ::setenv(name, value, 1) == 0) set_.push_back(name);
    }
  }
  ~LoadSettings() {
    for (const char* name : set_) ::unsetenv(name);
  }
  LoadSettings(const LoadSettings&) = delete;
  LoadSettings& operator=(const LoadSettings&) = delete;

 private:
  std::vector<const char*> set_;
};

// Beside the library, in its folder for plugins, or where a build puts it; a program may hold the library itself.
std::vector<std::string> places() {
  const std::string given = env_value(kEnvPluginPath);
  if (!given.empty()) return {given + "/" + kFile};
  Dl_info own{};
  if (::dladdr(reinterpret_cast<const void*>(&no_score), &own) == 0 || own.dli_fname == nullptr)
    return {kFile};
  std::string folder(own.dli_fname);
  const std::size_t slash = folder.rfind('/');
  folder = slash == std::string::npos ? "." : folder.substr(0, slash);
  return {folder + "/" + kFile, folder + "/ringattn/" + kFile, folder + "/../lib/" + kFile, kFile};
}

bool is_loaded(const char* library) {
  void* const handle = ::dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  if (handle != nullptr) ::dlclose(handle);
  return handle != nullptr;
}

// `ours`: nobody else has loaded UCX, so its settings are ours to choose while it is being loaded.
void* open_library(const std::string& place, bool ours) {
  std::optional<LoadSettings> settings;
  if (ours) settings.emplace();
  return ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

const ringattn_transport_v1* load() {
  // What somebody else has loaded has its settings already.
  const bool ours = !is_loaded("libucs.so.0");
  std::string errors;
  for (const std::string& place : places()) {
    void* const handle = open_library(place, ours);
    if (handle == nullptr) {
      const char* const error = ::dlerror();
      // A file that is there and cannot be loaded says more than those that are not there.
      const bool absent = error != nullptr && std::string(error).rfind(place, 0) == 0 &&
                          std::string(error).find("No such file") != std::string::npos;
      if (error != nullptr && (errors.empty() || !absent)) errors = error;
      continue;
    }
    const auto entry = reinterpret_cast<Entry>(::dlsym(handle, kEntry));
    const ringattn_transport_v1* const table = entry == nullptr ? nullptr : entry(ours ? 1 : 0);
    if (table != nullptr && table->abi == RINGATTN_TRANSPORT_ABI &&
        table->struct_size == sizeof(ringattn_transport_v1))
      return table;
    errors = place + " is of another version";
    break;
  }
  why_not() = std::string(kFile) + " cannot be loaded: " + errors;
  return &kMissing;
}

}  // namespace

const ringattn_transport_v1* ucx_table() {
  static const ringattn_transport_v1* const table = load();
  return table;
}

}  // namespace ringattn::comm
