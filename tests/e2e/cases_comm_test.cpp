// Public bug reports about hangs, aborts, timeouts and threads, on the in-process transport (part b).
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>

#include "tests/e2e/closed_forms.h"
#include "tests/e2e/process_counts.h"
#include "tests/support/ready_ring.h"
#include "tests/support/spawn.h"

namespace ringattn::support {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What a rank's call returned, taken on the rank's own thread.
struct Answer {
  ringattn_status status = RINGATTN_OK;
  std::string message;
  double seconds = 0;
};

Answer answer_of(ringattn_status status, Clock::time_point start) {
  return {status, ringattn_last_error(), seconds_since(start)};
}

TEST(CaseB028, ManyDocumentsDoNotMeanManyMessages) {
  std::string docs = "8";
  for (int i = 1; i < 1024; ++i) docs += ",8";
  // Striped, so that every document spans all ranks.
  const ProblemLine many = parsed("n=8192 heads=64 dim=4 mask=causal partition=striped ranks=4 docs=" + docs);
  const ProblemLine one = parsed("n=8192 heads=1 dim=4 mask=causal partition=striped ranks=4");
  RunOptions options;
  options.trace = true;
  options.watchdog_seconds = 60;
  const auto transfers = [&](const ProblemLine& problem) {
    const RunResult run = run_ring(problem, u1_inputs(problem), options);
    EXPECT_TRUE(run.ok()) << run.error();
    std::vector<int> counts;
    for (const std::vector<ringattn_event>& events : run.events) {
      int count = 0;
      for (const ringattn_event& event : events) {
        count += event.kind == RINGATTN_EVENT_SEND || event.kind == RINGATTN_EVENT_RECEIVE ? 1 : 0;
      }
      counts.push_back(count);
    }
    return counts;
  };
  const std::vector<int> of_many = transfers(many), of_one = transfers(one);
  ASSERT_EQ(of_many.size(), 4u);
  EXPECT_EQ(of_many, of_one);
  for (const int count : of_one) EXPECT_LE(count, 3 * 4) << "at most two sends and two receives a step";
}

TEST(CaseB028, ManyDocumentsAreRight) {
  std::string docs = "8";
  for (int i = 1; i < 1024; ++i) docs += ",8";
  const ProblemLine problem = parsed("n=8192 dim=4 mask=causal partition=zigzag ranks=4 docs=" + docs);
  expect_rows(problem, u1_inputs(problem), [](std::int64_t, std::int64_t i) {
    const std::int64_t start = i / 8 * 8;
    return Row{static_cast<double>(start + i) / 2, std::log(static_cast<double>(i - start) + 1)};
  });
}

TEST(CaseB029, SixteenRanksManyRoundsWithRandomSleeps) {
  const ProblemLine problem = parsed("n=64 dim=16 mask=causal partition=zigzag ranks=16");
  ReadyRing ring(problem, u1_inputs(problem));
  const int rounds = 250 / kSlowdown;
  std::atomic<int> wrong{0}, failed{0};
  run_threads(
      16,
      [&](int rank) {
        Random random(static_cast<std::uint64_t>(rank));
        std::vector<std::int64_t> index(8, 0);
        std::uint64_t count = 0;
        require_ok(ringattn_plan_positions(ring.plan(rank), RINGATTN_AXIS_QUERY, rank, 0, nullptr,
                                           index.data(), nullptr, index.size(), &count),
                   "ringattn_plan_positions");
        for (int round = 0; round < rounds; ++round) {
          std::this_thread::sleep_for(std::chrono::microseconds(random.below(2000)));
          ring.tensors(rank).poison_outputs();
          const Watchdog watchdog("round " + std::to_string(round) + " of rank " + std::to_string(rank), 30);
          if (ring.forward(rank) != RINGATTN_OK) ++failed;
          for (std::uint64_t i = 0; i < count; ++i) {
            const double o = ring.tensors(rank).o.get(0, static_cast<std::int64_t>(i), 0, 0);
            if (!(std::fabs(o - static_cast<double>(index[i]) / 2) < 1e-4)) ++wrong;
          }
        }
      },
      300, "16 ranks");
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(wrong, 0);
}

TEST(CaseB031, AbortEndsAForwardWhosePeerNeverCalls) {
  const ProblemLine problem = parsed("n=32 dim=8 mask=causal ranks=2");
  const Inputs inputs = u1_inputs(problem);
  int threads_after_first = 0;
  for (int round = 0; round < 50; ++round) {
    auto ring = std::make_unique<ReadyRing>(problem, inputs);
    Answer blocked;
    std::thread rank0([&] {
      const Watchdog watchdog("forward after abort", 20);
      blocked = answer_of(ring->forward(0), Clock::now());
    });
    std::this_thread::sleep_for(milliseconds(round == 0 ? 300 : 5));
    const Clock::time_point aborted = Clock::now();
    EXPECT_EQ(ringattn_comm_abort(ring->comms().comm(round % 2), "the operator pulled the plug"),
              RINGATTN_OK);
    rank0.join();
    EXPECT_LT(seconds_since(aborted), 2);
    EXPECT_EQ(blocked.status, RINGATTN_ERR_ABORTED);
    EXPECT_NE(blocked.message.find("the operator pulled the plug"), std::string::npos) << blocked.message;
    EXPECT_EQ(ringattn_comm_status(ring->comms().comm(0)), RINGATTN_ERR_ABORTED);
    EXPECT_EQ(ring->forward(1), RINGATTN_ERR_ABORTED) << "every later call returns the same";
    const Clock::time_point destroyed = Clock::now();
    ring.reset();
    EXPECT_LT(seconds_since(destroyed), 5);
    if (round == 0) threads_after_first = thread_count();
  }
  EXPECT_LE(threads_down_to(threads_after_first), threads_after_first);
}

TEST(CaseB032, AMissingRankIsNamedAtPlanCreationAndARetryWorks) {
  const ProblemLine problem = parsed("n=32 dim=8 mask=causal ranks=4");
  RingOptions options;
  options.arrival_timeout_ms = 500;
  {
    const CommRing ring(4, options);
    const ProblemPlan values(problem);
    std::vector<Answer> answers(3);
    run_threads(3, [&](int rank) {
      ringattn_plan* plan = nullptr;
      const Clock::time_point start = Clock::now();
      const int place = rank < 2 ? rank : 3;  // rank 2 never comes
      answers[static_cast<std::size_t>(rank)] =
          answer_of(ringattn_plan_create(ring.comm(place), &values.desc(place), &plan), start);
      EXPECT_EQ(plan, nullptr);
    });
    for (const Answer& answer : answers) {
      EXPECT_EQ(answer.status, RINGATTN_ERR_TIMEOUT) << answer.message;
      EXPECT_NE(answer.message.find("rank 2"), std::string::npos) << answer.message;
      EXPECT_GE(answer.seconds, 0.4);
      EXPECT_LT(answer.seconds, 2.5);
    }
  }
  expect_causal("n=32 dim=8 ranks=4");  // the same process tries again
}

TEST(CaseB032, AMissingRankIsNamedAtForward) {
  const ProblemLine problem = parsed("n=32 dim=8 mask=causal ranks=3");
  RingOptions options;
  options.arrival_timeout_ms = 400;
  ReadyRing ring(problem, u1_inputs(problem), options);
  std::vector<Answer> answers(2);
  run_threads(2, [&](int rank) {
    const Clock::time_point start = Clock::now();
    answers[static_cast<std::size_t>(rank)] = answer_of(ring.forward(rank), start);
  });
  for (const Answer& answer : answers) {
    EXPECT_EQ(answer.status, RINGATTN_ERR_TIMEOUT) << answer.message;
    EXPECT_NE(answer.message.find("rank 2"), std::string::npos) << answer.message;
    EXPECT_LT(answer.seconds, 2.5);
  }
  EXPECT_EQ(ringattn_comm_status(ring.comms().comm(2)), RINGATTN_ERR_TIMEOUT)
      << "the comm is dead on every rank";
}

TEST(CaseB033, FiftyRingsOneAfterTheOtherAndTwoAtOnce) {
  const ProblemLine problem = parsed("n=24 dim=8 mask=causal ranks=3");
  const Inputs inputs = u1_inputs(problem);
  for (int round = 0; round < 50; ++round) {
    ReadyRing ring(problem, inputs);
    ASSERT_EQ(ring.forward_all(), RINGATTN_OK) << ringattn_last_error();
  }
  ReadyRing a(problem, inputs), b(problem, inputs);
  run_threads(
      6, [&](int i) { EXPECT_EQ((i < 3 ? a : b).forward(i % 3), RINGATTN_OK) << ringattn_last_error(); });
  EXPECT_EQ(a.hash(), b.hash());
}

TEST(CaseB038, CreateForwardAndDestroyOnDifferentThreads) {
  const ProblemLine problem = parsed("n=24 dim=8 mask=causal ranks=2");
  const Inputs inputs = u1_inputs(problem);
  std::unique_ptr<ReadyRing> ring;
  std::thread([&] { ring = std::make_unique<ReadyRing>(problem, inputs); }).join();
  std::thread([&] { EXPECT_EQ(ring->forward_all(), RINGATTN_OK) << ringattn_last_error(); }).join();
  EXPECT_NEAR(ring->tensors(1).o.get(0, 11, 0, 0), 11.5, 1e-4);
  std::thread([&] { ring.reset(); }).join();
}

TEST(CaseB038, TwoThreadsOnOneHandleAreServedOrBusy) {
  const ProblemLine problem = parsed("n=512 heads=2 dim=64 mask=causal ranks=1");
  ReadyRing ring(problem, random_inputs(problem, 38));
  ASSERT_EQ(ring.forward(0), RINGATTN_OK);
  const std::uint64_t expected = ring.hash();
  std::atomic<int> served{0}, busy{0}, other{0};
  run_threads(2, [&](int) {
    for (int i = 0; i < 200 / kSlowdown; ++i) {
      const ringattn_status status = ring.forward(0);
      ++(status == RINGATTN_OK ? served : status == RINGATTN_ERR_BUSY ? busy : other);
    }
  });
  EXPECT_EQ(other, 0);
  EXPECT_GT(served, 0);
  ASSERT_EQ(ring.forward(0), RINGATTN_OK);
  EXPECT_EQ(ring.hash(), expected);
}

TEST(CaseB043, TwoCommsInOppositeOrderBlockingNamesWhoIsMissing) {
  const ProblemLine problem = parsed("n=24 dim=8 mask=causal ranks=2");
  RingOptions options;
  options.arrival_timeout_ms = 500;
  ReadyRing a(problem, u1_inputs(problem), options), b(problem, u1_inputs(problem), options);
  std::vector<Answer> answers(2);
  run_threads(2, [&](int rank) {
    const Clock::time_point start = Clock::now();
    answers[static_cast<std::size_t>(rank)] = answer_of((rank == 0 ? a : b).forward(rank), start);
  });
  for (int rank = 0; rank < 2; ++rank) {
    const Answer& answer = answers[static_cast<std::size_t>(rank)];
    EXPECT_EQ(answer.status, RINGATTN_ERR_TIMEOUT);
    EXPECT_NE(answer.message.find("rank " + std::to_string(1 - rank)), std::string::npos) << answer.message;
    EXPECT_NE(answer.message.find("forward"), std::string::npos) << answer.message;
    EXPECT_LT(answer.seconds, 2.5);
  }
}

TEST(CaseB043, TwoCommsInOppositeOrderAsynchronousFinish) {
  const ProblemLine problem = parsed("n=200 dim=8 mask=causal ranks=2");
  const Inputs inputs = u1_inputs(problem);
  const CommRing first(2), second(2);
  const PlanRing a(first, problem), b(second, problem);
  run_threads(2, [&](int rank) {
    const auto tensors_a = a.shard(rank, inputs, nullptr), tensors_b = b.shard(rank, inputs, nullptr);
    ringattn_request *request_a = nullptr, *request_b = nullptr;
    const auto start_a = [&] { return ringattn_forward(a.plan(rank), &tensors_a->args, &request_a); };
    const auto start_b = [&] { return ringattn_forward(b.plan(rank), &tensors_b->args, &request_b); };
    EXPECT_EQ(rank == 0 ? start_a() : start_b(), RINGATTN_OK) << ringattn_last_error();
    EXPECT_EQ(rank == 0 ? start_b() : start_a(), RINGATTN_OK) << ringattn_last_error();
    EXPECT_EQ(ringattn_request_wait(rank == 0 ? request_a : request_b, 20000), RINGATTN_OK);
    EXPECT_EQ(ringattn_request_wait(rank == 0 ? request_b : request_a, 20000), RINGATTN_OK);
    ringattn_request_destroy(request_a);
    ringattn_request_destroy(request_b);
    EXPECT_EQ(tensors_a->o.hash(), tensors_b->o.hash());
  });
}

// The same with comms of one context, whose requests advance together: any order of waiting will do.
TEST(CaseB043, RanksOfOneThreadMayBeWaitedForInAnyOrder) {
  const ProblemLine problem = parsed("n=300 dim=8 mask=causal ranks=4");
  for (const bool reversed : {false, true}) {
    ReadyRing ring(problem, u1_inputs(problem));
    std::vector<ringattn_request*> requests(4, nullptr);
    for (int rank = 0; rank < 4; ++rank) {
      ASSERT_EQ(ring.forward(rank, &requests[static_cast<std::size_t>(rank)]), RINGATTN_OK)
          << ringattn_last_error();
    }
    for (int i = 0; i < 4; ++i) {
      ringattn_request*& request = requests[static_cast<std::size_t>(reversed ? 3 - i : i)];
      EXPECT_EQ(ringattn_request_wait(request, 20000), RINGATTN_OK) << ringattn_last_error();
      ringattn_request_destroy(request);
    }
    EXPECT_NEAR(ring.tensors(3).o.get(0, 74, 0, 0), 149.5, 1e-3);
  }
}

}  // namespace
}  // namespace ringattn::support
