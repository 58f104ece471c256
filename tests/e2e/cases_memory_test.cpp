// Public bug reports about memory that creeps up over many calls and rings (B050, B051, B060).
#include <gtest/gtest.h>

#include "tests/e2e/closed_forms.h"
#include "tests/e2e/process_counts.h"
#include "tests/support/ready_ring.h"

namespace ringattn::support {
namespace {

// Values of a call that covers the first `length` tokens of a row.
struct LengthCall {
  explicit LengthCall(std::int64_t length) : cu{0, length} {
    call = RINGATTN_STRUCT(ringattn_call);
    call.flags = RINGATTN_CALL_SEQUENCES;
    call.sequences = 1;
    call.cu_q = cu;
  }
  LengthCall(const LengthCall&) = delete;
  LengthCall& operator=(const LengthCall&) = delete;
  std::int64_t cu[2];
  ringattn_call call;
};

void run_with_length(ReadyRing& ring, std::int64_t length) {
  const LengthCall values(length);
  for (int rank = 0; rank < ring.comms().ranks(); ++rank) ring.tensors(rank).args.call = &values.call;
  ASSERT_EQ(ring.forward_all(), RINGATTN_OK) << ringattn_last_error();
}

TEST(CaseB050, WarmCallsHoldNoMoreMemory) {
  if (!kOwnAllocator) GTEST_SKIP() << "a sanitizer's allocator does not tell what is in use";
  const ProblemLine problem =
      parsed("n=512 heads=4 kv_heads=2 dim=64 dtype=bf16 mask=causal partition=zigzag ranks=4");
  ReadyRing ring(problem, random_inputs(problem, 50));
  for (int warm = 0; warm < 3; ++warm) ASSERT_EQ(ring.forward_all(), RINGATTN_OK) << ringattn_last_error();
  const auto hundred = [&] {
    for (int call = 0; call < 100; ++call) ring.forward_all();
  };
  EXPECT_EQ(heap_growth(hundred), 0u);
  EXPECT_EQ(std::string(ringattn_last_error()), "");
}

TEST(CaseB050, CallerWorkspaceIsAllTheMemory) {
  const ProblemLine problem = parsed("n=256 heads=2 dim=64 mask=causal ranks=3");
  RingOptions options;
  options.plan_flags = RINGATTN_PLAN_CALLER_WORKSPACE;
  const Inputs inputs = random_inputs(problem, 50);
  ReadyRing ring(problem, inputs, options), own(problem, inputs);
  ASSERT_EQ(own.forward_all(), RINGATTN_OK) << ringattn_last_error();
  EXPECT_EQ(ring.forward_all(), RINGATTN_ERR_INVALID_ARGUMENT) << "no workspace was given";
  std::vector<std::vector<std::byte>> memory(3);
  constexpr std::byte kGuard{0x5A};
  for (int rank = 0; rank < 3; ++rank) {
    const ringattn_plan_info info = ring.plans().info(rank, nullptr);
    std::vector<std::byte>& bytes = memory[static_cast<std::size_t>(rank)];
    ASSERT_GT(info.workspace_alignment, 0u);
    bytes.assign(info.workspace_bytes + 2 * info.workspace_alignment + 64, kGuard);
    const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
    const std::uintptr_t aligned =
        (address + info.workspace_alignment - 1) / info.workspace_alignment * info.workspace_alignment;
    ring.tensors(rank).args.workspace = bytes.data() + (aligned - address);
    ring.tensors(rank).args.workspace_bytes = info.workspace_bytes;
  }
  ASSERT_EQ(ring.forward_all(), RINGATTN_OK) << ringattn_last_error();
  EXPECT_EQ(ring.hash(), own.hash());
  for (int rank = 0; rank < 3; ++rank) {
    const std::byte* end =
        static_cast<std::byte*>(ring.tensors(rank).args.workspace) + ring.tensors(rank).args.workspace_bytes;
    for (int i = 0; i < 64; ++i)
      ASSERT_EQ(end[i], kGuard) << "written " << i << " bytes beyond the workspace";
  }
  --ring.tensors(1).args.workspace_bytes;
  EXPECT_EQ(ring.forward_all(), RINGATTN_ERR_INVALID_ARGUMENT) << "one byte too few";
}

TEST(CaseB051, LengthsThatCycleDoNotAddUp) {
  const ProblemLine problem = parsed("n=1024 heads=2 dim=32 mask=causal partition=striped ranks=3");
  ReadyRing ring(problem, random_inputs(problem, 51));
  const auto cycle = [&](int rounds) {
    for (int round = 0; round < rounds; ++round) run_with_length(ring, 64 + 37 * round % 961);
  };
  cycle(50);
  const int files = open_files(), threads = thread_count();
  const std::size_t growth = heap_growth([&] { cycle(500 / kSlowdown); });
  if (kOwnAllocator) {
    EXPECT_EQ(growth, 0u);
  }
  EXPECT_EQ(open_files(), files);
  EXPECT_LE(threads_down_to(threads), threads);
}

TEST(CaseB051, ThreeHundredRingsLeaveNothingBehind) {
  const ProblemLine problem = parsed("n=48 heads=2 dim=16 mask=causal ranks=4 threads=2");
  const Inputs inputs = random_inputs(problem, 51);
  RingOptions options;
  options.threads = kLibraryThreads ? 2 : 1;
  options.progress_thread = 1;
  const auto rounds = [&](int count) {
    for (int round = 0; round < count; ++round) {
      ReadyRing ring(problem, inputs, options);
      ASSERT_EQ(ring.forward_all(), RINGATTN_OK) << ringattn_last_error();
    }
  };
  rounds(20);
  const int files = open_files(), threads = thread_count();
  const std::size_t growth = heap_growth([&] { rounds(300 / kSlowdown); });
  if (kOwnAllocator) {
    // The smallest thing that malloc hands out takes 32 bytes: one of them lost in every ring would be twice this.
    EXPECT_LT(growth, 300u * 16);
  }
  EXPECT_LE(open_files(), files);
  EXPECT_LE(threads_down_to(threads), threads);
}

TEST(CaseB060, RandomLengthsHoldNoMoreThanTheLargest) {
  const ProblemLine problem = parsed("n=2048 dim=16 mask=causal,window:64 partition=zigzag ranks=2");
  ReadyRing ring(problem, random_inputs(problem, 60));
  run_with_length(ring, 2048);
  const std::uint64_t plan_bytes = ring.plans().info(0, nullptr).plan_bytes;
  Random random(60);
  const std::size_t growth = heap_growth([&] {
    for (int call = 0; call < 500 / kSlowdown; ++call) run_with_length(ring, 1 + random.below(2048));
  });
  if (kOwnAllocator) {
    EXPECT_EQ(growth, 0u);
  }
  EXPECT_EQ(ring.plans().info(0, nullptr).plan_bytes, plan_bytes);
}

}  // namespace
}  // namespace ringattn::support
