// Cancel: it reaches every rank in every phase of a call, and the comm is as good as before.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/ring/host_ring.h"

namespace ringattn::support {
namespace {

constexpr const char* kProblem = "n=96 heads=2 dim=16 mask=causal partition=zigzag ranks=3";

class RingCancel : public ::testing::TestWithParam<Over> {
 protected:
  HostRingOptions options() const {
    HostRingOptions options;
    options.transport = GetParam().transport;
    return options;
  }
  std::string problem() const { return with_pass(kProblem, GetParam()); }
};

bool ok_or_canceled(ringattn_status status) {
  return status == RINGATTN_OK || status == RINGATTN_ERR_CANCELED;
}

// The digests of two ranks have met; that of the third is missing. What has arrived must be given back.
TEST_P(RingCancel, WhileOneRankHasNotEntered) {
  const Watchdog watchdog("cancel while one rank has not entered", 30);
  const std::uint64_t expected = answer_of_local(problem());
  const HostContext context;
  HostRing ring(context, problem(), options());
  ringattn_request* first = ring.start(0);
  ringattn_request* second = ring.start(1);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(ringattn_request_test(first), RINGATTN_IN_PROGRESS);
    EXPECT_EQ(ringattn_request_test(second), RINGATTN_IN_PROGRESS);
  }
  EXPECT_EQ(ringattn_request_cancel(first), RINGATTN_OK);
  ringattn_request* third = ring.start(2);
  std::string message;
  EXPECT_EQ(finish(first, &message), RINGATTN_ERR_CANCELED);
  EXPECT_NE(message.find("rank 0"), std::string::npos) << message;
  EXPECT_EQ(finish(second), RINGATTN_ERR_CANCELED);
  EXPECT_EQ(finish(third), RINGATTN_ERR_CANCELED);
  EXPECT_EQ(ring.execute_all(), RINGATTN_OK) << ringattn_last_error();
  EXPECT_EQ(ring.hash(), expected);
}

// Two calls are canceled before a slow rank has entered the first of them: it hears of both.
TEST_P(RingCancel, TwiceBeforeASlowRankEnters) {
  const Watchdog watchdog("cancel twice before a slow rank enters", 30);
  const std::uint64_t expected = answer_of_local(problem());
  const HostContext context;
  HostRing ring(context, problem(), options());
  for (int call = 0; call < 2; ++call) {
    ringattn_request* first = ring.start(0);
    ringattn_request* second = ring.start(1);
    EXPECT_EQ(ringattn_request_cancel(first), RINGATTN_OK);
    EXPECT_EQ(finish(first), RINGATTN_ERR_CANCELED);
    EXPECT_EQ(finish(second), RINGATTN_ERR_CANCELED);
  }
  EXPECT_EQ(finish(ring.start(2)), RINGATTN_ERR_CANCELED);
  EXPECT_EQ(finish(ring.start(2)), RINGATTN_ERR_CANCELED);
  const std::vector<ringattn_status> statuses = ring.execute_on_threads();
  for (const ringattn_status status : statuses) EXPECT_EQ(status, RINGATTN_OK);
  EXPECT_EQ(ring.hash(), expected);
}

TEST_P(RingCancel, AtRandomMomentsLeavesTheCommUsable) {
  const Watchdog watchdog("cancel at random moments", 60);
  const std::uint64_t expected = answer_of_local(problem());
  const HostContext context;
  HostRing ring(context, problem(), options());
  Random random(7);
  int canceled = 0, whole = 0;
  // On a busy machine the other ranks may be done before anybody cancels: then more rounds.
  for (int round = 0; round < 50 || (canceled == 0 && round < 2000); ++round) {
    const int who = static_cast<int>(random.below(ring.ranks()));
    const std::chrono::microseconds delay(random.below(300));
    ring.poison_outputs();
    std::vector<ringattn_status> statuses(static_cast<std::size_t>(ring.ranks()));
    run_threads(ring.ranks(), [&](int rank) {
      ringattn_request* request = ring.start(rank);
      if (rank == who) {
        ringattn_request_wait(request, 0);
        std::this_thread::sleep_for(delay);
        ringattn_request_cancel(request);
      }
      statuses[static_cast<std::size_t>(rank)] = finish(request);
    });
    bool all_ok = true;
    for (const ringattn_status status : statuses) {
      EXPECT_TRUE(ok_or_canceled(status)) << ringattn_status_name(status);
      all_ok = all_ok && status == RINGATTN_OK;
    }
    (all_ok ? whole : canceled) += 1;
    if (all_ok) {
      EXPECT_EQ(ring.hash(), expected) << "round " << round;
    }
    ring.poison_outputs();
    ASSERT_EQ(ring.execute_all(), RINGATTN_OK) << ringattn_last_error();
    ASSERT_EQ(ring.hash(), expected) << "after round " << round;
  }
  EXPECT_GT(canceled, 0) << "no call was hit";
}

TEST_P(RingCancel, DestroyOfAnUnfinishedRequestCancelsIt) {
  const Watchdog watchdog("destroy of an unfinished request", 30);
  const HostContext context;
  HostRing ring(context, problem(), options());
  ringattn_request* first = ring.start(0);
  ringattn_request* second = ring.start(1);
  ringattn_request_destroy(first);
  EXPECT_EQ(finish(second), RINGATTN_ERR_CANCELED);
  EXPECT_EQ(ring.execute(2), RINGATTN_ERR_CANCELED);
  EXPECT_EQ(ring.execute_all(), RINGATTN_OK) << ringattn_last_error();
}

TEST_P(RingCancel, OfAnEndedRequestDoesNothing) {
  const HostContext context;
  HostRing ring(context, problem(), options());
  ringattn_request* request = nullptr;
  ASSERT_EQ(ring.execute_all(&request), RINGATTN_OK) << ringattn_last_error();
  EXPECT_EQ(ringattn_request_wait(request, -1), RINGATTN_OK);
  EXPECT_EQ(ringattn_request_cancel(request), RINGATTN_OK);
  EXPECT_EQ(ringattn_request_wait(request, 0), RINGATTN_OK);
  EXPECT_EQ(ring.execute_all(), RINGATTN_OK) << ringattn_last_error();
  ringattn_request_destroy(request);
}

INSTANTIATE_TEST_SUITE_P(Ring, RingCancel, ::testing::ValuesIn(kEverything),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace ringattn::support
