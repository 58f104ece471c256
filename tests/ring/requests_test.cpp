// Requests: started, tested, waited for in any order, beside one another, and busy comms.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/ring/host_ring.h"

namespace ringattn::support {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kSmall = "n=48 dim=16 mask=causal partition=zigzag ranks=3";

TEST(RingRequests, SeveralCommsOfOneContextInOppositeOrders) {
  const Watchdog watchdog("requests in opposite orders", 60);
  const std::uint64_t expected = answer_of_local(kSmall);
  const HostContext context;
  HostRing a(context, kSmall), b(context, kSmall), c(context, kSmall);
  HostRing* const rings[] = {&a, &b, &c};
  for (int round = 0; round < 10; ++round) {
    for (HostRing* ring : rings) ring->poison_outputs();
    run_threads(3, [&](int rank) {
      ringattn_request* requests[3];
      for (int i = 0; i < 3; ++i) requests[i] = rings[(i + rank) % 3]->start(rank);
      // Every rank starts them in another order and waits for them in a third.
      for (int i = 0; i < 3; ++i) EXPECT_EQ(finish(requests[(2 * i + rank) % 3]), RINGATTN_OK);
    });
    for (HostRing* ring : rings) ASSERT_EQ(ring->hash(), expected) << "round " << round;
  }
}

TEST(RingRequests, OneThreadWaitsForItsRanksInAnyOrder) {
  const Watchdog watchdog("ranks of one thread", 30);
  const std::uint64_t expected = answer_of_local(kSmall);
  const HostContext context;
  HostRing ring(context, kSmall);
  for (const std::vector<int>& order : {std::vector<int>{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
    ring.poison_outputs();
    std::vector<ringattn_request*> requests;
    for (int rank = 0; rank < 3; ++rank) requests.push_back(ring.start(rank));
    for (const int rank : order) EXPECT_EQ(finish(requests[static_cast<std::size_t>(rank)]), RINGATTN_OK);
    EXPECT_EQ(ring.hash(), expected);
  }
}

TEST(RingRequests, ABlockingCallAdvancesOthersOfItsContext) {
  const Watchdog watchdog("a blocking call beside requests", 30);
  const std::uint64_t expected = answer_of_local(kSmall);
  const HostContext context;
  HostRing ring(context, kSmall);
  ringattn_request* first = ring.start(0);
  ringattn_request* second = ring.start(1);
  EXPECT_EQ(ring.execute(2), RINGATTN_OK) << "its peers are driven by this very call";
  EXPECT_EQ(finish(first), RINGATTN_OK);
  EXPECT_EQ(finish(second), RINGATTN_OK);
  EXPECT_EQ(ring.hash(), expected);
}

TEST(RingRequests, TheProgressThreadNeedsNobody) {
  const Watchdog watchdog("the progress thread", 30);
  const std::uint64_t expected = answer_of_local(kSmall);
  const HostContext context(2, 1);
  HostRing ring(context, kSmall);
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

TEST(RingRequests, ABusyCommRefusesAndIsLeftAsItWas) {
  const Watchdog watchdog("a busy comm", 30);
  const std::uint64_t expected = answer_of_local(kSmall);
  const HostContext context;
  HostRing ring(context, kSmall);
  ringattn_request* first = ring.start(0);
  ringattn_request* again = first;
  EXPECT_EQ(ring.execute(0, &again), RINGATTN_ERR_BUSY);
  EXPECT_EQ(again, nullptr);
  EXPECT_NE(std::string(ringattn_last_error()).find("rank 0"), std::string::npos) << ringattn_last_error();
  ringattn_plan* plan = nullptr;
  EXPECT_EQ(ringattn_plan_create(ring.comm(0), &ring.desc(0), &plan), RINGATTN_ERR_BUSY);
  EXPECT_EQ(ring.execute_all(), RINGATTN_ERR_BUSY) << "one busy rank refuses the array";
  ringattn_request* second = ring.start(1);  // the array must have let go of ranks 1 and 2
  EXPECT_EQ(ring.execute(2), RINGATTN_OK) << ringattn_last_error();
  EXPECT_EQ(finish(first), RINGATTN_OK);
  EXPECT_EQ(finish(second), RINGATTN_OK);
  EXPECT_EQ(ring.hash(), expected) << "refused calls take no number";
}

TEST(RingRequests, WaitBeyondItsDeadlineChangesNothing) {
  const Watchdog watchdog("wait with a deadline", 30);
  const std::uint64_t expected = answer_of_local(kSmall);
  const HostContext context;
  HostRing ring(context, kSmall);
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

TEST(RingRequests, ARequestKeepsItsResultWhileLaterCallsRun) {
  const HostContext context;
  HostRing ring(context, kSmall);
  const std::uint64_t expected = answer_of_local(kSmall);
  ringattn_request* good = nullptr;
  ASSERT_EQ(ring.execute_all(&good), RINGATTN_OK) << ringattn_last_error();
  EXPECT_EQ(ringattn_request_wait(good, -1), RINGATTN_OK);
  ringattn_request* canceled = nullptr;
  ASSERT_EQ(ring.execute_all(&canceled), RINGATTN_OK);
  EXPECT_EQ(ringattn_request_cancel(canceled), RINGATTN_OK);
  EXPECT_EQ(ringattn_request_wait(canceled, -1), RINGATTN_ERR_CANCELED);
  EXPECT_EQ(ring.execute_all(), RINGATTN_OK);
  EXPECT_EQ(ring.hash(), expected);
  EXPECT_EQ(ringattn_request_test(good), RINGATTN_OK);
  EXPECT_EQ(ringattn_request_test(canceled), RINGATTN_ERR_CANCELED);
  EXPECT_NE(std::string(ringattn_last_error()).find("canceled by rank"), std::string::npos);
  EXPECT_NE(std::string(ringattn_request_message(canceled)).find("canceled by rank"), std::string::npos);
  EXPECT_STREQ(ringattn_request_message(good), "");
  ringattn_request_destroy(good);
  ringattn_request_destroy(canceled);
}

// Counts bodies that run at the same time and calls of the loop; runs them one after the other.
struct SerialHost {
  std::atomic<int> loops{0}, bodies{0};
  static void parallel_for(void* user, std::int32_t n, ringattn_body_fn body, void* arg) {
    SerialHost& host = *static_cast<SerialHost*>(user);
    ++host.loops;
    for (std::int32_t i = 0; i < n; ++i, ++host.bodies) body(arg, i, 0);
  }
};

ringattn_context* serial_context(SerialHost& host) {
  ringattn_context_desc desc = RINGATTN_STRUCT(ringattn_context_desc);
  desc.max_workers = 4;
  desc.parallel_for = SerialHost::parallel_for;
  desc.parallel_user = &host;
  ringattn_context* context = nullptr;
  require_ok(ringattn_context_create(&desc, &context), "context");
  return context;
}

// One rank, many tiles: each test runs at most one of them per worker.
TEST(RingRequests, TestReturnsAfterAtMostOneTilePerWorker) {
  SerialHost host;
  ringattn_context* context = serial_context(host);
  const ProblemLine problem = parse_line("n=512 heads=8 dim=64 ranks=1");
  ringattn_comm_desc comm_desc = RINGATTN_STRUCT(ringattn_comm_desc);
  comm_desc.world_size = 1;
  ringattn_comm* comm = nullptr;
  ASSERT_EQ(ringattn_comm_create_local(context, &comm_desc, &comm), RINGATTN_OK);
  const ProblemPlan values(problem);
  ringattn_plan* plan = nullptr;
  ASSERT_EQ(ringattn_plan_create(comm, &values.desc(0), &plan), RINGATTN_OK) << ringattn_last_error();
  RankTensors tensors(problem, 512, 512, nullptr);
  for (HostTensor* input : {&tensors.q, &tensors.k, &tensors.v}) input->fill(1);
  ringattn_request* request = nullptr;
  ASSERT_EQ(ringattn_forward(plan, &tensors.args, &request), RINGATTN_OK) << ringattn_last_error();
  int tests = 0, bodies = 0, most = 0;
  while (ringattn_request_test(request) == RINGATTN_IN_PROGRESS) {
    ++tests;
    most = std::max(most, host.bodies.load() - bodies);
    bodies = host.bodies;
  }
  EXPECT_LE(most, 4);
  ringattn_times times = RINGATTN_STRUCT(ringattn_times);
  ASSERT_EQ(ringattn_plan_get_times(plan, &times), RINGATTN_OK);
  EXPECT_GE(static_cast<std::uint64_t>(tests) * 4 + 4, times.tiles)
      << "a test ran more than a tile per worker";
  EXPECT_GT(tests, 4);
  EXPECT_EQ(tensors.o.get(0, 511, 7, 63), 1.0);
  ringattn_request_destroy(request);
  ringattn_plan_destroy(plan);
  ringattn_comm_destroy(comm);
  ringattn_context_destroy(context);
}

// A deadline counts while there is work as well: wait returns long before the whole is computed.
TEST(RingRequests, WaitReturnsAtItsDeadlineInTheMiddleOfWork) {
  const HostContext context(1);
  HostRing ring(context, "n=1536 heads=4 dim=64 ranks=1");
  auto start = Clock::now();
  ASSERT_EQ(ring.execute(0), RINGATTN_OK);
  const auto whole = Clock::now() - start;
  ringattn_request* request = ring.start(0);
  start = Clock::now();
  EXPECT_EQ(ringattn_request_wait(request, 1), RINGATTN_IN_PROGRESS);
  EXPECT_LT(Clock::now() - start, whole / 2);
  ringattn_request_destroy(request);
}

}  // namespace
}  // namespace ringattn::support
