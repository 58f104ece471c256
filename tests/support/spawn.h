// Threads for ranks, and a watchdog: a test that would hang ends the process with a message instead.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace ringattn::support {

// While it lives, a clock runs; when it lives longer than `seconds`, the process says `what` and aborts.
class Watchdog {
 public:
  Watchdog(std::string what, int seconds);  // seconds 0 = never
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Runs body(0) ... body(count - 1), each on a thread of its own, and returns when all have ended. An
// exception of a body is rethrown here once all have ended. A run longer than `seconds` aborts the process.
void run_threads(int count, const std::function<void(int)>& body, int seconds = 120,
                 const std::string& what = "threads");

// Runs body(item, worker) for every item below `count`; each is drawn by whichever of the workers is free. No
// deadline.
void share(std::int64_t count, int workers, const std::string& what,
           const std::function<void(std::int64_t, int)>& body);

}  // namespace ringattn::support
