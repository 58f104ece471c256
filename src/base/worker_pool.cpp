#include "base/worker_pool.h"

#include <sched.h>
#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>

#include <optional>

namespace ringattn {
namespace {

std::int32_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count > 0 ? count : 1;
}

}  // namespace

struct WorkerPool::Arena {
  explicit Arena(std::int32_t threads, bool more_than_hardware) : arena(threads, 1) {
    // oneTBB's limit is for the whole process: raise it where more threads are wished than it gives, never
    // lower it.
    if (more_than_hardware) {
      control.emplace(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(threads));
    }
  }
  tbb::task_arena arena;
  std::optional<tbb::global_control> control;
};

WorkerPool::~WorkerPool() = default;

Status WorkerPool::create(std::int32_t threads, ringattn_parallel_for_fn host, void* user,
                          std::int32_t max_workers, std::unique_ptr<WorkerPool>& out) {
  std::unique_ptr<WorkerPool> pool(new WorkerPool());
  pool->cores_ = usable_cores();
  if (host != nullptr) {
    pool->host_ = host;
    pool->user_ = user;
    pool->max_workers_ = max_workers;
  } else {
    pool->max_workers_ = threads > 0 ? threads : pool->cores_;
    if (pool->max_workers_ > 1) {
      const bool more = pool->max_workers_ > static_cast<std::int32_t>(tbb::global_control::active_value(
                                                 tbb::global_control::max_allowed_parallelism));
      pool->arena_ = std::make_unique<Arena>(pool->max_workers_, more);
    }
  }
  out = std::move(pool);
  return {};
}

void WorkerPool::run(std::int32_t n, ringattn_body_fn body, void* arg) {
  if (host_ != nullptr) {
    host_(user_, n, body, arg);
    return;
  }
  if (arena_ == nullptr) {
    for (std::int32_t i = 0; i < n; ++i) body(arg, i, 0);
    return;
  }
  arena_->arena.execute([&] {
    // Isolated: a thread that waits here must not pick up tasks of the host's own, or of another rank's
    // loop.
    tbb::this_task_arena::isolate([&] {
      tbb::parallel_for(
          std::int32_t{0}, n,
          [&](std::int32_t i) { body(arg, i, tbb::this_task_arena::current_thread_index()); },
          tbb::simple_partitioner());
    });
  });
}

}  // namespace ringattn
