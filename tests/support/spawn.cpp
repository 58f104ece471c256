#include "tests/support/spawn.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace ringattn::support {

struct Watchdog::State {
  std::mutex mutex;
  std::condition_variable ended_changed;
  bool ended = false;
  std::thread thread;
};

Watchdog::Watchdog(std::string what, int seconds) : state_(std::make_unique<State>()) {
  if (seconds == 0) return;
  State* state = state_.get();
  state_->thread = std::thread([state, what = std::move(what), seconds] {
    std::unique_lock lock(state->mutex);
    const auto ended = [state] { return state->ended; };
    if (state->ended_changed.wait_for(lock, std::chrono::seconds(seconds), ended)) return;
    std::fprintf(stderr, "watchdog: %s did not end within %d s\n", what.c_str(), seconds);
    std::abort();
  });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ended = true;
  }
  state_->ended_changed.notify_all();
  if (state_->thread.joinable()) state_->thread.join();
}

void run_threads(int count, const std::function<void(int)>& body, int seconds, const std::string& what) {
  const Watchdog watchdog(what, seconds);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(count));
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&body, &errors, i] {
      try {
        body(i);
      } catch (...) {
        errors[static_cast<std::size_t>(i)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

void share(std::int64_t count, int workers, const std::string& what,
           const std::function<void(std::int64_t, int)>& body) {
  if (workers <= 1) {
    for (std::int64_t item = 0; item < count; ++item) body(item, 0);
    return;
  }
  std::atomic<std::int64_t> next{0};
  const auto draw = [&](int worker) {
    for (std::int64_t item = next++; item < count; item = next++) body(item, worker);
  };
  run_threads(workers, draw, 0, what);
}

}  // namespace ringattn::support
