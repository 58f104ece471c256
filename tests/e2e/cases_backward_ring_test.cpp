// Public bug reports about rings and memory, for backward (parts b and c of
// shared/cases/public-bug-reports.md).
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/closed_gradients.h"
#include "tests/e2e/process_counts.h"
#include "tests/e2e/training_ring.h"
#include "tests/support/spawn.h"

namespace ringattn::support {
namespace {

// Transfers of each rank in one backward.
std::vector<int> transfers_of(const std::string& line) {
  const ProblemLine problem = parsed(std::string(line).append(" pass=backward"));
  RunOptions options;
  options.trace = true;
  const RunResult run = run_ring(problem, u1_with_d_o(problem), options);
  EXPECT_TRUE(run.ok()) << run.error();
  std::vector<int> counts;
  for (const std::vector<ringattn_event>& events : run.events) {
    int count = 0;
    for (const ringattn_event& event : events)
      count += event.kind == RINGATTN_EVENT_SEND || event.kind == RINGATTN_EVENT_RECEIVE ? 1 : 0;
    counts.push_back(count);
  }
  return counts;
}

TEST(CaseB028Backward, ManyDocumentsDoNotMeanManyMessages) {
  std::string docs = "8";
  for (int i = 1; i < 512; ++i) docs.append(",8");
  // Striped, so that every document spans all ranks.
  const std::vector<int> of_many = transfers_of(
      std::string("n=4096 heads=16 dim=4 mask=causal partition=striped ranks=4 docs=").append(docs));
  const std::vector<int> of_one = transfers_of("n=512 dim=4 mask=causal partition=striped ranks=4");
  ASSERT_EQ(of_many.size(), 4u);
  EXPECT_EQ(of_many, of_one);
  for (const int count : of_one)
    EXPECT_LE(count, 2 * (3 + 4)) << "a block and a gradient a step, each sent and received";
}

TEST(CaseB029Backward, SixteenRanksManyTrainingStepsWithRandomSleeps) {
  const ProblemLine problem =
      parsed("n=64 dim=16 mask=causal scale=1 partition=zigzag ranks=16 pass=backward");
  const CommRing comms(16);
  TrainingRing ring(comms, problem, u1_with_d_o(problem));
  std::atomic<int> wrong{0}, failed{0};
  const auto near = [](double value, double expected) {
    return std::fabs(value - expected) <= 2e-5 * std::max(1.0, std::fabs(expected));
  };
  const auto step = [&](int rank, const std::vector<std::int64_t>& index) {
    RankTensors& t = ring.tensors(rank);
    t.poison_outputs();
    if (ring.forward(rank) != RINGATTN_OK || ring.backward(rank) != RINGATTN_OK) ++failed;
    for (std::size_t i = 0; i < index.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      if (!near(t.o.get(0, row, 0, 0), static_cast<double>(index[i]) / 2)) ++wrong;
      if (!near(t.d_q.get(0, row, 0, 0), u1_causal_d_q(index[i]))) ++wrong;
      if (!near(t.d_v.get(0, row, 0, 0), u1_causal_d_v(index[i], 64))) ++wrong;
      if (t.d_k.get(0, row, 0, 0) != 0) ++wrong;
    }
  };
  const auto rank_thread = [&](int rank) {
    Random random(static_cast<std::uint64_t>(rank));
    std::vector<std::int64_t> index(8, 0);
    std::uint64_t count = 0;
    require_ok(ringattn_plan_positions(ring.plans().plan(rank), RINGATTN_AXIS_QUERY, rank, 0, nullptr,
                                       index.data(), nullptr, index.size(), &count),
               "ringattn_plan_positions");
    index.resize(count);
    for (int round = 0; round < 150 / kSlowdown; ++round) {
      std::this_thread::sleep_for(std::chrono::microseconds(random.below(2000)));
      const Watchdog watchdog(std::string("a step of rank ").append(std::to_string(rank)), 30);
      step(rank, index);
    }
  };
  run_threads(16, rank_thread, 300, "16 ranks");
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(wrong, 0);
}

TEST(CaseB035Backward, EmptyShardsDoNotHang) {
  for (const Drive drive : {Drive::kArray, Drive::kThreads}) {
    RunOptions options;
    options.drive = drive;
    expect_causal_gradients("n=8 dim=8 partition=explicit:4/0/4/0 ranks=4", options);
    expect_causal_gradients("n=8 dim=8 partition=explicit:0/4/0/4 ranks=4", options);
  }
}

TEST(CaseB058Backward, RankWithoutTokensStillTakesPart) {
  expect_causal_gradients("n=5 dim=8 partition=explicit:2/2/1/0 ranks=4");
  expect_causal_gradients("n=5 dim=8 partition=explicit:2/2/0/1 ranks=4");
  expect_causal_gradients("n=2 dim=8 ranks=7");
}

TEST(CaseB054Backward, ManyBatchRowsOfOneToken) {
  for (const char* ranks : {"1", "2"}) {
    const ProblemLine problem = parsed(std::string("batch=4099 heads=2 dim=8 dtype=bf16 pass=backward n=")
                                           .append(ranks)
                                           .append(" ranks=")
                                           .append(ranks));
    Inputs inputs = zero_inputs(problem);
    set_channel0(inputs.v, [](std::int64_t b, std::int64_t) { return static_cast<double>(b % 97); });
    set_d_o(inputs, problem.queries);
    const RunResult run = expect_gradients(
        problem, inputs, {zero_gradient, zero_gradient, [](std::int64_t, std::int64_t) { return 1.0; }});
    ASSERT_TRUE(run.ok());
    for (const std::int64_t b : {0, 2049, 4098}) EXPECT_EQ(run.d_v.get(b, 0, 1, 0), 1.0);
  }
}

void expect_steps(TrainingRing& ring, int count) {
  for (int i = 0; i < count; ++i) {
    ASSERT_EQ(ring.forward_all(), RINGATTN_OK) << ringattn_last_error();
    ASSERT_EQ(ring.backward_all(), RINGATTN_OK) << ringattn_last_error();
  }
}

TEST(CaseB050Backward, WarmStepsHoldNoMoreMemory) {
  if (!kOwnAllocator) GTEST_SKIP() << "a sanitizer's allocator does not tell what is in use";
  const ProblemLine problem =
      parsed("n=256 heads=4 kv_heads=2 dim=64 dtype=bf16 mask=causal partition=zigzag ranks=4 pass=backward");
  const CommRing comms(4);
  TrainingRing ring(comms, problem, random_inputs(problem, 50));
  expect_steps(ring, 3);
  EXPECT_EQ(heap_growth([&] { expect_steps(ring, 100); }), 0u);
}

// Workspaces of the caller's, each with a guard behind it.
class Workspaces {
 public:
  Workspaces(TrainingRing& ring, const PlanRing& plans) : memory_(static_cast<std::size_t>(ring.ranks())) {
    for (int rank = 0; rank < ring.ranks(); ++rank) {
      const ringattn_plan_info info = plans.info(rank, nullptr);
      std::vector<std::byte>& bytes = memory_[static_cast<std::size_t>(rank)];
      bytes.assign(info.workspace_bytes + info.workspace_alignment + kGuardBytes, kGuard);
      const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
      const std::uintptr_t to_aligned = (info.workspace_alignment - address % info.workspace_alignment) %
                                        static_cast<std::uintptr_t>(info.workspace_alignment);
      starts_.push_back(bytes.data() + to_aligned);
      bytes_.push_back(info.workspace_bytes);
    }
  }
  template <typename Args>
  void give(int rank, Args& args) const {
    args.workspace = starts_[static_cast<std::size_t>(rank)];
    args.workspace_bytes = bytes_[static_cast<std::size_t>(rank)];
  }
  bool guards_intact() const {
    for (std::size_t rank = 0; rank < starts_.size(); ++rank) {
      for (std::size_t i = 0; i < kGuardBytes; ++i) {
        if (starts_[rank][bytes_[rank] + i] != kGuard) return false;
      }
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuardBytes = 64;
  static constexpr std::byte kGuard{0x5A};
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::byte*> starts_;
  std::vector<std::uint64_t> bytes_;
};

// The workspace that the plan asks for is enough for either pass, on every transport's own terms.
TEST(CaseB050Backward, CallerWorkspaceIsAllTheMemory) {
  const ProblemLine problem = parsed("n=200 heads=2 dim=64 mask=causal ranks=3 pass=backward");
  const Inputs inputs = random_inputs(problem, 50);
  const std::uint64_t expected = answer_of_training(problem, inputs);
  const CommRing comms(3);
  TrainingRing ring(comms, problem, inputs);
  const PlanRing plans(comms, problem, RINGATTN_PLAN_BACKWARD | RINGATTN_PLAN_CALLER_WORKSPACE);
  const Workspaces workspaces(ring, plans);
  std::vector<ringattn_forward_args> forward;
  std::vector<ringattn_backward_args> backward;
  for (int rank = 0; rank < 3; ++rank) {
    forward.push_back(ring.tensors(rank).args);
    backward.push_back(ring.tensors(rank).backward_args);
  }
  EXPECT_EQ(ringattn_backward_array(3, plans.plans(), backward.data(), nullptr),
            RINGATTN_ERR_INVALID_ARGUMENT)
      << "no workspace was given";
  for (int rank = 0; rank < 3; ++rank) {
    workspaces.give(rank, forward[static_cast<std::size_t>(rank)]);
    workspaces.give(rank, backward[static_cast<std::size_t>(rank)]);
  }
  ASSERT_EQ(ringattn_forward_array(3, plans.plans(), forward.data(), nullptr), RINGATTN_OK)
      << ringattn_last_error();
  ASSERT_EQ(ringattn_backward_array(3, plans.plans(), backward.data(), nullptr), RINGATTN_OK)
      << ringattn_last_error();
  EXPECT_EQ(ring.hash(), expected);
  EXPECT_TRUE(workspaces.guards_intact());
  --backward[1].workspace_bytes;
  EXPECT_EQ(ringattn_backward_array(3, plans.plans(), backward.data(), nullptr),
            RINGATTN_ERR_INVALID_ARGUMENT)
      << "one byte too few";
}

void step_with_length(TrainingRing& ring, std::int64_t length) {
  const std::int64_t cu[] = {0, length};
  ringattn_call call = RINGATTN_STRUCT(ringattn_call);
  call.flags = RINGATTN_CALL_SEQUENCES;
  call.sequences = 1;
  call.cu_q = cu;
  for (int rank = 0; rank < ring.ranks(); ++rank)
    ring.tensors(rank).args.call = ring.tensors(rank).backward_args.call = &call;
  expect_steps(ring, 1);
}

TEST(CaseB051Backward, LengthsThatCycleDoNotAddUp) {
  const ProblemLine problem = parsed("n=1024 dim=16 mask=causal partition=striped ranks=3 pass=backward");
  const CommRing comms(3);
  TrainingRing ring(comms, problem, random_inputs(problem, 51));
  const auto cycle = [&](int rounds) {
    for (int round = 0; round < rounds; ++round) step_with_length(ring, 64 + 37 * round % 961);
  };
  cycle(50);
  const int files = open_files(), threads = thread_count();
  const std::uint64_t plan_bytes = ring.plans().info(0, nullptr).plan_bytes;
  const std::size_t growth = heap_growth([&] { cycle(500 / kSlowdown); });
  if (kOwnAllocator) {
    EXPECT_EQ(growth, 0u);
  }
  EXPECT_EQ(ring.plans().info(0, nullptr).plan_bytes, plan_bytes);
  EXPECT_EQ(open_files(), files);
  EXPECT_LE(threads_down_to(threads), threads);
}

}  // namespace
}  // namespace ringattn::support
