// Public bug reports about wrong gradients, each as a test: dQ, dK and dV of parts a and e of
// shared/cases/public-bug-reports.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/e2e/closed_gradients.h"
#include "tests/e2e/process_counts.h"
#include "tests/support/oracle_backward.h"
#include "tests/support/verify.h"

namespace ringattn::support {
namespace {

using List = std::vector<double>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Channel0 of_list(const List& list) {
  return [list](std::int64_t, std::int64_t s) { return list[static_cast<std::size_t>(s)]; };
}
Channel0 constant(double value) {
  return [value](std::int64_t, std::int64_t) { return value; };
}

double relative_l2(const HostTensor& a, const HostTensor& b) {
  const std::vector<float> x = a.to_floats(), y = b.to_floats();
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    difference += (static_cast<double>(x[i]) - y[i]) * (static_cast<double>(x[i]) - y[i]);
    size += static_cast<double>(y[i]) * y[i];
  }
  return std::sqrt(difference / size);
}

std::vector<std::string> some_rings() {
  std::vector<std::string> rings{" ranks=1"};
  for (const std::string& partition : three_partitions()) {
    for (const char* ranks : {" ranks=2", " ranks=4", " ranks=5"})
      rings.push_back(std::string(" partition=").append(partition).append(ranks));
  }
  return rings;
}

// The figures that open the collection, for S = 16.
TEST(CaseU1Backward, FiguresOfSixteenTokens) {
  const List d_q = {0,        .25,  .666667, 1.25,      2,  2.916667, 4,         5.25,
                    6.666667, 8.25, 10,      11.916667, 14, 16.25,    18.666667, 21.25};
  for (const std::string& ring : some_rings()) {
    const ProblemLine problem =
        parsed(std::string("n=16 dim=8 heads=2 mask=causal scale=1 pass=backward").append(ring));
    const RunResult run =
        expect_gradients(problem, u1_with_d_o(problem), {of_list(d_q), zero_gradient, u1_causal(16).d_v});
    ASSERT_TRUE(run.ok());
    EXPECT_NEAR(run.d_v.get(0, 0, 1, 0), 3.380729, 4e-5);
    EXPECT_NEAR(run.d_v.get(0, 15, 1, 0), 0.0625, 1e-6);
    double sum = 0;
    for (std::int64_t j = 0; j < 16; ++j) sum += run.d_v.get(0, j, 0, 0);
    EXPECT_NEAR(sum, 16, 1e-4);
  }
}

TEST(CaseU2Backward, FiguresOfSixteenTokens) {
  const List d_k = {-6.309636, -3.928907, -2.298178, -1.084115, -.161720, .535676,  1.049738, 1.409039,
                    1.634411,  1.741727,  1.743488,  1.649794,  1.468979, 1.208036, .872917,  .46875};
  for (const std::string& ring : some_rings()) {
    const ProblemLine problem =
        parsed(std::string("n=16 dim=8 heads=2 mask=causal scale=1 pass=backward").append(ring));
    Inputs inputs = u2_inputs(problem);
    set_d_o(inputs, 16);
    const RunResult run = expect_gradients(problem, inputs, {zero_gradient, of_list(d_k), u1_causal(16).d_v});
    ASSERT_TRUE(run.ok());
    double sum = 0;
    for (std::int64_t j = 0; j < 16; ++j) sum += run.d_k.get(0, j, 0, 0);
    EXPECT_NEAR(sum, 0, 1e-4);
  }
}

// Half of the keys has the score `high`, the other 0: the winning half shares each row, P = 1/4, and
// dS_j = (j - mean) / 4, so dV = 2, dK = 2 (j - mean) there and dQ = high * 0.
void expect_gradients_of_halves(const std::string& dtype, double high, bool second_half) {
  const ProblemLine problem =
      parsed(std::string("n=8 dim=8 scale=1 ranks=2 pass=backward dtype=").append(dtype));
  Inputs inputs = u2_inputs(problem);
  set_d_o(inputs, 8);
  set_channel0(inputs.k, [&](std::int64_t, std::int64_t j) { return (j >= 4) == second_half ? high : 0; });
  const bool second_wins = second_half == (high > 0);
  const auto wins = [=](std::int64_t j) { return (j >= 4) == second_wins; };
  const double mean = second_wins ? 5.5 : 1.5;
  const auto d_v = [=](std::int64_t, std::int64_t j) { return wins(j) ? 2.0 : 0; };
  const auto d_k = [=](std::int64_t, std::int64_t j) {
    return wins(j) ? 2 * (static_cast<double>(j) - mean) : 0;
  };
  // lse is fp32: what it is rounded by, P is scaled by. D21's slack.
  const double size = std::fabs(high), slack = 0x1p-23 * (1 + size);
  SCOPED_TRACE(size);
  const RunResult run = run_ring(problem, inputs);
  ASSERT_TRUE(run.ok()) << run.error();
  expect_gradient("d_q", run.d_q, zero_gradient, slack * 11 * size);
  expect_gradient("d_k", run.d_k, d_k, slack * 11);
  expect_gradient("d_v", run.d_v, d_v, slack);
}

TEST(CaseB002Backward, GradientsDoNotOverflow) {
  for (const bool second_half : {true, false}) {
    for (const std::string dtype : {"f32", "bf16"}) {
      expect_gradients_of_halves(dtype, 200, second_half);
      expect_gradients_of_halves(dtype, -200, second_half);
    }
    expect_gradients_of_halves("f32", 1e4, second_half);
    expect_gradients_of_halves("f32", -1e4, second_half);
  }
}

TEST(CaseB004Backward, RowsWithoutKeysGetZero) {
  for (const char* line : {"n=3 dim=16 docs=3 docs_k=0 query_cut=by_index ranks=1",
                           "n=3 dim=16 docs=3 docs_k=0 query_cut=by_index ranks=2",
                           "n=3 dim=16 docs=3 docs_k=0 scope=document ranks=2", "q=3 k=0 dim=16 ranks=1",
                           "q=3 k=0 dim=16 ranks=2"}) {
    const ProblemLine problem = parsed(std::string(line).append(" pass=backward"));
    const RunResult run =
        expect_gradients(problem, u1_with_d_o(problem), {zero_gradient, zero_gradient, zero_gradient});
    for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(run.d_q.get(0, i, 0, 0), 0);
  }
}

double largest_error(const HostTensor& result, const OracleGradient& oracle) {
  const std::vector<float> values = result.to_floats();
  double largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    largest = std::max(largest, std::fabs(values[i] - oracle.value[i]));
  return largest;
}

TEST(CaseB006Backward, ErrorDoesNotGrowWithTheRing) {
  // The fp64 answer takes all the time: one head of the four and half of the rows, fewer still with
  // sanitizers.
  const std::int64_t n = kOwnAllocator ? 2048 : 512;
  ProblemLine problem = parsed(std::string("dim=64 dtype=bf16 mask=causal partition=zigzag pass=backward n=")
                                   .append(std::to_string(n)));
  const Inputs inputs = random_inputs(problem, 0);
  const OracleGradients oracle =
      oracle_backward(problem, inputs.q, inputs.k, inputs.v, inputs.d_o, nullptr, 2);
  double of_one[3] = {};
  for (const int ranks : {1, 2, 4, 8, 16}) {
    problem.ranks = ranks;
    const RunResult run = run_ring(problem, inputs);
    ASSERT_TRUE(run.ok()) << run.error();
    const double errors[] = {largest_error(run.d_q, oracle.d_q), largest_error(run.d_k, oracle.d_k),
                             largest_error(run.d_v, oracle.d_v)};
    for (int i = 0; i < 3; ++i) {
      if (ranks == 1) of_one[i] = errors[i];
      EXPECT_LE(errors[i], 1.5 * of_one[i]) << "of gradient " << i << " with ranks " << ranks;
    }
  }
}

TEST(CaseB008Backward, TailPaddingIsNeverReadAndGetsZero) {
  ProblemLine problem =
      parsed("n=704 dim=16 mask=causal docs=698 partition=zigzag ranks=4 scale=1 pass=backward");
  ClosedGradients expected = u1_causal(698);
  expected.d_q = [](std::int64_t, std::int64_t i) { return i < 698 ? u1_causal_d_q(i) : 0; };
  for (const double pad : {1e4, kNaN}) {
    Inputs inputs = u1_inputs(problem);
    set_d_o(inputs, 698, pad);
    for (HostTensor* tensor : {&inputs.k, &inputs.v}) {
      set_channel0(*tensor,
                   [&](std::int64_t, std::int64_t j) { return j < 698 ? static_cast<double>(j) : pad; });
    }
    RunOptions options;
    options.repeat = 10;  // which must agree bit for bit
    for (const int scope : {RINGATTN_SCOPE_CAPACITY, RINGATTN_SCOPE_CALL, RINGATTN_SCOPE_DOCUMENT}) {
      problem.scope = scope;
      const RunResult run = expect_gradients(problem, inputs, expected, options);
      ASSERT_TRUE(run.ok());
      EXPECT_NEAR(run.d_v.get(0, 697, 0, 0), 0.00143266, 1e-7);
      EXPECT_NEAR(run.d_v.get(0, 0, 0, 0), 7.126151, 1e-4);
      for (std::int64_t s = 698; s < 704; ++s) {
        for (const HostTensor* tensor : {&run.d_q, &run.d_k, &run.d_v})
          ASSERT_EQ(tensor->get(0, s, 0, 0), 0) << "padding " << s;
      }
    }
  }
}

TEST(CaseB009Backward, DocumentsDoNotFlowIntoEachOther) {
  const std::int64_t starts[] = {0, 0, 0, 3, 3, 3, 3, 3, 8, 8, 8, 8, 8, 8, 8, 8};
  const std::int64_t ends[] = {3, 3, 3, 8, 8, 8, 8, 8, 16, 16, 16, 16, 16, 16, 16, 16};
  const ClosedGradients expected = {
      [&](std::int64_t, std::int64_t i) { return u1_causal_d_q(i - starts[i]); }, zero_gradient,
      [&](std::int64_t, std::int64_t j) { return u1_causal_d_v(j - starts[j], ends[j] - starts[j]); }};
  const double of_the_second[] = {2.283333, 1.283333, 0.783333, 0.45, 0.2};
  for (const std::string& partition : three_partitions()) {
    for (const char* more : {" ranks=2", " ranks=4", " ranks=4 scope=call", " ranks=2 scope=document"}) {
      const ProblemLine problem =
          parsed(std::string("n=16 dim=8 mask=causal docs=3,5,8 scale=1 pass=backward partition=")
                     .append(partition)
                     .append(more));
      const RunResult run = expect_gradients(problem, u1_with_d_o(problem), expected);
      ASSERT_TRUE(run.ok());
      for (std::int64_t j = 0; j < 5; ++j)
        EXPECT_NEAR(run.d_v.get(0, 3 + j, 0, 0), of_the_second[j], 1e-5) << "key " << j;
    }
  }
}

TEST(CaseB011Backward, BalancedLayoutsWorkWithoutCausal) {
  for (const char* partition : {"zigzag", "striped"}) {
    for (const char* ranks : {" ranks=2", " ranks=4"}) {
      const ProblemLine problem = parsed(
          std::string("n=16 dim=8 heads=2 scale=1 pass=backward partition=").append(partition).append(ranks));
      expect_gradients(problem, u1_with_d_o(problem), {constant(21.25), zero_gradient, constant(1)});
    }
  }
}

TEST(CaseB013Backward, StripedCausalBeyondOneTile) {
  expect_causal_gradients("n=1024 dim=64 partition=striped ranks=4");
  expect_causal_gradients("n=8 dim=8 partition=striped ranks=4");
}

void expect_equal_to_one_rank(ProblemLine problem, const Inputs& inputs, const RunResult& one) {
  SCOPED_TRACE(to_line(problem));
  const RunResult run = run_ring(problem, inputs);
  ASSERT_TRUE(run.ok()) << run.error();
  EXPECT_LT(relative_l2(run.d_q, one.d_q), 1e-5);
  EXPECT_LT(relative_l2(run.d_k, one.d_k), 1e-5);
  EXPECT_LT(relative_l2(run.d_v, one.d_v), 1e-5);
}

TEST(CaseB017Backward, ValueHeadsOfAnotherSizeWithGroupedHeads) {
  ProblemLine problem =
      parsed("n=100 heads=8 kv_heads=2 dim=192 dim_v=128 mask=causal pass=backward ranks=1");
  const Inputs inputs = random_inputs(problem, 17);
  const RunResult one = run_ring(problem, inputs);
  ASSERT_TRUE(one.ok()) << one.error();
  problem.ranks = 2;
  expect_equal_to_one_rank(problem, inputs, one);
}

TEST(CaseB019Backward, EveryPartitionEqualsOneRank) {
  ProblemLine problem = parsed("n=512 batch=2 heads=4 kv_heads=2 dim=64 mask=causal pass=backward ranks=1");
  const Inputs inputs = random_inputs(problem, 19);
  const RunResult one = run_ring(problem, inputs);
  ASSERT_TRUE(one.ok()) << one.error();
  for (const int partition :
       {RINGATTN_PARTITION_CONTIGUOUS, RINGATTN_PARTITION_STRIPED, RINGATTN_PARTITION_ZIGZAG}) {
    for (const int ranks : {2, 4}) {
      problem.partition = partition;
      problem.ranks = ranks;
      expect_equal_to_one_rank(problem, inputs, one);
    }
  }
}

TEST(CaseB020Backward, CausalIsBottomRightAligned) {
  for (const char* more :
       {" ranks=1", " ranks=2", " ranks=3 partition=zigzag", " ranks=2 partition=striped scope=call"}) {
    const auto line = [&](const char* lengths) {
      return parsed(std::string(lengths).append(" dim=8 mask=causal scale=1 pass=backward").append(more));
    };
    const ProblemLine wide = line("q=2 k=5");
    expect_gradients(
        wide, u1_with_d_o(wide),
        {of_list({u1_causal_d_q(3), u1_causal_d_q(4)}), zero_gradient, of_list({.45, .45, .45, .45, .2})});
    const ProblemLine tall = line("q=5 k=2");
    expect_gradients(tall, u1_with_d_o(tall),
                     {of_list({0, 0, 0, 0, u1_causal_d_q(1)}), zero_gradient, of_list({1.5, 0.5})});
  }
}

TEST(CaseB021Backward, OffsetWithPaddedQueries) {
  for (const char* more : {"", " query_cut=by_index", " partition=zigzag", " partition=striped"}) {
    const ProblemLine problem =
        parsed(std::string("n=8 dim=8 mask=causal docs=7 docs_k=8 offset=1 ranks=2 scale=1 pass=backward")
                   .append(more));
    Inputs inputs = u1_inputs(problem);
    set_d_o(inputs, 7, kNaN);
    // The query at position 0 is missing.
    expect_gradients(
        problem, inputs,
        {[](std::int64_t, std::int64_t i) { return i < 7 ? u1_causal_d_q(i + 1) : 0; }, zero_gradient,
         [](std::int64_t, std::int64_t j) { return u1_causal_d_v(j, 8) - (j == 0 ? 1 : 0); }});
  }
}

TEST(CaseB022Backward, RandomStartDelaysDoNotChangeABit) {
  const ProblemLine problem =
      parsed("n=2048 dim=64 dtype=bf16 mask=causal partition=zigzag ranks=4 pass=backward");
  const Inputs inputs = random_inputs(problem, 22);
  Random random(22);
  std::vector<std::uint64_t> first;
  for (int round = 0; round < 20 / kSlowdown; ++round) {
    RunOptions options;
    options.drive = Drive::kThreads;
    const std::int64_t longest = round == 0 ? 200 : 60;
    for (int rank = 0; rank < 4; ++rank)
      options.start_delay_ms.push_back(static_cast<int>(random.below(longest)));
    const RunResult run = run_ring(problem, inputs, options);
    ASSERT_TRUE(run.ok()) << run.error();
    const std::vector<std::uint64_t> hashes = {run.d_q.hash(), run.d_k.hash(), run.d_v.hash()};
    if (round == 0) first = hashes;
    EXPECT_EQ(hashes, first) << "round " << round;
  }
}

// dO is zero in the rows of rank 1: the others' gradients are those without these rows.
TEST(CaseB090Backward, ARankWhoseRowsAreAllMaskedGivesNothing) {
  for (const char* more : {"dtype=f32", "dtype=bf16 dtype_grad=f32", "dtype=f16"}) {
    const ProblemLine problem =
        parsed(std::string("n=64 heads=2 dim=16 mask=causal ranks=2 pass=backward ").append(more));
    Inputs inputs = random_inputs(problem, 90);
    const auto silence = [&](std::int64_t from) {
      for (std::int64_t i = from; i < 64; ++i) {
        for (std::int64_t h = 0; h < 2; ++h) {
          for (std::int64_t d = 0; d < 16; ++d) inputs.d_o.set(0, i, h, d, 0);
        }
      }
    };
    silence(32);
    const VerifyResult half = verify_inputs(problem, inputs);
    EXPECT_TRUE(half.ok) << to_text(half);
    const RunResult run = run_ring(problem, inputs);
    ASSERT_TRUE(run.ok()) << run.error();
    for (const HostTensor* tensor : {&run.d_q, &run.d_k, &run.d_v}) {
      for (const float value : tensor->to_floats()) ASSERT_TRUE(std::isfinite(value));
    }
    silence(0);
    const RunResult none = run_ring(problem, inputs);
    ASSERT_TRUE(none.ok()) << none.error();
    for (const HostTensor* tensor : {&none.d_q, &none.d_k, &none.d_v}) {
      for (const float value : tensor->to_floats()) ASSERT_EQ(value, 0);
    }
  }
}

}  // namespace
}  // namespace ringattn::support
