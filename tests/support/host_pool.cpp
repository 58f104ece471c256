#include "tests/support/host_pool.h"

#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace ringattn::support {
namespace {

// One running loop. A thread takes at most its share of the bodies, so that every thread takes part in every loop.
struct Loop {
  ringattn_body_fn body;
  void* arg;
  std::int32_t n;
  std::int32_t next = 0;
  std::int32_t ended = 0;
  std::int32_t share;
  std::map<std::thread::id, std::int32_t> taken;

  bool wants(std::thread::id thread) { return next < n && taken[thread] < share; }
};

}  // namespace

struct HostPool::State {
  explicit State(int count) : workers(count), slot_used(static_cast<std::size_t>(count), false) {}

  // A worker number that no other running body has; -1 = all are taken.
  int free_slot() const {
    for (int slot = 0; slot < workers; ++slot) {
      if (!slot_used[static_cast<std::size_t>(slot)]) return slot;
    }
    return -1;
  }

  // Runs one body of the loop if there is one for this thread and a slot is free.
  bool run_one(Loop& loop, std::unique_lock<std::mutex>& lock) {
    const std::thread::id self = std::this_thread::get_id();
    const int slot = free_slot();
    if (slot < 0 || !loop.wants(self)) return false;
    const std::int32_t index = loop.next++;
    ++loop.taken[self];
    threads_seen.insert(self);
    slot_used[static_cast<std::size_t>(slot)] = true;
    lock.unlock();
    loop.body(loop.arg, index, slot);
    lock.lock();
    slot_used[static_cast<std::size_t>(slot)] = false;
    ++loop.ended;
    changed.notify_all();
    return true;
  }

  void help() {
    std::unique_lock lock(mutex);
    while (!stop) {
      bool ran = false;
      for (auto loop = loops.begin(); loop != loops.end() && !ran; ++loop) ran = run_one(**loop, lock);
      if (!ran) changed.wait(lock);
    }
  }

  const int workers;
  std::mutex mutex;
  std::condition_variable changed;
  std::list<Loop*> loops;
  std::vector<bool> slot_used;
  std::set<std::thread::id> threads_seen;
  bool stop = false;
  std::vector<std::thread> helpers;
};

HostPool::HostPool(int workers) : state_(std::make_unique<State>(workers)) {
  for (int i = 1; i < workers; ++i) state_->helpers.emplace_back([state = state_.get()] { state->help(); });
}

HostPool::~HostPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  for (std::thread& helper : state_->helpers) helper.join();
}

void HostPool::attach(ringattn_context_desc& desc) {
  desc.threads = 0;
  desc.max_workers = state_->workers;
  desc.parallel_for = parallel_for;
  desc.parallel_user = state_.get();
}

int HostPool::distinct_threads() const {
  const std::lock_guard lock(state_->mutex);
  return static_cast<int>(state_->threads_seen.size());
}

void HostPool::forget_threads() {
  const std::lock_guard lock(state_->mutex);
  state_->threads_seen.clear();
}

void HostPool::parallel_for(void* user, std::int32_t n, ringattn_body_fn body, void* arg) {
  State& state = *static_cast<State*>(user);
  Loop loop{};
  loop.body = body;
  loop.arg = arg;
  loop.n = n;
  loop.share = (n + state.workers - 1) / state.workers;
  std::unique_lock lock(state.mutex);
  state.loops.push_back(&loop);
  state.changed.notify_all();
  while (loop.ended < n) {
    if (!state.run_one(loop, lock) && loop.ended < n) state.changed.wait(lock);
  }
  state.loops.remove(&loop);
}

}  // namespace ringattn::support
