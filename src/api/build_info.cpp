#include <nlohmann/json.hpp>
#include <string>

#include "base/cpu_features.h"
#include "base/env.h"
#include "base/problem.h"
#include "comm/transports.h"
#include "kernels/kernel.h"
#include "ringattn.h"

namespace {

using namespace ringattn;
using Json = nlohmann::ordered_json;

std::string compiler() {
#if defined(__clang__)
  return std::string("clang ") + __clang_version__;
#else
  return std::string("gcc ") + __VERSION__;
#endif
}

Json kernel_list(const std::string& forced) {
  Json list = Json::array();
  for (const kernels::Kernel* kernel : kernels::kernels()) {
    list.push_back(
        {{"name", kernel->name}, {"chosen", forced.empty() ? list.empty() : forced == kernel->name}});
  }
  return list;
}

Json transport_list() {
  Json list = Json::array();
  for (const comm::TransportState& state : comm::transports(comm::Plugins::load)) {
    Json entry = {{"name", state.table->name},
                  {"score", state.score},
                  {"lends", (state.table->caps & RINGATTN_TRANSPORT_LENDS) != 0}};
    if (!state.why_not.empty()) entry["why_not"] = state.why_not;
    list.push_back(std::move(entry));
  }
  return list;
}

std::string build_info() {
  Json json;
  json["version"] = std::to_string(RINGATTN_VERSION_MAJOR) + "." + std::to_string(RINGATTN_VERSION_MINOR) +
                    "." + std::to_string(RINGATTN_VERSION_PATCH);
  json["compiler"] = compiler();
  json["cpu"] = {{"features", cpu_features()}};
  json["kernels"] = kernel_list(env_value(kEnvForceKernel));
  json["transports"] = transport_list();
  json["limits"] = {
      {"head_dim", kMaxHeadDim}, {"world_size", kMaxWorldSize}, {"dtypes", {"f32", "f16", "bf16"}}};
  json["environment"] = Json::array();
  for (const EnvVariable& variable : env_variables()) {
    std::string value = env_value(variable.name);
    if (std::string(variable.name) == kEnvSecret && !value.empty()) value = "(set)";
    json["environment"].push_back({{"name", variable.name}, {"value", value}, {"meaning", variable.meaning}});
  }
  return json.dump();
}

}  // namespace

extern "C" const char* ringattn_build_info(void) {
  // Static: made once, so that the pointer stays valid whatever is registered later.
  try {
    static const std::string* text = new std::string(build_info());
    return text->c_str();
  } catch (...) {
    return "{}";
  }
}
