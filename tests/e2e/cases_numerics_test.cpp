// Public bug reports about wrong numbers, each as a test (shared/cases/public-bug-reports.md, part a).
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "tests/e2e/closed_forms.h"
#include "tests/e2e/process_counts.h"
#include "tests/support/ready_ring.h"

namespace ringattn::support {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

double relative_l2(const HostTensor& a, const HostTensor& b) {
  const std::vector<float> x = a.to_floats(), y = b.to_floats();
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    difference += (static_cast<double>(x[i]) - y[i]) * (static_cast<double>(x[i]) - y[i]);
    size += static_cast<double>(y[i]) * y[i];
  }
  return std::sqrt(difference / size);
}

// One half of the keys has the score `high`, the other 0; V = j over 8 keys.
void expect_two_halves(const std::string& dtype, double high, bool second_half, Row row) {
  const ProblemLine problem = parsed("n=8 dim=8 scale=1 ranks=2 dtype=" + dtype);
  Inputs inputs = u2_inputs(problem);
  set_channel0(inputs.k, [&](std::int64_t, std::int64_t j) { return (j >= 4) == second_half ? high : 0; });
  expect_rows(problem, inputs, [&](std::int64_t, std::int64_t) { return row; });
}

TEST(CaseB002, MergeDoesNotOverflow) {
  for (const std::string dtype : {"f32", "bf16"}) {
    expect_two_halves(dtype, 200, true, {5.5, 200 + std::log(4)});
    expect_two_halves(dtype, 200, false, {1.5, 200 + std::log(4)});
    expect_two_halves(dtype, -200, true, {1.5, std::log(4)});
    expect_two_halves(dtype, -200, false, {5.5, std::log(4)});
  }
  expect_two_halves("f32", 1e4, true, {5.5, 1e4 + std::log(4)});
  expect_two_halves("f32", 1e4, false, {1.5, 1e4 + std::log(4)});
  expect_two_halves("f32", -1e4, true, {1.5, std::log(4)});
}

TEST(CaseB004, RowsWithoutKeysAreZeroAndMinusInfinity) {
  for (const char* line : {"n=3 dim=16 docs=3 docs_k=0 query_cut=by_index ranks=1",
                           "n=3 dim=16 docs=3 docs_k=0 query_cut=by_index ranks=2",
                           "n=3 dim=16 docs=3 docs_k=0 scope=document ranks=2", "q=3 k=0 dim=16 ranks=2"}) {
    const ProblemLine problem = parsed(line);
    // run_ring fills outputs with NaN first, so left-over content would show.
    expect_rows(problem, u1_inputs(problem), [](std::int64_t, std::int64_t) { return Row{0, -kInf}; });
  }
}

TEST(CaseB005, LseIsNaturalAndUnevenShardsMergeRight) {
  const std::string sixteen = "n=16 dim=8 heads=2 ";
  for (const char* more : {"ranks=1", "partition=explicit:12/4 ranks=2", "partition=explicit:4/12 ranks=2",
                           "partition=explicit:1/14/1 ranks=3 dtype=bf16", "ranks=5 dtype=f16"}) {
    expect_full(sixteen + more);
  }
}

TEST(CaseB008, TailPaddingIsNeverRead) {
  // The inputs of run_ring: NaN in every local row beyond the call; here also in the global rows, and 1e4 once.
  ProblemLine problem = parsed("n=704 dim=16 mask=causal docs=698 partition=zigzag ranks=4");
  for (const double pad : {1e4, std::numeric_limits<double>::quiet_NaN()}) {
    Inputs inputs = u1_inputs(problem);
    for (HostTensor* tensor : {&inputs.k, &inputs.v}) {
      set_channel0(*tensor,
                   [&](std::int64_t, std::int64_t j) { return j < 698 ? static_cast<double>(j) : pad; });
    }
    RunOptions options;
    options.repeat = 10;  // which must agree bit for bit
    for (const int scope : {RINGATTN_SCOPE_CAPACITY, RINGATTN_SCOPE_CALL, RINGATTN_SCOPE_DOCUMENT}) {
      problem.scope = scope;
      expect_rows(
          problem, inputs,
          [](std::int64_t, std::int64_t i) {
            return i < 698 ? causal_row(i) : Row{0, -kInf};
          },
          options);
    }
  }
}

TEST(CaseB008, EqualLengthsInOtherMemoryAreTheSameCall) {
  const ProblemLine problem = parsed("n=64 dim=8 mask=causal docs=50 ranks=4 partition=zigzag");
  ReadyRing ring(problem, u1_inputs(problem));
  std::vector<std::vector<std::int64_t>> cu(4, std::vector<std::int64_t>{0, 50});  // one array a rank
  std::vector<ringattn_call> calls(4, *ring.plans().values().call());
  for (int rank = 0; rank < 4; ++rank) {
    calls[static_cast<std::size_t>(rank)].cu_q = cu[static_cast<std::size_t>(rank)].data();
    ring.tensors(rank).args.call = &calls[static_cast<std::size_t>(rank)];
  }
  ASSERT_EQ(ring.forward_all(), RINGATTN_OK) << ringattn_last_error();
  const std::uint64_t separate = ring.hash();
  for (int rank = 0; rank < 4; ++rank) ring.tensors(rank).args.call = ring.plans().values().call();
  ASSERT_EQ(ring.forward_all(), RINGATTN_OK) << ringattn_last_error();
  EXPECT_EQ(ring.hash(), separate);
}

TEST(CaseB009, DocumentsDoNotSeeEachOther) {
  const std::int64_t starts[] = {0, 0, 0, 3, 3, 3, 3, 3, 8, 8, 8, 8, 8, 8, 8, 8};
  for (const std::string& partition : three_partitions()) {
    for (const char* more : {" ranks=2", " ranks=4", " ranks=4 scope=call", " ranks=2 scope=document"}) {
      const ProblemLine problem = parsed("n=16 dim=8 mask=causal docs=3,5,8 partition=" + partition + more);
      expect_rows(problem, u1_inputs(problem), [&](std::int64_t, std::int64_t i) {
        const std::int64_t start = starts[i];
        return Row{static_cast<double>(start + i) / 2, std::log(static_cast<double>(i - start) + 1)};
      });
    }
  }
}

TEST(CaseB011, BalancedLayoutsWorkWithoutCausal) {
  for (const char* partition : {"zigzag", "striped"}) {
    for (const char* ranks : {"2", "4"}) {
      expect_full(std::string("n=16 dim=8 partition=") + partition + " ranks=" + ranks);
    }
  }
}

TEST(CaseB013, StripedCausalBeyondOneTile) {
  expect_causal("n=1024 dim=64 partition=striped ranks=4");
  expect_causal("n=8 dim=8 partition=striped ranks=4");
}

TEST(CaseB017, ValueHeadsOfAnotherSizeWithGroupedHeads) {
  ProblemLine problem = parsed("n=150 heads=8 kv_heads=2 dim=192 dim_v=128 mask=causal ranks=2");
  const Inputs inputs = random_inputs(problem, 17);
  const RunResult two = run_ring(problem, inputs);
  problem.ranks = 1;
  const RunResult one = run_ring(problem, inputs);
  ASSERT_TRUE(one.ok()) << one.error();
  ASSERT_TRUE(two.ok()) << two.error();
  EXPECT_LT(relative_l2(two.o, one.o), 1e-5);
  EXPECT_LT(relative_l2(two.lse, one.lse), 1e-5);
}

TEST(CaseB019, EveryPartitionEqualsOneRank) {
  ProblemLine problem = parsed("n=512 batch=2 heads=4 kv_heads=2 dim=64 mask=causal ranks=1");
  const Inputs inputs = random_inputs(problem, 19);
  const RunResult one = run_ring(problem, inputs);
  ASSERT_TRUE(one.ok()) << one.error();
  for (const std::string& partition : three_partitions()) {
    for (const char* ranks : {"2", "4"}) {
      const ProblemLine sharded = parsed(
          "n=512 batch=2 heads=4 kv_heads=2 dim=64 mask=causal partition=" + partition + " ranks=" + ranks);
      const RunResult run = run_ring(sharded, inputs);
      ASSERT_TRUE(run.ok()) << run.error();
      EXPECT_LT(relative_l2(run.o, one.o), 1e-5) << to_line(sharded);
      EXPECT_LT(relative_l2(run.lse, one.lse), 1e-5) << to_line(sharded);
    }
  }
}

TEST(CaseB020, CausalIsBottomRightAligned) {
  for (const char* more :
       {" ranks=1", " ranks=2", " ranks=3 partition=zigzag", " ranks=2 partition=striped scope=call"}) {
    const ProblemLine wide = parsed(std::string("q=2 k=5 dim=8 mask=causal") + more);
    expect_rows(wide, u1_inputs(wide), [](std::int64_t, std::int64_t i) { return causal_row(3 + i); });
    const ProblemLine tall = parsed(std::string("q=5 k=2 dim=8 mask=causal") + more);
    expect_rows(tall, u1_inputs(tall), [](std::int64_t, std::int64_t i) {
      return i < 3 ? Row{0, -kInf} : causal_row(i - 3);
    });
  }
}

TEST(CaseB021, OffsetWithPaddedQueries) {
  for (const char* more : {"", " query_cut=by_index", " partition=zigzag", " partition=striped"}) {
    const ProblemLine problem =
        parsed(std::string("n=8 dim=8 mask=causal docs=7 docs_k=8 offset=1 ranks=2") + more);
    expect_rows(problem, u1_inputs(problem), [](std::int64_t, std::int64_t i) {
      return i < 7 ? causal_row(i + 1) : Row{0, -kInf};
    });
  }
}

TEST(CaseB022, RandomStartDelaysDoNotChangeABit) {
  const ProblemLine problem = parsed("n=2048 dim=64 dtype=bf16 mask=causal partition=zigzag ranks=4");
  const Inputs inputs = random_inputs(problem, 22);
  Random random(22);
  std::set<std::uint64_t> hashes;
  for (int round = 0; round < 20 / kSlowdown; ++round) {
    RunOptions options;
    options.drive = Drive::kThreads;
    for (int rank = 0; rank < 4; ++rank) options.start_delay_ms.push_back(static_cast<int>(random.below(60)));
    const RunResult run = run_ring(problem, inputs, options);
    ASSERT_TRUE(run.ok()) << run.error();
    hashes.insert(run.o.hash());
    hashes.insert(run.lse.hash());
  }
  EXPECT_EQ(hashes.size(), 2u);  // one of o, one of lse
}

TEST(CaseB023, DefaultScaleIsThatOfTheUnpaddedHead) {
  const ProblemLine problem = parsed("n=2 dim=80");
  Inputs inputs = u2_inputs(problem);
  set_channel0(inputs.k, [](std::int64_t, std::int64_t j) { return j == 1 ? 9.826287 : 0; });
  set_channel0(inputs.v, [](std::int64_t, std::int64_t j) { return j == 1 ? 4 : 0; });
  expect_rows(problem, inputs, [](std::int64_t, std::int64_t) { return Row{3.0, 1.386294}; });
}

TEST(CaseB023, ScaleIsPositiveAndFiniteOrDefault) {
  for (const double scale : {-1.0, kInf, -kInf, std::numeric_limits<double>::quiet_NaN()}) {
    ProblemLine problem = parsed("n=2 dim=80");
    problem.scale = scale;
    const RunResult run = run_ring(problem, zero_inputs(problem));
    EXPECT_EQ(run.status, RINGATTN_ERR_INVALID_ARGUMENT) << scale;
    EXPECT_NE(run.message.find("scale"), std::string::npos) << run.message;
  }
}

TEST(CaseB024, LseHasExactlyItsSizeForShortShards) {
  for (const int local : {1, 15, 16, 31, 33}) {
    for (const int ranks : {1, 2}) {
      const ProblemLine problem = parsed("n=" + std::to_string(local * ranks) +
                                         " heads=2 dim=128 mask=causal ranks=" + std::to_string(ranks));
      ReadyRing ring(problem, u1_inputs(problem));
      constexpr std::size_t kCanary = 16;  // floats: 64 bytes on each side
      std::vector<std::vector<float>> memory(
          static_cast<std::size_t>(ranks),
          std::vector<float>(2 * kCanary + 2 * static_cast<std::size_t>(local), -7.0f));
      for (int rank = 0; rank < ranks; ++rank) {
        ringattn_tensor& view = ring.tensors(rank).lse_view;
        view.flags = 0;  // dense [1, 2, local, 1]
        view.data = memory[static_cast<std::size_t>(rank)].data() + kCanary;
      }
      ASSERT_EQ(ring.forward_all(), RINGATTN_OK) << ringattn_last_error();
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<float>& lse = memory[static_cast<std::size_t>(rank)];
        for (std::size_t i = 0; i < kCanary; ++i) {
          EXPECT_EQ(lse[i], -7.0f);
          EXPECT_EQ(lse[lse.size() - 1 - i], -7.0f);
        }
        for (int head = 0; head < 2; ++head) {
          for (int i = 0; i < local; ++i) {
            EXPECT_NEAR(lse[kCanary + static_cast<std::size_t>(head * local + i)],
                        std::log(rank * local + i + 1.0), 1e-5)
                << to_line(problem) << " rank " << rank << " head " << head << " row " << i;
          }
        }
      }
    }
  }
}

TEST(CaseB025, BatchRowsStayApart) {
  for (const std::string& partition : three_partitions()) {
    const ProblemLine problem = parsed("n=16 batch=3 dim=8 mask=causal ranks=2 partition=" + partition);
    Inputs inputs = u1_inputs(problem);
    set_channel0(inputs.v, [](std::int64_t b, std::int64_t j) {
      return 1000.0 * static_cast<double>(b) + static_cast<double>(j);
    });
    expect_rows(problem, inputs, [](std::int64_t b, std::int64_t i) {
      return Row{1000.0 * static_cast<double>(b) + static_cast<double>(i) / 2, causal_row(i).lse};
    });
  }
}

}  // namespace
}  // namespace ringattn::support
