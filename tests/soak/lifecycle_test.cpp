// From create to destroy, ten thousand times, whatever state things are in; and much in flight at the same
// time.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/process_counts.h"
#include "tests/e2e/training_ring.h"
#include "tests/ring/host_ring.h"
#include "tests/support/run_ring.h"

namespace ringattn::support {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How a ring lives and dies. Those from kDestroyed on never come to an answer.
enum class Life {
  kBlocking,
  kTested,
  kProgressThread,
  kThreaded,
  kDestroyed,  // an unfinished request of all ranks
  kLonely,     // an unfinished request of one rank, while the other does not come
  kAborted,
  kAbortedLonely,
  kCanceledByPeer
};

// Two that wait for one another are rare: a rank may sleep for some milliseconds before it looks.
Life life_of(int cycle) {
  if (cycle % 100 == 99) return Life::kCanceledByPeer;
  return static_cast<Life>(cycle % static_cast<int>(Life::kCanceledByPeer));
}

RingOptions options_of(Life life) {
  RingOptions options;
  options.progress_thread = life == Life::kProgressThread ? 1 : 0;
  options.threads = life == Life::kThreaded && kLibraryThreads ? 2 : 1;
  return options;
}

class Cycle {
 public:
  Cycle(const ProblemLine& problem, const Inputs& inputs, Life life)
      : comms_(problem.ranks, options_of(life)), ring_(comms_, problem, inputs), life_(life) {}

  // Of forward and backward, or 0 where the ring is killed on the way.
  std::uint64_t run() {
    require_ok(ring_.forward_all(), "forward");
    if (life_ >= Life::kDestroyed) {
      die();
      return 0;
    }
    ringattn_request* request = nullptr;
    const bool blocking = life_ == Life::kBlocking;
    require_ok(ring_.backward_all(blocking ? nullptr : &request), "backward");
    while (life_ == Life::kTested && ringattn_request_test(request) == RINGATTN_IN_PROGRESS) {
    }
    if (!blocking) require_ok(finish(request), "wait");
    return ring_.hash();
  }

 private:
  ringattn_request* start(int rank) {
    ringattn_request* request = nullptr;
    require_ok(ring_.backward(rank, &request), "start of backward");
    return request;
  }

  void die() {
    ringattn_request* request = nullptr;
    if (life_ == Life::kLonely || life_ == Life::kCanceledByPeer || life_ == Life::kAbortedLonely) {
      request = start(0);
      EXPECT_EQ(ringattn_request_test(request), RINGATTN_IN_PROGRESS);
    } else {
      require_ok(ring_.backward_all(&request), "start of backward");
    }
    if (life_ == Life::kCanceledByPeer) {
      ringattn_request_destroy(start(1));
      EXPECT_EQ(ringattn_request_wait(request, -1), RINGATTN_ERR_CANCELED);
    }
    if (life_ == Life::kAborted || life_ == Life::kAbortedLonely) {
      EXPECT_EQ(ringattn_comm_abort(comms_.comm(1), "enough"), RINGATTN_OK);
      if (life_ == Life::kAborted) {
        EXPECT_EQ(ringattn_request_wait(request, -1), RINGATTN_ERR_ABORTED);
      }
    }
    ringattn_request_destroy(request);
  }

  CommRing comms_;
  TrainingRing ring_;
  Life life_;
};

TEST(Lifecycle, TenThousandRingsLeaveNothingBehind) {
  const Watchdog watchdog("ten thousand rings", 300);
  const ProblemLine problem = parse_line("n=5 dim=3 mask=causal pass=backward ranks=2");
  const Inputs inputs = random_inputs(problem, 4);
  const std::uint64_t expected = answer_of_training(problem, inputs);
  const auto cycles = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const Life life = life_of(i);
      const std::uint64_t hash = Cycle(problem, inputs, life).run();
      ASSERT_EQ(hash, life < Life::kDestroyed ? expected : 0u) << "cycle " << i;
    }
  };
  cycles(100);
  const int files = open_files(), threads = thread_count();
  cycles(5000 / kSlowdown);
  const std::size_t growth = heap_growth([&] { cycles(5000 / kSlowdown); });
  if (kOwnAllocator) {
    // The smallest thing that malloc hands out takes 32 bytes: one of them lost in every ninth ring is more.
    EXPECT_LT(growth, 5000u * 3);
  }
  EXPECT_LE(open_files(), files);
  EXPECT_LE(threads_down_to(threads), threads);
}

// Work that is enough for threads of the library, so that they really start.
TEST(Lifecycle, ComputingThreadsEndWithTheirContext) {
  if (!kLibraryThreads) GTEST_SKIP() << "ThreadSanitizer does not know oneTBB's synchronisation";
  const Watchdog watchdog("rings with threads", 300);
  const ProblemLine problem = parse_line("n=300 heads=2 dim=32 mask=causal pass=backward ranks=2");
  const Inputs inputs = random_inputs(problem, 4);
  const std::uint64_t expected = answer_of_training(problem, inputs);
  const auto cycles = [&](int count) {
    for (int i = 0; i < count; ++i) {
      RingOptions options;
      options.threads = 3;
      options.progress_thread = i % 2;
      const CommRing comms(2, options);
      TrainingRing ring(comms, problem, inputs);
      ASSERT_EQ(ring.forward_all(), RINGATTN_OK) << ringattn_last_error();
      ringattn_request* request = nullptr;
      ASSERT_EQ(ring.backward_all(&request), RINGATTN_OK) << ringattn_last_error();
      ASSERT_EQ(finish(request), RINGATTN_OK);
      ASSERT_EQ(ring.hash(), expected) << "cycle " << i;
    }
  };
  cycles(10);
  const int files = open_files(), threads = thread_count();
  const std::size_t growth = heap_growth([&] { cycles(60 / kSlowdown); });
  if (kOwnAllocator) {
    EXPECT_LT(growth, 60u * 16);
  }
  EXPECT_LE(open_files(), files);
  EXPECT_LE(threads_down_to(threads), threads);
}

// Forward and backward of several comms in flight; each thread starts and waits in the opposite order of the
// other.
TEST(Lifecycle, CommsWithForwardAndBackwardInFlightInOppositeOrders) {
  const Watchdog watchdog("comms in flight", 120);
  const std::string line = "n=60 heads=2 dim=16 mask=causal partition=zigzag ranks=2";
  const std::string backward = line + " pass=backward";
  const std::uint64_t expected[] = {answer_of_local(line), answer_of_local(backward)};
  const HostContext context(2);
  HostRingOptions copying, lending;
  copying.transport = "ring_copy";
  copying.script.max_delay_us = 300;
  copying.script.reorder = true;
  lending = copying;
  lending.transport = "ring_lend";
  HostRing a(context, line), b(context, backward), c(context, backward, copying), d(context, line, copying),
      e(context, backward, lending);
  HostRing* const rings[] = {&a, &b, &c, &d, &e};
  constexpr std::size_t kRings = std::size(rings);
  for (int round = 0; round < 20 / kSlowdown; ++round) {
    for (HostRing* ring : rings) ring->poison_outputs();
    run_threads(2, [&](int rank) {
      ringattn_request* requests[kRings];
      const auto place = [&](std::size_t i) { return rank == 0 ? i : kRings - 1 - i; };
      for (std::size_t i = 0; i < kRings; ++i) requests[place(i)] = rings[place(i)]->start(rank);
      for (std::size_t i = 0; i < kRings; ++i) EXPECT_EQ(finish(requests[place(i)]), RINGATTN_OK);
    });
    for (HostRing* ring : rings) {
      const bool is_backward = ring == &b || ring == &c || ring == &e;
      ASSERT_EQ(ring->hash(), expected[is_backward ? 1 : 0]) << "round " << round;
    }
  }
}

// Plans that share a comm run in the order of the calls, forward and backward as they come.
TEST(Lifecycle, PlansOfOneCommAlternateForwardAndBackward) {
  const Watchdog watchdog("plans of one comm", 120);
  const CommRing comms(3);
  std::vector<std::unique_ptr<TrainingRing>> rings;
  std::vector<std::uint64_t> expected;
  for (const char* line : {"n=50 heads=2 dim=16 mask=causal partition=zigzag ranks=3 pass=backward",
                           "q=20 k=70 dim=8 mask=causal,window:30 dtype=bf16 ranks=3 pass=backward",
                           "n=33 dim=24 docs=10,20 partition=striped dtype=f16 ranks=3 pass=backward"}) {
    const ProblemLine problem = parse_line(line);
    const Inputs inputs = random_inputs(problem, 2);
    expected.push_back(answer_of_training(problem, inputs));
    rings.push_back(std::make_unique<TrainingRing>(comms, problem, inputs));
    ASSERT_EQ(rings.back()->forward_all(), RINGATTN_OK) << ringattn_last_error();
    ASSERT_EQ(rings.back()->backward_all(), RINGATTN_OK) << ringattn_last_error();
  }
  run_threads(3, [&](int rank) {
    Random order(8), own(static_cast<std::uint64_t>(rank));  // the order of calls is that of all ranks
    for (int call = 0; call < 200 / kSlowdown; ++call) {
      TrainingRing& ring = *rings[static_cast<std::size_t>(order.below(3))];
      const bool backward = order.below(2) == 0;
      ringattn_request* request = nullptr;
      ringattn_request** const out = own.below(2) == 0 ? &request : nullptr;
      const ringattn_status status = backward ? ring.backward(rank, out) : ring.forward(rank, out);
      ASSERT_EQ(status, RINGATTN_OK) << "call " << call << ": " << ringattn_last_error();
      if (request != nullptr) {
        ASSERT_EQ(finish(request), RINGATTN_OK) << "call " << call;
      }
    }
  });
  for (std::size_t i = 0; i < rings.size(); ++i) EXPECT_EQ(rings[i]->hash(), expected[i]) << "plan " << i;
}

class LifecycleAbort : public ::testing::TestWithParam<const char*> {
 protected:
  HostRingOptions options() const {
    HostRingOptions options;
    options.transport = GetParam();
    options.script.max_delay_us = 500;
    return options;
  }
};

struct Ended {
  ringattn_status status = RINGATTN_OK;
  std::string message;
  Clock::time_point when;
};

// Backward again and again until it fails, so that an abort at any moment finds it in flight.
Ended run_until_it_fails(HostRing& ring, int rank, bool asynchronous) {
  for (;;) {
    ringattn_request* request = nullptr;
    Ended ended;
    ended.status = ring.execute(rank, asynchronous ? &request : nullptr);
    if (ended.status == RINGATTN_OK && asynchronous) ended.status = ringattn_request_wait(request, -1);
    ended.message = ringattn_last_error();
    ended.when = Clock::now();
    if (request != nullptr && ended.status != RINGATTN_OK) {
      EXPECT_EQ(ended.message, ringattn_request_message(request));
    }
    ringattn_request_destroy(request);
    if (ended.status != RINGATTN_OK) return ended;
  }
}

void expect_aborted(const Ended& ended, Clock::time_point aborted) {
  EXPECT_EQ(ended.status, RINGATTN_ERR_ABORTED) << ended.message;
  EXPECT_NE(ended.message.find("maintenance of rank one"), std::string::npos) << ended.message;
  EXPECT_LT(ended.when - aborted, std::chrono::seconds(1));
}

TEST_P(LifecycleAbort, FromAThirdThreadEndsBackwardOnEveryRank) {
  const Watchdog watchdog("abort from a third thread", 120);
  const std::string line = "n=120 heads=2 dim=32 mask=causal partition=zigzag ranks=3 pass=backward";
  Random random(3);
  int threads = 0;
  for (int round = 0; round < 12 / kSlowdown + 1; ++round) {
    {
      const HostContext context(2, round % 3 == 2 ? 1 : 0);
      HostRing ring(context, line, options());
      std::vector<Ended> ended(3);
      const milliseconds delay(random.below(40));
      Clock::time_point aborted;
      run_threads(4, [&](int thread) {
        if (thread < 3) {
          ended[static_cast<std::size_t>(thread)] = run_until_it_fails(ring, thread, round % 2 == 1);
          return;
        }
        std::this_thread::sleep_for(delay);
        aborted = Clock::now();
        EXPECT_EQ(ringattn_comm_abort(ring.comm(1), "maintenance of rank one"), RINGATTN_OK);
      });
      for (const Ended& one : ended) expect_aborted(one, aborted);
      for (int rank = 0; rank < 3; ++rank) {
        EXPECT_EQ(ringattn_comm_status(ring.comm(rank)), RINGATTN_ERR_ABORTED);
        EXPECT_EQ(ring.execute(rank), RINGATTN_ERR_ABORTED) << "every later call returns the same";
      }
    }
    if (round == 0) threads = thread_count();
  }
  EXPECT_LE(threads_down_to(threads), threads);
}

// One rank has not come: the others wait for it in the agreement.
TEST_P(LifecycleAbort, EndsRanksThatWaitForAnother) {
  const Watchdog watchdog("abort of waiting ranks", 60);
  const HostContext context(1);
  HostRing ring(context, "n=40 dim=16 mask=causal ranks=3 pass=backward", options());
  std::vector<Ended> ended(2);
  Clock::time_point aborted;
  run_threads(3, [&](int thread) {
    if (thread < 2) {
      ended[static_cast<std::size_t>(thread)] = run_until_it_fails(ring, thread, thread == 1);
      return;
    }
    std::this_thread::sleep_for(milliseconds(30));
    aborted = Clock::now();
    EXPECT_EQ(ringattn_comm_abort(ring.comm(2), "maintenance of rank one"), RINGATTN_OK);
  });
  for (const Ended& one : ended) expect_aborted(one, aborted);
}

INSTANTIATE_TEST_SUITE_P(Transports, LifecycleAbort, ::testing::Values("local", "ring_lend", "ring_copy"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ringattn::support
