// The oracle of the gradients, the plain implementation's gradients and their limits: against finite
// differences of the forward oracle, answers worked out by hand and the answers of other programs.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/e2e/closed_forms.h"
#include "tests/support/limits.h"
#include "tests/support/oracle.h"
#include "tests/support/oracle_backward.h"
#include "tests/support/plain_backward.h"

namespace ringattn::support {
namespace {

struct Solved {
  explicit Solved(std::string_view line, bool with_d_lse = true, std::uint64_t seed = 4)
      : problem(parsed(line)),
        inputs(random_inputs(problem, seed)),
        d_lse(with_d_lse ? &inputs.d_lse : nullptr) {}
  OracleGradients oracle(int workers = 1) const {
    return oracle_backward(problem, inputs.q, inputs.k, inputs.v, inputs.d_o, d_lse, workers);
  }
  PlainGradients plain(int workers = 1) const {
    const PlainResult forward = plain_attention(problem, inputs.q, inputs.k, inputs.v, workers);
    return plain_backward(problem, inputs.q, inputs.k, inputs.v, forward, inputs.d_o, d_lse, workers);
  }
  // What the gradients are gradients of: sum of dO * O + dlse * lse.
  double loss(const Inputs& at) const {
    const OracleResult result = oracle_attention(problem, at.q, at.k, at.v);
    double sum = 0;
    for (std::int64_t b = 0; b < problem.batch; ++b) {
      for (std::int64_t query = 0; query < problem.queries; ++query) {
        for (std::int64_t h = 0; h < problem.heads; ++h) {
          if (result.lse[result.row(b, query, h)] == -INFINITY) continue;
          if (d_lse != nullptr) sum += d_lse->get(b, h, query, 0) * result.lse[result.row(b, query, h)];
          for (std::int64_t d = 0; d < result.dim_v; ++d) {
            sum += inputs.d_o.get(b, query, h, d) * result.o[result.element(b, query, h, d)];
          }
        }
      }
    }
    return sum;
  }

  ProblemLine problem;
  Inputs inputs;
  const HostTensor* d_lse;
};

// Central differences with steps that fp32 tensors hold exactly enough: the step is what the tensor took, not
// what it was told.
void expect_differences(const Solved& solved, HostTensor Inputs::*tensor, const OracleGradient& gradient) {
  Inputs moved = solved.inputs;
  HostTensor& values = moved.*tensor;
  const auto [batch, seq, heads, dim] = gradient.shape;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t s = 0; s < seq; ++s) {
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t d = 0; d < dim; ++d) {
          const double value = values.get(b, s, h, d);
          if (std::isnan(value)) continue;  // padding
          const auto loss_at = [&](double step, double& there) {
            values.set(b, s, h, d, value + step);
            there = values.get(b, s, h, d);
            return solved.loss(moved);
          };
          double up = 0, down = 0;
          const double difference = loss_at(0x1p-10, up) - loss_at(-0x1p-10, down);
          values.set(b, s, h, d, value);
          ASSERT_NEAR(difference / (up - down), gradient.value[gradient.element(b, s, h, d)], 2e-5)
              << "at [" << b << ", " << s << ", " << h << ", " << d << "]";
        }
      }
    }
  }
}

TEST(OracleBackward, IsTheDerivativeOfTheForwardOracle) {
  for (const char* line : {"n=9 heads=4 kv_heads=2 dim=3 dim_v=2 mask=causal pass=backward",
                           "q=5 k=8 batch=2 heads=2 dim=2 mask=window:3:1 scale=0.7 pass=backward",
                           "n=12 heads=3 kv_heads=1 dim=2 mask=causal docs=4,0,6 pass=backward",
                           "q=6 k=3 dim=2 mask=causal docs=3,2 docs_k=1,2 pass=backward"}) {
    for (const bool with_d_lse : {false, true}) {
      SCOPED_TRACE(std::string(line) + (with_d_lse ? " with dlse" : ""));
      const Solved solved(line, with_d_lse);
      const OracleGradients gradients = solved.oracle();
      expect_differences(solved, &Inputs::q, gradients.d_q);
      expect_differences(solved, &Inputs::k, gradients.d_k);
      expect_differences(solved, &Inputs::v, gradients.d_v);
    }
  }
}

// Two keys with p = 1/4 and 3/4: every number by hand.
TEST(OracleBackward, ByHand) {
  const ProblemLine problem = parsed("q=1 k=2 dim=1 scale=1 pass=backward");
  Inputs inputs = zero_inputs(problem);
  inputs.q.set(0, 0, 0, 0, 1);
  inputs.k.set(0, 1, 0, 0, std::log(3.0));  // the tensor rounds to fp32
  inputs.v.set(0, 0, 0, 0, -2);
  inputs.v.set(0, 1, 0, 0, 6);
  inputs.d_o.set(0, 0, 0, 0, 2);
  inputs.d_lse.set(0, 0, 0, 0, 1);
  const OracleGradients g = oracle_backward(problem, inputs.q, inputs.k, inputs.v, inputs.d_o, &inputs.d_lse);
  // o = 4, delta = 2 * 4 - 1 = 7; dP = -4, 12; dS = 1/4 (-11), 3/4 * 5.
  EXPECT_NEAR(g.d_v.value[0], 0.5, 1e-7);
  EXPECT_NEAR(g.d_v.value[1], 1.5, 1e-7);
  EXPECT_NEAR(g.d_k.value[0], -2.75, 1e-6);
  EXPECT_NEAR(g.d_k.value[1], 3.75, 1e-6);
  EXPECT_NEAR(g.d_q.value[0], 3.75 * std::log(3.0), 1e-6);
  EXPECT_NEAR(g.d_v.abs_terms[1], 1.5, 1e-7);
  EXPECT_NEAR(g.d_k.abs_terms[0], 0.25 * (4 + 7), 1e-6);
  EXPECT_NEAR(g.d_k.abs_terms[1], 0.75 * (12 + 7), 1e-6);
  EXPECT_NEAR(g.d_q.abs_terms[0], 0.75 * (12 + 7) * std::log(3.0), 1e-6);
  // One channel: |dO.v| is the product's size, the sizes in delta add up to 0.25 * 4 + 0.75 * 12 + 1.
  EXPECT_NEAR(g.d_k.abs_products[0], 0.25 * (4 + 11), 1e-6);
  EXPECT_EQ(g.d_v.abs_products[1], 0);
  EXPECT_NEAR(g.d_q.abs_score[0], std::log(3.0), 1e-7);
  EXPECT_NEAR(g.d_k.abs_score[0], std::log(3.0), 1e-7);
}

TEST(OracleBackward, WhatNothingReachesIsZeroAndMarked) {
  const Solved solved("q=6 k=8 heads=2 kv_heads=1 dim=2 mask=causal docs=1,3 docs_k=4,2 pass=backward");
  const OracleGradients g = solved.oracle();
  // Document 1: query 0 sees keys 0..3. Document 2: queries 1..3 at -1, 0, 1 over keys 4 and 5. The rest is
  // padding.
  const std::vector<char> queries{1, 1, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0};
  const std::vector<char> keys{1, 1, 1, 1, 1, 1, 0, 0};
  EXPECT_EQ(g.d_q.reached, queries);
  EXPECT_EQ(g.d_k.reached, keys);
  EXPECT_EQ(g.d_v.reached, keys);
  for (const std::size_t element : {std::size_t{4}, std::size_t{7}, std::size_t{23}}) {
    EXPECT_EQ(g.d_q.value[element], 0);
  }
  EXPECT_EQ(g.d_k.value[13], 0);
  EXPECT_EQ(g.d_v.value[15], 0);
}

TEST(OracleBackward, WorkersDoNotMatter) {
  const Solved solved("n=40 batch=2 heads=6 kv_heads=3 dim=5 dim_v=4 dtype=bf16 mask=causal pass=backward");
  const OracleGradients one = solved.oracle(1), three = solved.oracle(3);
  EXPECT_EQ(one.d_q.value, three.d_q.value);
  EXPECT_EQ(one.d_k.value, three.d_k.value);
  EXPECT_EQ(one.d_v.abs_terms, three.d_v.abs_terms);
  const PlainGradients plain_one = solved.plain(1), plain_three = solved.plain(3);
  EXPECT_EQ(plain_one.d_q, plain_three.d_q);
  EXPECT_EQ(plain_one.d_k, plain_three.d_k);
  EXPECT_EQ(plain_one.d_v, plain_three.d_v);
}

double largest_difference(const std::vector<float>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::fabs(a[i] - b[i]));
  return largest;
}

TEST(PlainBackward, IsRightWithinItsTypesAndNotExact) {
  for (const char* dtype : {"f32", "f16", "bf16", "bf16 dtype_out=f32", "f16 dtype_grad=f32"}) {
    const Solved solved(
        std::string("n=70 heads=4 kv_heads=2 dim=33 dim_v=20 mask=causal,window:40 docs=30,39 "
                    "pass=backward dtype=") +
        dtype);
    const OracleGradients oracle = solved.oracle();
    const PlainGradients plain = solved.plain();
    const double unit = ulp(solved.problem.dtype, 1.0);
    for (const double error :
         {largest_difference(plain.d_q, oracle.d_q.value), largest_difference(plain.d_k, oracle.d_k.value),
          largest_difference(plain.d_v, oracle.d_v.value)}) {
      EXPECT_LT(error, 40 * unit) << dtype;
      EXPECT_GT(error, unit / 64) << dtype << ": this looks too exact for its type";
    }
  }
}

// dV = round(P) dO, in the input's type: 1/3 in bf16.
TEST(PlainBackward, RoundsProbabilitiesToTheInputType) {
  const ProblemLine problem = parsed("q=1 k=3 dim=1 dtype=bf16 pass=backward dtype_grad=f32");
  Inputs inputs = zero_inputs(problem);
  inputs.d_o.set(0, 0, 0, 0, 1);
  const PlainResult forward = plain_attention(problem, inputs.q, inputs.k, inputs.v);
  const PlainGradients plain =
      plain_backward(problem, inputs.q, inputs.k, inputs.v, forward, inputs.d_o, nullptr);
  EXPECT_EQ(plain.d_v[1], bf16_to_float(float_to_bf16(1.0f / 3.0f)));
}

// The oracle's d_k as a tensor, then with one thing wrong.
struct Judged : Solved {
  Judged() : Solved("n=40 heads=2 dim=16 mask=causal docs=10,29 pass=backward") {
    for (std::int64_t s = 0; s < 40; ++s) {
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t d = 0; d < 16; ++d) tensor.set(0, s, h, d, at(s, h, d));
      }
    }
  }
  double at(std::int64_t s, std::int64_t h, std::int64_t d) const {
    return gradients.d_k.value[gradients.d_k.element(0, s, h, d)];
  }
  LimitResult check() const { return check_gradient("d_k", tensor, gradients.d_k, own.d_k); }

  OracleGradients gradients = oracle();
  PlainGradients own = plain();
  HostTensor tensor{RINGATTN_DTYPE_F32, {1, 40, 2, 16}};
};

TEST(GradientLimits, TakeTheRoundedAnswerAndThePlainOne) {
  Judged judged;
  EXPECT_TRUE(judged.check().ok) << judged.check().worst;
  for (std::int64_t s = 0; s < 40; ++s) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t d = 0; d < 16; ++d) {
        judged.tensor.set(0, s, h, d, judged.own.d_k[judged.gradients.d_k.element(0, s, h, d)]);
      }
    }
  }
  EXPECT_TRUE(judged.check().ok) << judged.check().worst;
}

TEST(GradientLimits, RefuseOneWrongElementAndNameIt) {
  Judged judged;
  judged.tensor.set(0, 17, 1, 5, judged.at(17, 1, 5) + 1e-4);
  const LimitResult verdict = judged.check();
  EXPECT_FALSE(verdict.ok);
  EXPECT_NE(verdict.worst.find("d_k[0, 17, 1, 5]"), std::string::npos) << verdict.worst;
  EXPECT_GT(verdict.max_abs, verdict.limit_max);
}

TEST(GradientLimits, PaddingIsExactlyZero) {
  Judged judged;
  judged.tensor.set(0, 39, 0, 0, 1e-30);
  EXPECT_FALSE(judged.check().ok);
  judged.tensor.set(0, 39, 0, 0, NAN);
  EXPECT_FALSE(judged.check().ok);
}

TEST(GradientLimits, NonFiniteWhereTheOracleIsAndNowhereElse) {
  Judged judged;
  judged.gradients.d_k.value[judged.gradients.d_k.element(0, 3, 0, 0)] = NAN;
  EXPECT_FALSE(judged.check().ok);
  judged.tensor.set(0, 3, 0, 0, INFINITY);
  EXPECT_TRUE(judged.check().ok) << judged.check().worst;
  judged.tensor.set(0, 4, 0, 0, NAN);
  EXPECT_FALSE(judged.check().ok);
}

}  // namespace
}  // namespace ringattn::support
