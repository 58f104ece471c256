// Operations that move memory (pack, add an arrived sum, write dK and dV), cut into parts that any worker may do in any
// order: no part touches what another one does.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "ring/tile_queue.h"

namespace ringattn::ring {

class MoveQueue {
 public:
  void reserve(std::int32_t most_operations);
  void start();
  void open(std::int32_t operation, std::int64_t parts);  // parts >= 1
  void close();                                           // nothing is drawn any more

  bool draw(Task& task);
  void finish(const Task& task);
  bool take_finished(std::int32_t* operation);  // each once

  std::int64_t ready() const { return ready_.load(std::memory_order_acquire); }
  std::int64_t running() const { return running_.load(std::memory_order_acquire); }
  std::uint64_t bytes() const {
    return sizeof(Open) * open_.capacity() + sizeof(std::int32_t) * finished_.capacity();
  }

 private:
  struct Open {
    std::int32_t operation;
    std::int64_t next, parts, left;  // left: not finished
  };

  std::mutex mutex_;
  std::vector<Open> open_;
  std::vector<std::int32_t> finished_;
  std::atomic<std::int64_t> ready_{0}, running_{0};
};

}  // namespace ringattn::ring
