#include "output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <random>

#include "error.h"

namespace ringattn::tool {
namespace {

// Names that a signal handler may unlink: fixed memory, because a handler may neither allocate nor lock.
struct Slot {
  std::atomic<bool> taken{false};
  std::atomic<bool> live{false};  // path is complete
  std::array<char, PATH_MAX> path{};
};
std::array<Slot, 8> slots;
static_assert(std::atomic<bool>::is_always_lock_free);

int take_slot(const std::string& path) {
  if (path.size() >= PATH_MAX) throw RunFailed(fmt::format("{}: the name is too long", path));
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].taken.exchange(true)) continue;
    std::memcpy(slots[i].path.data(), path.c_str(), path.size() + 1);
    slots[i].live = true;
    return static_cast<int>(i);
  }
  throw RunFailed("too many output files at once");
}

void give_slot_back(int slot) {
  slots[static_cast<std::size_t>(slot)].live = false;
  slots[static_cast<std::size_t>(slot)].taken = false;
}

void remove_temporary_files() {
  for (Slot& slot : slots) {
    if (slot.live) unlink(slot.path.data());
  }
}

void on_interrupt(int signal_number) {
  remove_temporary_files();
  // The handler was reset by SA_RESETHAND; the signal is delivered again as soon as this one returns.
  raise(signal_number);
}

void on_bus_error(int) {
  remove_temporary_files();
  constexpr char text[] = "ringattn: an input file became shorter while it was read\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, sizeof text - 1);
  _exit(kExitBadInput);
}

void handle(int signal_number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  struct sigaction before {};
  sigaction(signal_number, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(signal_number, &action, nullptr);  // nohup stays in force
}

}  // namespace

void install_signal_handlers() {
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) handle(signal_number, on_interrupt);
  handle(SIGBUS, on_bus_error);
  signal(SIGXFSZ, SIG_IGN);  // a file over its limit is then an error of write, with a message
}

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  const std::size_t slash = path_.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path_.substr(0, slash + 1);
  const std::string name = slash == std::string::npos ? path_ : path_.substr(slash + 1);
  if (name.empty()) throw BadInput(fmt::format("output \"{}\" is not the name of a file", path_));
  struct stat status {};
  if (stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    throw BadInput(fmt::format("output \"{}\" exists and is not a regular file", path_));
  }
  std::random_device random;
  temporary_ = fmt::format("{}.{}.{}.{:08x}.part", folder, name, getpid(), random());
  // Registered before it exists: a signal between the two finds nothing to remove, never a file left behind.
  slot_ = take_slot(temporary_);
  descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    const int error = errno;
    give_slot_back(slot_);
    throw BadInput(fmt::format("cannot write {}: {}", path_, std::strerror(error)));
  }
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (slot_ < 0) return;
  unlink(temporary_.c_str());
  give_slot_back(slot_);
}

void OutputFile::fail(const char* what) const {
  throw RunFailed(fmt::format("cannot {} {}: {}", what, path_, std::strerror(errno)));
}

void OutputFile::write(const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    next += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void OutputFile::commit() {
  // Some file systems report a full disk only here.
  if (fsync(descriptor_) != 0 && errno != EINVAL) fail("write");
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (close(descriptor) != 0) fail("write");
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename the temporary file to");
  give_slot_back(slot_);
  slot_ = -1;
}

void write_text_file(const std::string& path, std::string_view text) {
  OutputFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace ringattn::tool
