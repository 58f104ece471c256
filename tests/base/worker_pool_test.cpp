// The threads that compute: every body once, no two at a time with the same worker number.
#include "base/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/host_pool.h"
#include "tests/support/spawn.h"

namespace ringattn {
namespace {

// Counts what the bodies of one loop did.
struct Check {
  explicit Check(std::int32_t n, std::int32_t workers)
      : times(static_cast<std::size_t>(n)), inside(static_cast<std::size_t>(workers)) {}
  std::vector<std::atomic<int>> times;
  std::vector<std::atomic<int>> inside;
  std::atomic<int> errors{0};

  static void body(void* arg, std::int32_t i, std::int32_t worker) {
    Check& check = *static_cast<Check*>(arg);
    if (worker < 0 || worker >= static_cast<std::int32_t>(check.inside.size())) {
      ++check.errors;
      return;
    }
    const auto w = static_cast<std::size_t>(worker);
    if (++check.inside[w] != 1) ++check.errors;
    ++check.times[static_cast<std::size_t>(i)];
    std::this_thread::yield();
    --check.inside[w];
  }
  void expect_once() const {
    EXPECT_EQ(errors, 0);
    for (const auto& count : times) EXPECT_EQ(count.load(), 1);
  }
};

std::unique_ptr<WorkerPool> own_pool(std::int32_t threads) {
  std::unique_ptr<WorkerPool> pool;
  EXPECT_TRUE(WorkerPool::create(threads, nullptr, nullptr, 0, pool).ok());
  return pool;
}

TEST(BaseWorkerPool, RunsEveryBodyOnceWithWorkersApart) {
  for (const std::int32_t threads : {1, 2, 3, 5}) {
    const auto pool = own_pool(threads);
    EXPECT_EQ(pool->max_workers(), threads);
    for (const std::int32_t n : {0, 1, 2, 7, 100}) {
      Check check(n, threads);
      pool->run(n, Check::body, &check);
      check.expect_once();
    }
  }
}

TEST(BaseWorkerPool, ZeroIsOneThreadPerCore) {
  const auto pool = own_pool(0);
  EXPECT_GE(pool->cores(), 1);
  EXPECT_EQ(pool->max_workers(), pool->cores());
}

TEST(BaseWorkerPool, OneThreadIsTheCallersAlone) {
  const auto pool = own_pool(1);
  std::set<std::thread::id> threads;
  pool->run(
      20,
      [](void* arg, std::int32_t, std::int32_t) {
        static_cast<std::set<std::thread::id>*>(arg)->insert(std::this_thread::get_id());
      },
      &threads);
  EXPECT_EQ(threads, std::set<std::thread::id>{std::this_thread::get_id()});
}

TEST(BaseWorkerPool, SeveralCallersAtTheSameTime) {
  const auto pool = own_pool(3);
  // Worker numbers are apart within one loop; each caller brings a check of its own.
  support::run_threads(
      4,
      [&](int) {
        for (int round = 0; round < 20; ++round) {
          Check check(17, 3);
          pool->run(17, Check::body, &check);
          for (const auto& count : check.times) ASSERT_EQ(count.load(), 1);
        }
      },
      60, "callers of one pool");
}

TEST(LocalWorkerPool, TheHostsLoopIsUsed) {
  support::HostPool host(3);
  ringattn_context_desc desc = RINGATTN_STRUCT(ringattn_context_desc);
  host.attach(desc);
  std::unique_ptr<WorkerPool> pool;
  ASSERT_TRUE(WorkerPool::create(0, desc.parallel_for, desc.parallel_user, desc.max_workers, pool).ok());
  EXPECT_EQ(pool->max_workers(), 3);
  for (const std::int32_t n : {1, 2, 50}) {
    Check check(n, 3);
    pool->run(n, Check::body, &check);
    check.expect_once();
  }
}

TEST(LocalWorkerPool, ASerialHostIsLegal) {
  std::unique_ptr<WorkerPool> pool;
  int loops = 0;
  const auto serial = [](void* user, std::int32_t n, ringattn_body_fn body, void* arg) {
    ++*static_cast<int*>(user);
    for (std::int32_t i = n - 1; i >= 0; --i) body(arg, i, 0);
  };
  ASSERT_TRUE(WorkerPool::create(0, serial, &loops, 8, pool).ok());
  EXPECT_EQ(pool->max_workers(), 8);
  Check check(9, 8);
  pool->run(9, Check::body, &check);
  check.expect_once();
  EXPECT_EQ(loops, 1);
}

}  // namespace
}  // namespace ringattn
