// fork() with everything inherited (D15, B040): the child hears FORKED at once from every function that takes
// a handle, computes rightly with a context of its own, and the parent goes on as if nothing had been.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "tests/e2e/training_ring.h"
#include "tests/ring/host_ring.h"
#include "tests/support/verify.h"

namespace ringattn::support {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kProblem =
    "n=60 heads=4 kv_heads=2 dim=16 mask=causal partition=zigzag ranks=2 pass=backward";

// Runs `body` in a child. Its value is the child's exit code: 0 = all right.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);  // a child that hangs must not outlive the test
    _exit(body());
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// All that a parent may hold when it forks.
struct Held {
  CommRing comms{2};
  ProblemLine problem = parse_line(kProblem);
  Inputs inputs = random_inputs(problem, 40);
  TrainingRing ring{comms, problem, inputs};
  ringattn_request* request = nullptr;
};

struct Call {
  const char* name;
  std::function<ringattn_status()> run;
};

std::vector<Call> calls_of_plans(Held& held) {
  ringattn_plan* const plan = held.ring.plans().plan(0);
  RankTensors& t = held.ring.tensors(0);
  static ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
  static ringattn_times times = RINGATTN_STRUCT(ringattn_times);
  static std::uint64_t count = 0;
  static std::int64_t length = 0;
  return {
      {"forward", [&held] { return held.ring.forward(0); }},
      {"forward_array", [&held] { return held.ring.forward_all(); }},
      {"backward", [&held] { return held.ring.backward(0); }},
      {"backward with a request", [&held] { return held.ring.backward(1, &held.request); }},
      {"backward_array", [&held] { return held.ring.backward_all(); }},
      {"get_info", [=] { return ringattn_plan_get_info(plan, nullptr, &info); }},
      {"get_times", [=] { return ringattn_plan_get_times(plan, &times); }},
      {"describe", [=] { return ringattn_plan_describe(plan, nullptr, 0, nullptr, 0, &count); }},
      {"trace", [=] { return ringattn_plan_trace(plan, nullptr, 0, &count, nullptr); }},
      {"local_length", [=] { return ringattn_plan_local_length(plan, 0, 0, 0, nullptr, &length); }},
      {"positions",
       [=] { return ringattn_plan_positions(plan, 0, 0, 0, nullptr, nullptr, nullptr, 0, &count); }},
      {"shard", [=, &t] { return ringattn_shard(plan, 0, 0, nullptr, &t.q_view, &t.d_q_view); }},
      {"unshard", [=, &t] { return ringattn_unshard(plan, 0, 0, nullptr, &t.q_view, &t.d_q_view); }},
  };
}

std::vector<Call> calls_of_others(Held& held) {
  ringattn_context* const context = held.comms.context();
  ringattn_comm* const comm = held.comms.comm(0);
  const ringattn_plan_desc* const descs = held.ring.plans().values().descs().data();
  RankTensors& t = held.ring.tensors(0);
  static ringattn_comm_desc comm_desc = RINGATTN_STRUCT(ringattn_comm_desc);
  comm_desc.world_size = 2;
  static ringattn_comm* comms[2];
  static ringattn_plan* plans[2];
  return {
      {"request_test", [&held] { return ringattn_request_test(held.request); }},
      {"request_wait", [&held] { return ringattn_request_wait(held.request, -1); }},
      {"request_cancel", [&held] { return ringattn_request_cancel(held.request); }},
      {"comm_create_local", [=] { return ringattn_comm_create_local(context, &comm_desc, comms); }},
      {"comm_rank", [=] { return ringattn_comm_rank(comm, nullptr, nullptr); }},
      {"comm_abort", [=] { return ringattn_comm_abort(comm, "the child's"); }},
      {"comm_status", [=] { return ringattn_comm_status(comm); }},
      {"supports", [=] { return ringattn_supports(context, descs); }},
      {"preview", [=] { return ringattn_plan_preview(context, descs, 0, 2, nullptr, plans); }},
      {"plan_create", [=] { return ringattn_plan_create(comm, descs, plans); }},
      {"plan_create_array",
       [=, &held] { return ringattn_plan_create_array(2, held.comms.comms(), descs, plans); }},
      {"merge",
       [=, &t] {
         return ringattn_merge(context, &t.o_view, &t.lse_view, &t.o_view, &t.lse_view, &t.o_view,
                               &t.lse_view);
       }},
  };
}

// The child's part: its code is the number of the call that answered otherwise, 100 where they took long.
int every_call_is_forked(Held& held) {
  const Clock::time_point start = Clock::now();
  ringattn_request* const kept = held.request;
  int number = 0;
  for (const std::vector<Call>& calls : {calls_of_others(held), calls_of_plans(held)}) {
    for (const Call& call : calls) {
      ++number;
      const ringattn_status status = call.run();
      if (status == RINGATTN_ERR_FORKED && *ringattn_last_error() != 0) continue;
      std::fprintf(stderr, "%s in the child: %s\n", call.name, ringattn_status_name(status));
      return number;
    }
  }
  ringattn_request_destroy(kept);  // all of them do nothing
  for (int rank = 0; rank < 2; ++rank) {
    ringattn_plan_destroy(held.ring.plans().plan(rank));
    ringattn_comm_destroy(held.comms.comm(rank));
  }
  ringattn_context_destroy(held.comms.context());
  return Clock::now() - start < std::chrono::seconds(1) ? 0 : 100;
}

// The same problem by a context of the child's own, against the oracle and the parent's bits.
int computes_rightly(const ProblemLine& problem, const Inputs& inputs, std::uint64_t expected) {
  if (answer_of_training(problem, inputs) != expected) return 101;
  RunOptions options;
  options.drive = Drive::kThreads;
  const VerifyResult result = verify_inputs(problem, inputs, options);
  if (!result.ok) std::fprintf(stderr, "%s\n", to_text(result).c_str());
  return result.ok ? 0 : 102;
}

TEST(CaseB040, AChildGetsForkedFromEveryCallAndItsOwnContextWorks) {
  const Watchdog watchdog("fork", 120);
  const std::uint64_t expected = [] {
    const ProblemLine problem = parse_line(kProblem);
    return answer_of_training(problem, random_inputs(problem, 40));
  }();
  Held held;
  ASSERT_EQ(held.ring.forward_all(), RINGATTN_OK) << ringattn_last_error();
  ASSERT_EQ(held.ring.backward_all(&held.request), RINGATTN_OK) << ringattn_last_error();
  const int code = in_child([&] {
    const int forked = every_call_is_forked(held);
    return forked != 0 ? forked : computes_rightly(held.problem, held.inputs, expected);
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(finish(held.request), RINGATTN_OK) << "the parent's request was in flight all the time";
  EXPECT_EQ(held.ring.hash(), expected);
  held.ring.poison_outputs();
  ASSERT_EQ(held.ring.forward_all(), RINGATTN_OK) << ringattn_last_error();
  ASSERT_EQ(held.ring.backward_all(), RINGATTN_OK) << ringattn_last_error();
  EXPECT_EQ(held.ring.hash(), expected);
}

// Ranks on threads of the parent are in the middle of backward, with a progress thread, while it forks.
TEST(CaseB040, ForkInTheMiddleOfBackwardsOfOtherThreads) {
  const Watchdog watchdog("fork beside running ranks", 120);
  const ProblemLine problem = parse_line(kProblem);
  const Inputs inputs = random_inputs(problem, 40);
  const std::uint64_t expected = answer_of_training(problem, inputs);
  RingOptions options;
  options.progress_thread = 1;
  const CommRing comms(2, options);
  TrainingRing ring(comms, problem, inputs);
  ASSERT_EQ(ring.forward_all(), RINGATTN_OK) << ringattn_last_error();
  std::vector<int> codes;
  run_threads(3, [&](int thread) {
    for (int i = 0; thread < 2 && i < 200; ++i) {
      ASSERT_EQ(ring.backward(thread), RINGATTN_OK) << ringattn_last_error();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    // Only what needs no lock of the test's own: another thread may have held it.
    for (int i = 0; thread == 2 && i < 10; ++i) {
      codes.push_back(in_child([&] {
        if (ring.backward(0) != RINGATTN_ERR_FORKED) return 1;
        if (ringattn_comm_status(comms.comm(1)) != RINGATTN_ERR_FORKED) return 2;
        return ringattn_comm_abort(comms.comm(0), "the child's") == RINGATTN_ERR_FORKED ? 0 : 3;
      }));
    }
  });
  EXPECT_EQ(codes, std::vector<int>(10, 0));
  EXPECT_EQ(ring.hash(), expected);
}

// A child that only sleeps and ends, as a data loader's worker does.
TEST(CaseB040, AChildThatOnlyEndsLeavesTheParentRight) {
  Held held;
  const std::uint64_t expected = answer_of_training(held.problem, held.inputs);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(held.ring.forward_all(), RINGATTN_OK) << ringattn_last_error();
    EXPECT_EQ(in_child([] {
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
                return 0;
              }),
              0);
    ASSERT_EQ(held.ring.backward_all(), RINGATTN_OK) << ringattn_last_error();
    EXPECT_EQ(held.ring.hash(), expected);
    held.ring.poison_outputs();
  }
}

}  // namespace
}  // namespace ringattn::support
