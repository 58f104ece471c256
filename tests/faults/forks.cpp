#include "tests/faults/forks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace ringattn::faults {
namespace {

// Between fork and the end of a child of a program with threads: system calls alone.
[[noreturn]] void live_and_end(long for_us) {
  ::usleep(static_cast<useconds_t>(for_us));
  ::_exit(0);
}

}  // namespace

Forks::Forks(long every_us) {
  if (every_us > 0) thread_ = std::thread([this, every_us] { work(every_us); });
}

void Forks::work(long every_us) {
  for (long turn = 0; !stopped_; ++turn) {
    const pid_t child = ::fork();
    if (child == 0) live_and_end(turn % 5 * every_us);
    children_.push_back(child);
    std::this_thread::sleep_for(std::chrono::microseconds(every_us));
  }
}

int Forks::stop() {
  stopped_ = true;
  if (thread_.joinable()) thread_.join();
  const bool well = std::all_of(children_.begin(), children_.end(), [](int child) {
    int status = -1;
    return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
  });
  const int count = static_cast<int>(children_.size());
  children_.clear();
  return well ? count : -1;
}

}  // namespace ringattn::faults
