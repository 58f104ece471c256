// One parallel loop over the ready tiles of some executions (decisions: one body per worker, no barrier
// between steps).
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/worker_pool.h"
#include "ring/execution.h"

namespace ringattn::ring {

class Request;

class Pass {
 public:
  // target: whoever is waited for, among the adopted; null = none. deadline: monotonic ns; 0 = none.
  Pass(WorkerPool& pool, Request* adopted, const Request* target, bool one_tile, std::uint64_t deadline = 0)
      : pool_(pool), adopted_(adopted), target_(target), one_tile_(one_tile), deadline_ns_(deadline) {}
  // Polls once, then computes until nothing is ready, the target has ended or the deadline is over (or one
  // tile per worker). False: there was nothing to compute.
  bool run();

 private:
  static void body(void* arg, std::int32_t i, std::int32_t worker);
  void work(std::int32_t start, std::int32_t worker);
  Execution* draw(std::int32_t start, Task& task);
  void poll_all(bool between_tiles);
  std::int64_t pending() const;  // transfers
  std::int64_t state() const;
  void poll_between_tiles(bool holds_a_tile);
  std::int64_t ready(double* flops) const;
  std::int64_t width() const;

  WorkerPool& pool_;
  Request* adopted_;
  const Request* target_;
  const bool one_tile_;
  const std::uint64_t deadline_ns_;
  std::mutex poll_mutex_;
  std::atomic<std::uint64_t> poll_next_ns_{0};  // while tiles run
  std::uint64_t news_ns_ = 0;                   // when a poll last found something; by who polls
  std::atomic<std::int32_t> inside_{0};         // bodies that are still drawing
  std::int32_t bodies_ = 1;
  std::atomic<bool> leave_{false};  // start the loop anew: there is work again for bodies that have left
};

}  // namespace ringattn::ring
