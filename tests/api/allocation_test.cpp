// A warm forward or backward allocates nothing: every operator new of the program is counted while it runs.
#include <gtest/gtest.h>

#include "tests/e2e/training_ring.h"
#include "tests/ring/host_ring.h"
#include "tests/support/count_new.h"

namespace ringattn::support {
namespace {

class ApiAllocation : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!counts_new()) GTEST_SKIP() << "AddressSanitizer owns operator new";
  }

  template <typename Body>
  static std::uint64_t count(Body body) {
    const std::uint64_t before = news_of_this_thread();
    body();
    return news_of_this_thread() - before;
  }

  // One thread of the library's own, as the promise is for.
  static RingOptions one_thread() { return {}; }
};

TEST_F(ApiAllocation, TheCounterCounts) {
  EXPECT_EQ(count([] {
              void* volatile seen = ::operator new(8);  // a call that no optimiser may drop
              ::operator delete(seen);
            }),
            1u);
}

TEST_F(ApiAllocation, AWarmForwardOfOneRankAllocatesNothing) {
  for (const char* line : {"n=64 heads=2 dim=32 mask=causal ranks=1",
                           "n=64 batch=2 heads=4 kv_heads=2 dim=40 dtype=bf16 ranks=1",
                           "n=64 dim=32 mask=causal docs=20,30 ranks=1"}) {
    const ProblemLine problem = parse_line(line);
    ReadyRing ring(problem, random_inputs(problem, 1), one_thread());
    for (int warm = 0; warm < 2; ++warm) require_ok(ring.forward(0), "warm forward");
    ringattn_status status = RINGATTN_ERR_INTERNAL;
    EXPECT_EQ(count([&] { status = ring.forward(0); }), 0u) << line;
    EXPECT_EQ(status, RINGATTN_OK);
  }
}

TEST_F(ApiAllocation, AWarmArrayOfFourRanksAllocatesNothing) {
  for (const char* line : {"n=64 heads=2 dim=32 mask=causal partition=zigzag ranks=4",
                           "n=64 dim=32 docs=20,30 partition=striped ranks=4"}) {
    const ProblemLine problem = parse_line(line);
    ReadyRing ring(problem, random_inputs(problem, 1), one_thread());
    std::vector<ringattn_forward_args> args;
    for (int rank = 0; rank < 4; ++rank) args.push_back(ring.tensors(rank).args);
    const auto forward = [&] {
      return ringattn_forward_array(4, ring.plans().plans(), args.data(), nullptr);
    };
    for (int warm = 0; warm < 3; ++warm) require_ok(forward(), "warm forward");
    ringattn_status status = RINGATTN_ERR_INTERNAL;
    EXPECT_EQ(count([&] { status = forward(); }), 0u) << line;
    EXPECT_EQ(status, RINGATTN_OK);
  }
}

// Lengths that change cut the problem anew, in the memory that the plan has.
TEST_F(ApiAllocation, NewLengthsInAWarmPlanAllocateNothing) {
  const ProblemLine problem = parse_line("n=64 dim=32 mask=causal docs=20,30 max_docs=4 ranks=1");
  ReadyRing ring(problem, random_inputs(problem, 1), one_thread());
  const std::int64_t first[] = {0, 64}, second[] = {0, 1, 5, 40, 64};
  ringattn_call call = RINGATTN_STRUCT(ringattn_call);
  call.flags = RINGATTN_CALL_SEQUENCES;
  ring.tensors(0).args.call = &call;
  const auto forward = [&](std::int64_t sequences, const std::int64_t* cu) {
    call.sequences = sequences;
    call.cu_q = cu;
    return ring.forward(0);
  };
  require_ok(forward(4, second), "warm forward");
  EXPECT_EQ(count([&] { forward(1, first); }), 0u);
  EXPECT_EQ(count([&] { forward(4, second); }), 0u);
}

TEST_F(ApiAllocation, AWarmBackwardOfOneRankAllocatesNothing) {
  for (const char* line : {"n=64 heads=2 dim=32 mask=causal ranks=1",
                           "n=64 batch=2 heads=4 kv_heads=2 dim=40 dtype=bf16 ranks=1",
                           "n=64 batch=2 heads=4 kv_heads=2 dim=40 dim_v=24 dtype=f16 ranks=1",
                           "n=64 dim=32 mask=causal docs=20,30 ranks=1"}) {
    const ProblemLine problem = parse_line(std::string(line).append(" pass=backward"));
    const CommRing comms(1);
    TrainingRing ring(comms, problem, random_inputs(problem, 1));
    require_ok(ring.forward(0), "forward");
    for (int warm = 0; warm < 2; ++warm) require_ok(ring.backward(0), "warm backward");
    ringattn_status status = RINGATTN_ERR_INTERNAL;
    EXPECT_EQ(count([&] { status = ring.backward(0); }), 0u) << line;
    EXPECT_EQ(status, RINGATTN_OK);
  }
}

TEST_F(ApiAllocation, AWarmBackwardOfFourRanksAllocatesNothing) {
  for (const char* line : {"n=64 heads=2 dim=32 mask=causal partition=zigzag ranks=4",
                           "n=64 heads=4 kv_heads=2 dim=32 dtype=bf16 mask=causal,window:9 ranks=4",
                           "n=64 dim=32 docs=20,30 partition=striped ranks=4"}) {
    const ProblemLine problem = parse_line(std::string(line).append(" pass=backward"));
    const CommRing comms(4);
    TrainingRing ring(comms, problem, random_inputs(problem, 1));
    require_ok(ring.forward_all(), "forward");
    for (int warm = 0; warm < 3; ++warm) require_ok(ring.backward_all(), "warm backward");
    ringattn_status status = RINGATTN_ERR_INTERNAL;
    EXPECT_EQ(count([&] { status = ring.backward_all(); }), 0u) << line;
    EXPECT_EQ(status, RINGATTN_OK);
  }
}

// The schedules of both passes take turns in the memory that the plan has.
TEST_F(ApiAllocation, ForwardAndBackwardInTurnAllocateNothing) {
  for (const char* line :
       {"n=64 heads=2 dim=32 mask=causal ranks=1", "n=64 heads=2 dim=32 mask=causal partition=zigzag ranks=4",
        "q=40 k=64 dim=16 docs=20,10 docs_k=30,20 ranks=3"}) {
    const ProblemLine problem = parse_line(std::string(line).append(" pass=backward"));
    const CommRing comms(problem.ranks);
    TrainingRing ring(comms, problem, random_inputs(problem, 1));
    const auto step = [&] {
      require_ok(ring.forward_all(), "forward");
      require_ok(ring.backward_all(), "backward");
    };
    for (int warm = 0; warm < 2; ++warm) step();
    EXPECT_EQ(count([&] {
                for (int i = 0; i < 5; ++i) step();
              }),
              0u)
        << line;
  }
}

// New lengths cut the problem anew for either pass.
TEST_F(ApiAllocation, NewLengthsInAWarmBackwardAllocateNothing) {
  const ProblemLine problem =
      parse_line("n=64 dim=32 mask=causal docs=20,30 max_docs=4 ranks=2 pass=backward");
  const CommRing comms(2);
  TrainingRing ring(comms, problem, random_inputs(problem, 1));
  const std::int64_t first[] = {0, 64}, second[] = {0, 1, 5, 40, 64};
  ringattn_call call = RINGATTN_STRUCT(ringattn_call);
  call.flags = RINGATTN_CALL_SEQUENCES;
  for (int rank = 0; rank < 2; ++rank)
    ring.tensors(rank).args.call = ring.tensors(rank).backward_args.call = &call;
  const auto step = [&](std::int64_t sequences, const std::int64_t* cu) {
    call.sequences = sequences;
    call.cu_q = cu;
    require_ok(ring.forward_all(), "forward");
    require_ok(ring.backward_all(), "backward");
  };
  step(4, second);
  EXPECT_EQ(count([&] { step(1, first); }), 0u);
  EXPECT_EQ(count([&] { step(4, second); }), 0u);
}

}  // namespace
}  // namespace ringattn::support
