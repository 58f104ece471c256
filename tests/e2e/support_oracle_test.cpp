// The oracle, the plain implementation and the limits against answers worked out by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/e2e/closed_forms.h"
#include "tests/support/half.h"
#include "tests/support/limits.h"
#include "tests/support/oracle.h"
#include "tests/support/plain.h"
#include "tests/support/random_data.h"

namespace ringattn::support {
namespace {

// U1 and B020: q = 0, V = index of the key in channel 0, so that a row's answer is the mean index of its visible keys.
OracleResult mean_of_visible(const ProblemLine& problem) {
  Inputs inputs = zero_inputs(problem);
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    for (std::int64_t j = 0; j < problem.keys; ++j) {
      for (std::int64_t h = 0; h < inputs.v.shape(2); ++h) inputs.v.set(b, j, h, 0, static_cast<double>(j));
    }
  }
  return oracle_attention(problem, inputs.q, inputs.k, inputs.v);
}

void expect_rows(const std::string& line, const std::vector<double>& mean, const std::vector<double>& count) {
  const ProblemLine problem = parsed(line);
  const OracleResult result = mean_of_visible(problem);
  ASSERT_EQ(static_cast<std::size_t>(problem.queries), mean.size()) << line;
  for (std::size_t i = 0; i < mean.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    EXPECT_NEAR(result.o[result.element(0, row, 0, 0)], mean[i], 1e-13) << line << " row " << i;
    EXPECT_EQ(result.o[result.element(0, row, 0, 1)], 0) << line;
    if (count[i] == 0) {
      EXPECT_EQ(result.lse[result.row(0, row, 0)], -INFINITY) << line << " row " << i;
    } else {
      EXPECT_NEAR(result.lse[result.row(0, row, 0)], std::log(count[i]), 1e-13) << line << " row " << i;
    }
  }
}

TEST(Oracle, MasksByHand) {
  expect_rows("n=4 dim=2", {1.5, 1.5, 1.5, 1.5}, {4, 4, 4, 4});
  expect_rows("n=4 dim=2 mask=causal", {0, 0.5, 1, 1.5}, {1, 2, 3, 4});
  expect_rows("n=5 dim=2 mask=causal,window:1", {0, 0.5, 1.5, 2.5, 3.5}, {1, 2, 2, 2, 2});
  expect_rows("n=4 dim=2 mask=window:0:0", {0, 1, 2, 3}, {1, 1, 1, 1});
  expect_rows("n=4 dim=2 mask=window:1:1", {0.5, 1, 2, 2.5}, {2, 3, 3, 2});
  expect_rows("n=4 dim=2 mask=window:*:1", {0.5, 1, 1.5, 1.5}, {2, 3, 4, 4});
  expect_rows("n=4 dim=2 mask=window:1", {1.5, 1.5, 2, 2.5}, {4, 4, 3, 2});
}

TEST(Oracle, MasksAreBottomRightAligned) {
  expect_rows("q=2 k=5 dim=2 mask=causal", {1.5, 2}, {4, 5});
  expect_rows("q=5 k=2 dim=2 mask=causal", {0, 0, 0, 0, 0.5}, {0, 0, 0, 1, 2});
  expect_rows("q=2 k=5 dim=2 mask=causal offset=0", {0, 0.5}, {1, 2});
  expect_rows("q=7 k=8 dim=2 mask=causal offset=1", {0.5, 1, 1.5, 2, 2.5, 3, 3.5}, {2, 3, 4, 5, 6, 7, 8});
  expect_rows("q=2 k=2 dim=2 mask=causal offset=-1", {0, 0}, {0, 1});
  expect_rows("q=2 k=5 dim=2 mask=window:1:0", {2.5, 3.5}, {2, 2});
}

TEST(Oracle, DocumentsSeeOnlyThemselves) {
  expect_rows("n=6 dim=2 mask=causal docs=2,3", {0, 0.5, 2, 2.5, 3, 0}, {1, 2, 1, 2, 3, 0});
  expect_rows("n=4 dim=2 docs=none", {0, 0, 0, 0}, {0, 0, 0, 0});
  expect_rows("n=4 dim=2 docs=1,0,3", {0, 2, 2, 2}, {1, 3, 3, 3});
  // Documents with other key lengths: the second one has 1 query at position 2 over 3 keys.
  expect_rows("q=3 k=5 dim=2 mask=causal docs=2,1 docs_k=2,3", {0, 0.5, 3}, {1, 2, 3});
  expect_rows("q=3 k=5 dim=2 docs=3 docs_k=0", {0, 0, 0}, {0, 0, 0});
  expect_rows("q=2 k=4 dim=2 docs=1,1 docs_k=2,2 mask=causal offset=0", {0, 2}, {1, 1});
}

TEST(Oracle, BatchRowsHaveTheirOwnLengths) {
  const ProblemLine problem = parsed("n=4 batch=3 heads=2 kv_heads=1 dim=2 mask=causal docs=4,1,0");
  const OracleResult result = mean_of_visible(problem);
  EXPECT_NEAR(result.o[result.element(0, 3, 1, 0)], 1.5, 1e-13);
  EXPECT_NEAR(result.lse[result.row(0, 3, 0)], std::log(4), 1e-13);
  EXPECT_EQ(result.lse[result.row(1, 0, 1)], 0);
  EXPECT_EQ(result.lse[result.row(1, 1, 0)], -INFINITY);
  EXPECT_EQ(result.lse[result.row(2, 0, 0)], -INFINITY);
  EXPECT_EQ(visible_pairs(problem), 2 * (10 + 1 + 0));
}

// B023: scores 0 and 9.826287 / sqrt(80).
TEST(Oracle, ScoresAndSlackTermsByHand) {
  const ProblemLine problem = parsed("n=2 dim=80");
  Inputs inputs = zero_inputs(problem);
  for (int i = 0; i < 2; ++i) inputs.q.set(0, i, 0, 0, 1);
  inputs.k.set(0, 1, 0, 0, 9.826287);
  inputs.k.set(0, 0, 0, 1, 5);  // q there is 0
  inputs.v.set(0, 1, 0, 0, 4);
  inputs.v.set(0, 0, 0, 1, -4);
  const OracleResult result = oracle_attention(problem, inputs.q, inputs.k, inputs.v);
  EXPECT_NEAR(result.o[0], 3.0, 1e-6);
  EXPECT_NEAR(result.o[1], -1.0, 1e-6);
  EXPECT_NEAR(result.abs_pv[1], 1.0, 1e-6);
  EXPECT_NEAR(result.lse[0], 1.386294, 1e-6);
  EXPECT_NEAR(result.row_max[0], std::log(3), 1e-6);
  EXPECT_NEAR(result.log_sum[0], std::log(4.0 / 3.0), 1e-6);
  EXPECT_NEAR(result.abs_score[0], std::log(3), 1e-6);

  // A counts absolute products: here two that cancel.
  Inputs cancel = zero_inputs(problem);
  cancel.q.set(0, 0, 0, 0, 2);
  cancel.q.set(0, 0, 0, 1, 2);
  cancel.k.set(0, 0, 0, 0, 3);
  cancel.k.set(0, 0, 0, 1, -3);
  const OracleResult zero = oracle_attention(problem, cancel.q, cancel.k, cancel.v);
  EXPECT_EQ(zero.row_max[0], 0);
  EXPECT_NEAR(zero.abs_score[0], 12 / std::sqrt(80), 1e-12);
}

TEST(Oracle, EveryHeadUsesItsKvHeadAndWorkersDoNotMatter) {
  const ProblemLine problem = parsed("n=33 batch=2 heads=6 kv_heads=2 dim=9 dim_v=5 mask=causal");
  const Inputs inputs = random_inputs(problem, 1);
  const OracleResult one = oracle_attention(problem, inputs.q, inputs.k, inputs.v, 1);
  const OracleResult three = oracle_attention(problem, inputs.q, inputs.k, inputs.v, 3);
  EXPECT_EQ(one.o, three.o);
  EXPECT_EQ(one.lse, three.lse);
  // Row 20 of head 4 (kv head 1), written out.
  double sum = 0, weighted = 0;
  for (int j = 0; j <= 20; ++j) {
    double score = 0;
    for (int d = 0; d < 9; ++d) score += inputs.q.get(1, 20, 4, d) * inputs.k.get(1, j, 1, d);
    const double p = std::exp(score / 3);
    sum += p;
    weighted += p * inputs.v.get(1, j, 1, 3);
  }
  EXPECT_NEAR(one.o[one.element(1, 20, 4, 3)], weighted / sum, 1e-13);
  EXPECT_NEAR(one.lse[one.row(1, 20, 4)], std::log(sum), 1e-13);
}

TEST(Oracle, LargeScoresStayFinite) {
  const ProblemLine problem = parsed("n=2 dim=8 scale=1");
  Inputs inputs = zero_inputs(problem);
  for (int i = 0; i < 2; ++i) inputs.q.set(0, i, 0, 0, 1);
  inputs.k.set(0, 1, 0, 0, 1e4);
  inputs.v.set(0, 1, 0, 0, 7);
  const OracleResult result = oracle_attention(problem, inputs.q, inputs.k, inputs.v);
  EXPECT_EQ(result.o[0], 7);
  EXPECT_EQ(result.lse[0], 1e4);
}

TEST(Plain, IsRightAndRoundsProbabilitiesToTheInputType) {
  for (const char* dtype : {"f32", "f16", "bf16"}) {
    const ProblemLine problem =
        parsed(std::string("n=70 heads=2 dim=33 mask=causal,window:40 docs=30,39 dtype=") + dtype);
    const Inputs inputs = random_inputs(problem, 5);
    const OracleResult oracle = oracle_attention(problem, inputs.q, inputs.k, inputs.v);
    const PlainResult plain = plain_attention(problem, inputs.q, inputs.k, inputs.v);
    const double unit = ulp(problem.dtype, 1.0);
    double largest = 0;
    for (std::size_t i = 0; i < oracle.o.size(); ++i)
      largest = std::max(largest, std::fabs(plain.o[i] - oracle.o[i]));
    EXPECT_LT(largest, 8 * unit) << dtype;  // |v| stays below 5
    EXPECT_GT(largest, unit / 64) << dtype << ": this looks too exact for its type";
    for (std::size_t i = 0; i < oracle.lse.size(); ++i) {
      if (std::isinf(oracle.lse[i])) {
        EXPECT_EQ(plain.lse[i], oracle.lse[i]);
      } else {
        EXPECT_NEAR(plain.lse[i], oracle.lse[i], 4e-6);
      }
    }
  }
}

// One row over two keys: p = 1/4 and 3/4 exactly, both kept by every type; 1/3 is not.
TEST(Plain, ByHand) {
  ProblemLine problem = parsed("q=1 k=3 dim=1 dtype=bf16 dtype_out=f32");
  Inputs inputs = zero_inputs(problem);
  inputs.v.set(0, 0, 0, 0, 1);
  inputs.v.set(0, 1, 0, 0, 2);
  inputs.v.set(0, 2, 0, 0, 4);
  const float third = bf16_to_float(float_to_bf16(1.0f / 3.0f));
  EXPECT_EQ(plain_attention(problem, inputs.q, inputs.k, inputs.v).o[0], third * 1 + third * 2 + third * 4);
  problem.dtype_out = 0;
  const float exact = third * 1 + third * 2 + third * 4;
  EXPECT_EQ(plain_attention(problem, inputs.q, inputs.k, inputs.v).o[0], bf16_to_float(float_to_bf16(exact)));
  EXPECT_FLOAT_EQ(plain_attention(problem, inputs.q, inputs.k, inputs.v).lse[0], std::log(3.0f));
}

struct Judged {
  ProblemLine problem = parsed("n=40 heads=2 dim=16 mask=causal docs=10,29");
  Inputs inputs = random_inputs(problem, 2);
  OracleResult oracle = oracle_attention(problem, inputs.q, inputs.k, inputs.v);
  PlainResult plain = plain_attention(problem, inputs.q, inputs.k, inputs.v);
  HostTensor o{RINGATTN_DTYPE_F32, {1, 40, 2, 16}};
  HostTensor lse{RINGATTN_DTYPE_F32, {1, 2, 40, 1}};
  Judged() {
    for (int s = 0; s < 40; ++s) {
      for (int h = 0; h < 2; ++h) {
        lse.set(0, h, s, 0, oracle.lse[oracle.row(0, s, h)]);
        for (int d = 0; d < 16; ++d) o.set(0, s, h, d, oracle.o[oracle.element(0, s, h, d)]);
      }
    }
  }
};

TEST(Limits, TakeTheRoundedAnswerAndThePlainOne) {
  Judged judged;
  EXPECT_TRUE(check_o(judged.o, judged.oracle, judged.plain).ok);
  EXPECT_TRUE(check_lse(judged.lse, judged.oracle, judged.plain).ok);
  for (int s = 0; s < 40; ++s) {
    for (int h = 0; h < 2; ++h) {
      for (int d = 0; d < 16; ++d)
        judged.o.set(0, s, h, d, judged.plain.o[judged.oracle.element(0, s, h, d)]);
    }
  }
  EXPECT_TRUE(check_o(judged.o, judged.oracle, judged.plain).ok);
}

TEST(Limits, RefuseOneWrongElementAndNameIt) {
  Judged judged;
  judged.o.set(0, 17, 1, 5, judged.o.get(0, 17, 1, 5) + 1e-5);
  const LimitResult o = check_o(judged.o, judged.oracle, judged.plain);
  EXPECT_FALSE(o.ok);
  EXPECT_NE(o.worst.find("o[0, 17, 1, 5]"), std::string::npos) << o.worst;
  EXPECT_GT(o.max_abs, o.limit_max);
  judged.lse.set(0, 1, 30, 0, judged.lse.get(0, 1, 30, 0) - 1e-4);
  const LimitResult lse = check_lse(judged.lse, judged.oracle, judged.plain);
  EXPECT_FALSE(lse.ok);
  EXPECT_NE(lse.worst.find("lse[0, 1, 30]"), std::string::npos) << lse.worst;
}

TEST(Limits, RefuseNonFiniteAndNonEmptyPadding) {
  Judged judged;
  judged.o.set(0, 3, 0, 0, NAN);
  EXPECT_FALSE(check_o(judged.o, judged.oracle, judged.plain).ok);
  Judged padding;  // row 39 belongs to no document
  padding.o.set(0, 39, 0, 0, 1e-30);
  EXPECT_FALSE(check_o(padding.o, padding.oracle, padding.plain).ok);
  padding.lse.set(0, 0, 39, 0, -1e30);
  EXPECT_FALSE(check_lse(padding.lse, padding.oracle, padding.plain).ok);
  padding.lse.set(0, 0, 39, 0, INFINITY);
  EXPECT_FALSE(check_lse(padding.lse, padding.oracle, padding.plain).ok);
}

TEST(Limits, RmsIsJudgedByItself) {
  const std::vector<double> expected(100, 1.0), slack(100, 0.0);
  std::vector<double> plain(100, 1.0);
  plain[0] = 1.01;  // largest error 0.01, rms 0.001
  std::vector<double> result(100, 1.0);
  result[7] = 1.019;
  EXPECT_TRUE(check_limit(result, expected, plain, slack).ok);
  result[7] = 1.021;
  EXPECT_FALSE(check_limit(result, expected, plain, slack).ok);
  result.assign(100, 1.0019);
  EXPECT_TRUE(check_limit(result, expected, plain, slack).ok);
  result.assign(100, 1.0021);
  const LimitResult verdict = check_limit(result, expected, plain, slack);
  EXPECT_FALSE(verdict.ok);
  EXPECT_NE(verdict.worst.find("rms"), std::string::npos);
  EXPECT_TRUE(check_limit({}, {}, {}, {}).ok);
}

TEST(Limits, WhereTheOracleIsNonFiniteTheResultMustBe) {
  EXPECT_FALSE(check_limit({1.0}, {NAN}, {NAN}, {0.0}).ok);
  EXPECT_TRUE(check_limit({NAN}, {NAN}, {NAN}, {0.0}).ok);
  EXPECT_TRUE(check_limit({INFINITY}, {NAN}, {NAN}, {0.0}).ok);
}

}  // namespace
}  // namespace ringattn::support
