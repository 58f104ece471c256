// What happened when, in one execution: a list of fixed size that workers append to without a lock.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "ringattn.h"

namespace ringattn::trace {

class Trace {
 public:
  void reserve(std::size_t most) { events_.resize(most); }
  bool on() const { return !events_.empty(); }
  void clear() { count_.store(0, std::memory_order_relaxed); }

  void add(std::int32_t kind, std::int32_t worker, std::int32_t peer, std::int32_t block, std::int64_t item,
           std::uint64_t start_ns, std::uint64_t end_ns, std::uint64_t bytes) {
    if (!on()) return;
    const std::size_t at = count_.fetch_add(1, std::memory_order_relaxed);
    if (at >= events_.size()) return;
    events_[at] = {sizeof(ringattn_event),
                   kind,
                   worker,
                   peer,
                   block,
                   static_cast<std::int32_t>(std::min<std::int64_t>(item, 0x7fffffff)),
                   start_ns,
                   end_ns,
                   bytes};
  }

  std::size_t count() const { return std::min(count_.load(std::memory_order_relaxed), events_.size()); }
  std::size_t dropped() const { return count_.load(std::memory_order_relaxed) - count(); }
  std::size_t bytes() const { return events_.capacity() * sizeof(ringattn_event); }
  const ringattn_event& operator[](std::size_t i) const { return events_[i]; }

 private:
  std::vector<ringattn_event> events_;
  std::atomic<std::size_t> count_{0};
};

}  // namespace ringattn::trace
