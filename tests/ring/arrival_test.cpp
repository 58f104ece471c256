// Ranks that never come, an abort, a dead comm: every waiting rank is told why, and everything can be
// destroyed.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/ring/host_ring.h"

namespace ringattn::support {
namespace {

constexpr const char* kProblem = "n=64 heads=2 dim=16 mask=causal ranks=3";
constexpr const char* kLarger = "n=600 heads=2 dim=32 mask=causal partition=striped ranks=3";

class RingArrival : public ::testing::TestWithParam<Over> {
 protected:
  HostRingOptions options(int arrival_timeout_ms) const {
    HostRingOptions options;
    options.transport = GetParam().transport;
    options.arrival_timeout_ms = arrival_timeout_ms;
    return options;
  }
  // Ranks that connect need some time for it.
  int soon_ms() const { return std::string(GetParam().transport) == "tcp" ? 1000 : 100; }
};

// A transport between processes may take a moment until an idle rank hears of it.
ringattn_status ended_status(ringattn_comm* comm) {
  ringattn_status status = RINGATTN_OK;
  for (int i = 0; i < 1000 && status == RINGATTN_OK; ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    status = ringattn_comm_status(comm);
  }
  return status;
}

struct Answer {
  ringattn_status status = RINGATTN_OK;
  std::string message;
};

// Two of three ranks call; their digests meet, and both must come home although the third never comes.
TEST_P(RingArrival, PlanCreateNamesTheMissingRank) {
  const HostContext context;
  HostRingOptions few = options(soon_ms());
  few.plans = false;
  HostRing ring(context, with_pass(kProblem, GetParam()), few);
  std::vector<Answer> answers(2);
  run_threads(
      2,
      [&](int rank) {
        const ringattn_status status = ring.create_plan(rank);
        answers[static_cast<std::size_t>(rank)] = {status, ringattn_last_error()};
      },
      30, "plan_create without rank 2");
  for (const Answer& answer : answers) {
    EXPECT_EQ(answer.status, RINGATTN_ERR_TIMEOUT) << answer.message;
    EXPECT_NE(answer.message.find("rank 2 did not enter"), std::string::npos) << answer.message;
  }
  EXPECT_EQ(ring.create_plan(2), RINGATTN_ERR_TIMEOUT) << "the comm is dead on every rank";
  EXPECT_EQ(ring.plan(0), nullptr);
}

TEST_P(RingArrival, AnExecutionNamesTheMissingRank) {
  const HostContext context;
  HostRing ring(context, with_pass(kProblem, GetParam()), options(soon_ms()));
  std::vector<Answer> answers(2);
  run_threads(
      2,
      [&](int rank) {
        const ringattn_status status = ring.execute(rank);
        answers[static_cast<std::size_t>(rank)] = {status, ringattn_last_error()};
      },
      30, "an execution without rank 2");
  for (const Answer& answer : answers) {
    EXPECT_EQ(answer.status, RINGATTN_ERR_TIMEOUT) << answer.message;
    EXPECT_NE(answer.message.find("rank 2 did not enter"), std::string::npos) << answer.message;
  }
  EXPECT_EQ(ended_status(ring.comm(2)), RINGATTN_ERR_TIMEOUT);
}

TEST_P(RingArrival, AbortReachesRanksInPlanCreate) {
  const HostContext context;
  HostRingOptions few = options(-1);
  few.plans = false;
  HostRing ring(context, with_pass(kProblem, GetParam()), few);
  std::vector<Answer> answers(3);
  run_threads(
      3,
      [&](int rank) {
        if (rank == 2) {
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          EXPECT_EQ(ringattn_comm_abort(ring.comm(2), "the boat has left"), RINGATTN_OK);
          return;
        }
        const ringattn_status status = ring.create_plan(rank);
        answers[static_cast<std::size_t>(rank)] = {status, ringattn_last_error()};
      },
      30, "abort in plan_create");
  for (int rank = 0; rank < 2; ++rank) {
    const Answer& answer = answers[static_cast<std::size_t>(rank)];
    EXPECT_EQ(answer.status, RINGATTN_ERR_ABORTED);
    EXPECT_NE(answer.message.find("the boat has left"), std::string::npos) << answer.message;
  }
}

TEST_P(RingArrival, AbortReachesRanksThatWaitForDigests) {
  const HostContext context;
  HostRing ring(context, with_pass(kProblem, GetParam()), options(-1));
  std::vector<Answer> answers(3);
  run_threads(
      3,
      [&](int rank) {
        if (rank == 2) {
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          EXPECT_EQ(ringattn_comm_abort(ring.comm(2), nullptr), RINGATTN_OK);
          return;
        }
        const ringattn_status status = ring.execute(rank);
        answers[static_cast<std::size_t>(rank)] = {status, ringattn_last_error()};
      },
      30, "abort while digests are awaited");
  for (int rank = 0; rank < 2; ++rank) {
    const Answer& answer = answers[static_cast<std::size_t>(rank)];
    EXPECT_EQ(answer.status, RINGATTN_ERR_ABORTED);
    EXPECT_NE(answer.message.find("rank 2"), std::string::npos) << answer.message;
  }
}

TEST_P(RingArrival, AbortInTheMiddleEndsEveryRank) {
  const HostContext context;
  Random random(3);
  for (int round = 0; round < 8; ++round) {
    HostRing ring(context, with_pass(kLarger, GetParam()), options(-1));
    const std::chrono::microseconds delay(random.below(6000));
    std::vector<ringattn_status> statuses(4);
    run_threads(
        4,
        [&](int rank) {
          if (rank == 3) {
            std::this_thread::sleep_for(delay);
            EXPECT_EQ(ringattn_comm_abort(ring.comm(1), "enough"), RINGATTN_OK);
            return;
          }
          statuses[static_cast<std::size_t>(rank)] = ring.execute(rank);
        },
        30, "abort in the middle");
    for (int rank = 0; rank < 3; ++rank) {
      const ringattn_status status = statuses[static_cast<std::size_t>(rank)];
      EXPECT_TRUE(status == RINGATTN_OK || status == RINGATTN_ERR_ABORTED) << ringattn_status_name(status);
      EXPECT_EQ(ring.execute(rank), RINGATTN_ERR_ABORTED);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ring, RingArrival, ::testing::ValuesIn(kEverything),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace ringattn::support
