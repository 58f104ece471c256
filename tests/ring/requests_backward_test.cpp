// Requests of backward: what requests_test.cpp holds forward to.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/process_counts.h"
#include "tests/ring/host_ring.h"

namespace ringattn::support {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kSmall =
    "n=48 heads=2 kv_heads=1 dim=16 mask=causal partition=zigzag ranks=3 pass=backward";

double milliseconds_of(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

class RingBackwardRequests : public ::testing::TestWithParam<const char*> {
 protected:
  HostRingOptions options() const {
    HostRingOptions options;
    options.transport = GetParam();
    return options;
  }
};

TEST_P(RingBackwardRequests, OneThreadWaitsForItsRanksInAnyOrder) {
  const Watchdog watchdog("ranks of one thread", 30);
  const std::uint64_t expected = answer_of_local(kSmall);
  const HostContext context;
  HostRing ring(context, kSmall, options());
  for (const std::vector<int>& order : {std::vector<int>{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
    ring.poison_outputs();
    std::vector<ringattn_request*> requests;
    for (int rank = 0; rank < 3; ++rank) requests.push_back(ring.start(rank));
    for (const int rank : order) EXPECT_EQ(finish(requests[static_cast<std::size_t>(rank)]), RINGATTN_OK);
    EXPECT_EQ(ring.hash(), expected);
  }
}

TEST_P(RingBackwardRequests, CommsOfOneContextInOppositeOrders) {
  const Watchdog watchdog("requests in opposite orders", 60);
  const std::uint64_t expected = answer_of_local(kSmall);
  const HostContext context;
  HostRing a(context, kSmall, options()), b(context, kSmall, options()), c(context, kSmall, options());
  HostRing* const rings[] = {&a, &b, &c};
  for (int round = 0; round < 10; ++round) {
    for (HostRing* ring : rings) ring->poison_outputs();
    run_threads(3, [&](int rank) {
      ringattn_request* requests[3];
      for (int i = 0; i < 3; ++i) requests[i] = rings[(i + rank) % 3]->start(rank);
      for (int i = 0; i < 3; ++i) EXPECT_EQ(finish(requests[(2 * i + rank) % 3]), RINGATTN_OK);
    });
    for (HostRing* ring : rings) ASSERT_EQ(ring->hash(), expected) << "round " << round;
  }
}

TEST_P(RingBackwardRequests, ABlockingCallAdvancesOthersOfItsContext) {
  const Watchdog watchdog("a blocking call beside requests", 30);
  const std::uint64_t expected = answer_of_local(kSmall);
  const HostContext context;
  HostRing ring(context, kSmall, options());
  ringattn_request* first = ring.start(0);
  ringattn_request* second = ring.start(1);
  EXPECT_EQ(ring.execute(2), RINGATTN_OK) << "its peers are driven by this very call";
  EXPECT_EQ(finish(first), RINGATTN_OK);
  EXPECT_EQ(finish(second), RINGATTN_OK);
  EXPECT_EQ(ring.hash(), expected);
}

TEST_P(RingBackwardRequests, TheProgressThreadNeedsNobody) {
  const Watchdog watchdog("the progress thread", 30);
  const std::uint64_t expected = answer_of_local(kSmall);
  const HostContext context(2, 1);
  HostRing ring(context, kSmall, options());
  std::vector<ringattn_request*> requests;
  for (int round = 0; round < 5; ++round) {
    // Nobody tests or waits: that a comm takes its next call tells that the one before has ended.
    for (int rank = 0; rank < 3; ++rank) {
      ringattn_request* request = nullptr;
      ringattn_status status = ring.execute(rank, &request);
      while (status == RINGATTN_ERR_BUSY) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        status = ring.execute(rank, &request);
      }
      EXPECT_EQ(status, RINGATTN_OK) << ringattn_last_error();
      requests.push_back(request);
    }
  }
  for (ringattn_request* request : requests) EXPECT_EQ(finish(request), RINGATTN_OK);
  EXPECT_EQ(ring.hash(), expected);
}

TEST_P(RingBackwardRequests, ABusyCommRefusesBothPassesAndIsLeftAsItWas) {
  const Watchdog watchdog("a busy comm", 30);
  const std::uint64_t expected = answer_of_local(kSmall);
  const HostContext context;
  HostRing ring(context, kSmall, options());
  ringattn_request* first = ring.start(0);
  ringattn_request* again = first;
  EXPECT_EQ(ring.execute(0, &again), RINGATTN_ERR_BUSY);
  EXPECT_EQ(again, nullptr);
  EXPECT_NE(std::string(ringattn_last_error()).find("rank 0"), std::string::npos) << ringattn_last_error();
  EXPECT_EQ(ringattn_forward(ring.plan(0), &ring.tensors(0).args, nullptr), RINGATTN_ERR_BUSY);
  ringattn_plan* plan = nullptr;
  EXPECT_EQ(ringattn_plan_create(ring.comm(0), &ring.desc(0), &plan), RINGATTN_ERR_BUSY);
  EXPECT_EQ(ring.execute_all(), RINGATTN_ERR_BUSY) << "one busy rank refuses the array";
  ringattn_request* second = ring.start(1);  // the array must have let go of ranks 1 and 2
  EXPECT_EQ(ring.execute(2), RINGATTN_OK) << ringattn_last_error();
  EXPECT_EQ(finish(first), RINGATTN_OK);
  EXPECT_EQ(finish(second), RINGATTN_OK);
  EXPECT_EQ(ring.hash(), expected) << "refused calls take no number";
}

// One comm, two threads, at the same time: served or BUSY, never anything else.
TEST_P(RingBackwardRequests, TwoThreadsOnOneCommAreServedOrBusy) {
  const Watchdog watchdog("two threads on one comm", 60);
  constexpr const char* kOne = "n=64 dim=16 mask=causal ranks=1 pass=backward";
  const std::uint64_t expected = answer_of_local(kOne);
  const HostContext context(1);
  HostRing ring(context, kOne, options());
  std::atomic<int> served{0}, other{0};
  run_threads(2, [&](int) {
    for (int i = 0; i < 100; ++i) {
      const ringattn_status status = ring.execute(0);
      served += status == RINGATTN_OK ? 1 : 0;
      other += status != RINGATTN_OK && status != RINGATTN_ERR_BUSY ? 1 : 0;
    }
  });
  EXPECT_EQ(other, 0);
  EXPECT_GT(served, 0);
  EXPECT_EQ(ring.execute(0), RINGATTN_OK) << ringattn_last_error();
  EXPECT_EQ(ring.hash(), expected);
}

TEST_P(RingBackwardRequests, WaitBeyondItsDeadlineChangesNothing) {
  const Watchdog watchdog("wait with a deadline", 30);
  const std::uint64_t expected = answer_of_local(kSmall);
  const HostContext context;
  HostRing ring(context, kSmall, options());
  ringattn_request* first = ring.start(0);
  for (const std::int64_t timeout : {0, 1, 20}) {
    const auto start = Clock::now();
    EXPECT_EQ(ringattn_request_wait(first, timeout), RINGATTN_IN_PROGRESS);
    EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(timeout));
  }
  EXPECT_STREQ(ringattn_request_message(first), "");
  EXPECT_EQ(ringattn_request_wait(first, -2), RINGATTN_ERR_INVALID_ARGUMENT);
  ringattn_request* second = ring.start(1);
  EXPECT_EQ(ring.execute(2), RINGATTN_OK);
  EXPECT_EQ(finish(first), RINGATTN_OK);
  EXPECT_EQ(finish(second), RINGATTN_OK);
  EXPECT_EQ(ring.hash(), expected);
}

TEST_P(RingBackwardRequests, ARequestKeepsItsResultWhileLaterCallsRun) {
  const HostContext context;
  HostRing ring(context, kSmall, options());
  const std::uint64_t expected = answer_of_local(kSmall);
  ringattn_request *good = nullptr, *canceled = nullptr;
  ASSERT_EQ(ring.execute_all(&good), RINGATTN_OK) << ringattn_last_error();
  EXPECT_EQ(ringattn_request_wait(good, -1), RINGATTN_OK);
  ASSERT_EQ(ring.execute_all(&canceled), RINGATTN_OK);
  EXPECT_EQ(ringattn_request_cancel(canceled), RINGATTN_OK);
  EXPECT_EQ(ringattn_request_wait(canceled, -1), RINGATTN_ERR_CANCELED);
  EXPECT_EQ(ring.execute_all(), RINGATTN_OK);
  EXPECT_EQ(ring.hash(), expected);
  EXPECT_EQ(ringattn_request_test(good), RINGATTN_OK);
  EXPECT_EQ(ringattn_request_test(canceled), RINGATTN_ERR_CANCELED);
  EXPECT_NE(std::string(ringattn_request_message(canceled)).find("canceled by rank"), std::string::npos);
  EXPECT_STREQ(ringattn_request_message(good), "");
  ringattn_request_destroy(good);
  ringattn_request_destroy(canceled);
}

// A peer's cancel is heard when somebody looks, not when a long rest is over.
TEST_P(RingBackwardRequests, ACancelIsHeardByAPeerThatIsWaitedFor) {
  const Watchdog watchdog("cancel that a peer hears", 60);
  const HostContext context(1);
  HostRing ring(context, "n=8 dim=8 ranks=2 pass=backward", options());
  std::vector<double> waited;
  for (int round = 0; round < 15; ++round) {
    ringattn_request* first = ring.start(0);
    EXPECT_EQ(ringattn_request_test(first), RINGATTN_IN_PROGRESS);
    ringattn_request_destroy(ring.start(1));
    const auto start = Clock::now();
    EXPECT_EQ(finish(first), RINGATTN_ERR_CANCELED);
    waited.push_back(milliseconds_of(Clock::now() - start));
  }
  std::sort(waited.begin(), waited.end());
  EXPECT_LT(waited[waited.size() / 2], 25) << "milliseconds, the median of " << waited.size();
}

INSTANTIATE_TEST_SUITE_P(Ring, RingBackwardRequests, ::testing::Values("local", "ring_lend", "ring_copy"),
                         [](const auto& info) { return std::string(info.param); });

// Counts bodies; runs them one after the other.
struct SerialHost {
  std::atomic<int> bodies{0};
  static void parallel_for(void* user, std::int32_t n, ringattn_body_fn body, void* arg) {
    for (std::int32_t i = 0; i < n; ++i, ++static_cast<SerialHost*>(user)->bodies) body(arg, i, 0);
  }
};

// One rank of a context with four workers that run one after the other.
class SerialRing {
 public:
  explicit SerialRing(const ProblemLine& problem)
      : tensors(problem, problem.queries, problem.keys, nullptr), values_(problem) {
    ringattn_context_desc desc = RINGATTN_STRUCT(ringattn_context_desc);
    desc.max_workers = 4;
    desc.parallel_for = SerialHost::parallel_for;
    desc.parallel_user = &host;
    require_ok(ringattn_context_create(&desc, &context_), "context");
    ringattn_comm_desc comm_desc = RINGATTN_STRUCT(ringattn_comm_desc);
    comm_desc.world_size = 1;
    require_ok(ringattn_comm_create_local(context_, &comm_desc, &comm_), "comm");
    require_ok(ringattn_plan_create(comm_, &values_.desc(0), &plan), "plan");
    for (HostTensor* input : {&tensors.q, &tensors.k, &tensors.v, &tensors.d_o}) input->fill(1);
    require_ok(ringattn_forward(plan, &tensors.args, nullptr), "forward");
  }
  ~SerialRing() {
    ringattn_plan_destroy(plan);
    ringattn_comm_destroy(comm_);
    ringattn_context_destroy(context_);
  }
  SerialRing(const SerialRing&) = delete;
  SerialRing& operator=(const SerialRing&) = delete;

  SerialHost host;
  RankTensors tensors;
  ringattn_plan* plan = nullptr;

 private:
  ProblemPlan values_;
  ringattn_context* context_ = nullptr;
  ringattn_comm* comm_ = nullptr;
};

TEST(RingBackwardSteps, TestReturnsAfterAtMostOneTilePerWorker) {
  SerialRing ring(parse_line("n=256 heads=8 dim=64 ranks=1 pass=backward"));
  ringattn_request* request = nullptr;
  ASSERT_EQ(ringattn_backward(ring.plan, &ring.tensors.backward_args, &request), RINGATTN_OK)
      << ringattn_last_error();
  int tests = 0, bodies = ring.host.bodies, most = 0;
  while (ringattn_request_test(request) == RINGATTN_IN_PROGRESS) {
    ++tests;
    most = std::max(most, ring.host.bodies.load() - bodies);
    bodies = ring.host.bodies;
  }
  EXPECT_LE(most, 4);
  ringattn_times times = RINGATTN_STRUCT(ringattn_times);
  ASSERT_EQ(ringattn_plan_get_times(ring.plan, &times), RINGATTN_OK);
  EXPECT_GE(static_cast<std::uint64_t>(tests) * 4 + 4, times.tiles)
      << "a test ran more than a tile per worker";
  EXPECT_GT(tests, 4);
  // Every key has the same weight in 256 rows, and nothing depends on the scores.
  EXPECT_NEAR(ring.tensors.d_v.get(0, 255, 7, 63), 1.0, 1e-5);
  EXPECT_NEAR(ring.tensors.d_k.get(0, 255, 7, 63), 0.0, 1e-4);
  ringattn_request_destroy(request);
}

// A deadline counts while there is work as well: wait returns long before the whole is computed.
TEST(RingBackwardSteps, WaitReturnsAtItsDeadlineInTheMiddleOfWork) {
  const Watchdog watchdog("wait in the middle of work", 60);
  const HostContext context(1);
  // Sanitizers make less work as long.
  const char* const line = kOwnAllocator ? "n=1024 heads=4 dim=64 ranks=1 pass=backward"
                                         : "n=400 heads=4 dim=64 ranks=1 pass=backward";
  HostRing ring(context, line);
  auto start = Clock::now();
  ASSERT_EQ(ring.execute(0), RINGATTN_OK);
  const auto whole = Clock::now() - start;
  const std::uint64_t expected = ring.hash();
  ring.poison_outputs();
  ringattn_request* request = ring.start(0);
  start = Clock::now();
  EXPECT_EQ(ringattn_request_wait(request, 1), RINGATTN_IN_PROGRESS);
  EXPECT_LT(Clock::now() - start, whole / 2);
  EXPECT_EQ(finish(request), RINGATTN_OK);
  EXPECT_EQ(ring.hash(), expected) << "and goes on where it was";
}

}  // namespace
}  // namespace ringattn::support
