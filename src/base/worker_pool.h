// The threads that compute: the context's own oneTBB arena, or the host's parallel loop.
#pragma once
#include <cstdint>
#include <memory>

#include "base/status.h"

namespace ringattn {

class WorkerPool {
 public:
  // threads = 0: one per core this process may use.
  static Status create(std::int32_t threads, ringattn_parallel_for_fn host, void* user,
                       std::int32_t max_workers, std::unique_ptr<WorkerPool>& out);
  ~WorkerPool();

  // Worker numbers passed to bodies are below this.
  std::int32_t max_workers() const { return max_workers_; }
  std::int32_t cores() const { return cores_; }

  // Runs body(arg, i, worker) for 0 <= i < n, the calling thread included; returns when all have ended.
  // Bodies must not block.
  void run(std::int32_t n, ringattn_body_fn body, void* arg);

 private:
  WorkerPool() = default;
  struct Arena;
  std::unique_ptr<Arena> arena_;
  ringattn_parallel_for_fn host_ = nullptr;
  void* user_ = nullptr;
  std::int32_t max_workers_ = 1;
  std::int32_t cores_ = 1;
};

}  // namespace ringattn
