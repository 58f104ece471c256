#include "ring/engine.h"

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "ring/pass.h"

namespace ringattn::ring {
namespace {

constexpr std::uint64_t kSpinNs = 50'000;
constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kNothingSeen = ~std::uint64_t{0};
// While one link is waited for, others of the same thread cannot wake it: then rests are short.
constexpr std::uint64_t kShortRestNs = kMillisecond;
constexpr std::uint64_t kLongRestNs =
    50 * kMillisecond;  // the watch over slow peers wants to look now and then

}  // namespace

void Request::add(Execution& part) {
  part.next_part = nullptr;
  if (first_ == nullptr) {
    first_ = &part;
  } else {
    last_->next_part = &part;
  }
  last_ = &part;
}

bool Request::ended() const {
  for (const Execution* part = first_; part != nullptr; part = part->next_part) {
    if (!part->ended()) return false;
  }
  return true;
}

void Request::settle() {
  const Execution* failed = nullptr;
  const Execution* refused = nullptr;
  for (const Execution* part = first_; part != nullptr; part = part->next_part) {
    if (part->result().ok()) continue;
    if (failed == nullptr) failed = part;
    if (refused == nullptr && range_of(part->result().code()) == StatusRange::call) refused = part;
  }
  if (refused != nullptr) failed = refused;
  if (failed != nullptr) result_ = failed->result();
  for (Execution *part = first_, *next = nullptr; part != nullptr; part = next) {
    next = part->next_part;  // a part whose comm is free may belong to the next request at once
    part->comm().busy.store(false, std::memory_order_release);
  }
  settled_.store(true, std::memory_order_release);
}

Engine::Engine(WorkerPool& pool, bool progress_thread) : pool_(pool) {
  if (progress_thread) progress_ = std::thread([this] { progress_loop(); });
}

Engine::~Engine() {
  if (!progress_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  progress_.join();
}

void Engine::submit(Request& request, bool owned) {
  request.advancing_.store(owned, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    request.next_ = list_;
    list_ = &request;
    if (!owned) offered_.fetch_add(1, std::memory_order_release);
  }
  if (!owned) changed_.notify_all();
}

void Engine::retire(Request& request) {
  const std::lock_guard lock(mutex_);
  for (Request** at = &list_; *at != nullptr; at = &(*at)->next_) {
    if (*at != &request) continue;
    *at = request.next_;
    return;
  }
}

bool Engine::claim(Request& request) { return !request.advancing_.exchange(true, std::memory_order_acq_rel); }

void Engine::unclaim(Request& request) {
  {
    // Under the mutex: whoever finds the request taken waits on the condition, and must not miss this.
    const std::lock_guard lock(mutex_);
    if (!request.settled() && request.ended()) request.settle();
    request.advancing_.store(false, std::memory_order_release);
    if (!request.settled()) offered_.fetch_add(1, std::memory_order_release);
  }
  changed_.notify_all();
}

// Ranks that wait on threads of their own come here all the time: to look at the list is only worth its mutex when somebody
// has offered a request since the caller has last `seen` it.
Request* Engine::adopt(Request* own, std::uint64_t* seen) {
  Request* adopted = own;
  if (own != nullptr) own->next_adopted_ = nullptr;
  const std::uint64_t offered = offered_.load(std::memory_order_acquire);
  if (offered == *seen) return adopted;
  *seen = offered;
  const std::lock_guard lock(mutex_);
  for (Request* request = list_; request != nullptr; request = request->next_) {
    if (request == own || request->settled() || !claim(*request)) continue;
    if (own == nullptr) {
      request->next_adopted_ = adopted;
      adopted = request;
    } else {
      request->next_adopted_ = own->next_adopted_;
      own->next_adopted_ = request;
    }
  }
  return adopted;
}

void Engine::give_back(Request* adopted, const Request* except) {
  while (adopted != nullptr) {
    Request* next = adopted->next_adopted_;
    if (adopted != except) unclaim(*adopted);
    adopted = next;
  }
}

bool Engine::may_spin(const Request& request) const {
  // Ranks of this process that run on threads of their own share its cores.
  std::int64_t threads = 0;
  for (const Execution* part = request.parts(); part != nullptr; part = part->next_part) {
    threads = std::max<std::int64_t>(threads, std::int64_t{part->plan().world} * pool_.max_workers());
  }
  return threads <= pool_.cores();
}

void Engine::rest(Request* adopted, std::uint64_t most_ns) {
  Execution* waiting = nullptr;
  bool several = false;
  for (Request* request = adopted; request != nullptr; request = request->next_adopted_) {
    for (Execution* part = request->parts(); part != nullptr; part = part->next_part) {
      if (part->ended()) continue;
      part->idle();
      if (part->ended()) return;  // it had been canceled: nobody rests now
      several = waiting != nullptr;
      if (waiting == nullptr) waiting = part;
    }
  }
  if (waiting != nullptr) waiting->comm().wait(std::min(most_ns, several ? kShortRestNs : kLongRestNs));
}

bool Engine::wait(Request& request, std::int64_t timeout_ns, bool owned) {
  const std::uint64_t start = now_ns();
  const std::uint64_t deadline = timeout_ns < 0 ? 0 : start + static_cast<std::uint64_t>(timeout_ns);
  const auto time_left = [&]() -> std::uint64_t {
    if (timeout_ns < 0) return kLongRestNs;
    const std::uint64_t used = now_ns() - start;
    return used >= static_cast<std::uint64_t>(timeout_ns) ? 0 : static_cast<std::uint64_t>(timeout_ns) - used;
  };
  if (!owned) {
    std::unique_lock lock(mutex_);
    while (!claim(request)) {
      const std::uint64_t left = time_left();
      if (left == 0) return request.settled();
      changed_.wait_for(lock, std::chrono::nanoseconds(std::min(left, kLongRestNs)));
    }
    if (request.settled()) {
      // Its executions may serve a newer request by now.
      request.advancing_.store(false, std::memory_order_release);
      return true;
    }
  }
  const bool spin = may_spin(request);
  std::uint64_t idle_since = 0, seen = kNothingSeen;
  for (;;) {
    Request* adopted = adopt(&request, &seen);
    const bool worked = Pass(pool_, adopted, &request, false, deadline).run();
    const bool done = request.ended();
    const std::uint64_t left = time_left();
    if (!done && left > 0 && !worked) {
      const std::uint64_t now = now_ns();
      if (idle_since == 0) idle_since = now;
      if (!spin || now - idle_since > kSpinNs) {
        for (Execution* part = request.parts(); part != nullptr; part = part->next_part)
          part->allow_own_tiles();
        rest(adopted, left);
      }
    } else {
      idle_since = 0;
    }
    give_back(adopted, &request);
    if (done || left == 0) {
      unclaim(request);
      return done;
    }
  }
}

void Engine::test(Request& request) {
  if (request.settled() || !claim(request)) return;
  if (request.settled()) {
    unclaim(request);
    return;
  }
  std::uint64_t seen = kNothingSeen;
  Request* adopted = adopt(&request, &seen);
  if (!Pass(pool_, adopted, &request, true).run() && !request.ended()) {
    for (Execution* part = request.parts(); part != nullptr; part = part->next_part) {
      part->allow_own_tiles();
      if (!part->ended()) part->idle();
    }
  }
  give_back(adopted, nullptr);
}

void Engine::progress_loop() {
  std::uint64_t seen = kNothingSeen;  // a request that comes after a look at the list must not be slept over
  for (;;) {
    Request* adopted = adopt(nullptr, &seen);
    if (adopted != nullptr) {
      if (!Pass(pool_, adopted, nullptr, false).run()) {
        for (Request* request = adopted; request != nullptr; request = request->next_adopted_) {
          for (Execution* part = request->parts(); part != nullptr; part = part->next_part)
            part->allow_own_tiles();
        }
        rest(adopted, kShortRestNs);
      }
      give_back(adopted, nullptr);
    }
    std::unique_lock lock(mutex_);
    if (ending_) return;
    if (adopted == nullptr && seen == offered_.load(std::memory_order_relaxed))
      changed_.wait_for(lock, std::chrono::nanoseconds(kLongRestNs));
  }
}

}  // namespace ringattn::ring
