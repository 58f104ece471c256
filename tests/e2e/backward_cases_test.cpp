// Gradients that can be written down: uniform probabilities (q = 0 or k = 0), one key a row, gradients
// through lse alone, and what nothing flows into.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/e2e/closed_forms.h"

namespace ringattn::support {
namespace {

// The value in channel 0 for a token of every head; the other channels are 0.
using Formula = std::function<double(std::int64_t)>;

void expect_channel0(const char* name, const HostTensor& tensor, const Formula& expected) {
  SCOPED_TRACE(name);
  for (std::int64_t s = 0; s < tensor.shape(1); ++s) {
    const double value = expected(s);
    const double near = tensor.dtype() == RINGATTN_DTYPE_F32
                            ? 2e-5 * std::max(1.0, std::fabs(value))
                            : 4 * ulp(tensor.dtype(), std::max(1.0, std::fabs(value)));
    for (std::int64_t h = 0; h < tensor.shape(2); ++h) {
      ASSERT_NEAR(tensor.get(0, s, h, 0), value, near) << "token " << s << " head " << h;
      for (std::int64_t d = 1; d < tensor.shape(3); ++d) {
        ASSERT_EQ(tensor.get(0, s, h, d), 0) << "channel " << d << " of token " << s;
      }
    }
  }
}

void expect_gradients(const ProblemLine& problem, const Inputs& inputs, const Formula& d_q,
                      const Formula& d_k, const Formula& d_v, bool with_d_lse = false) {
  SCOPED_TRACE(to_line(problem));
  RunOptions options;
  options.with_d_lse = with_d_lse;
  const RunResult run = run_ring(problem, inputs, options);
  ASSERT_TRUE(run.ok()) << run.error();
  expect_channel0("d_q", run.d_q, d_q);
  expect_channel0("d_k", run.d_k, d_k);
  expect_channel0("d_v", run.d_v, d_v);
}

double zero(std::int64_t) { return 0; }
double one(std::int64_t, std::int64_t) { return 1; }
double index(std::int64_t, std::int64_t j) { return static_cast<double>(j); }

// Rings of every size that the closed forms are tried on.
std::vector<std::string> rings() {
  std::vector<std::string> lines{" ranks=1"};
  for (const std::string& partition : three_partitions()) {
    for (const int ranks : {3, 4}) {
      lines.push_back(" partition=" + partition + " ranks=" + std::to_string(ranks));
    }
  }
  return lines;
}

// A row that sees one key alone: P = 1 and dO.V = delta, so dV is what flows into the rows and the rest
// cancels.
TEST(BackwardCases, OneKeyARow) {
  for (const std::string& ring : rings()) {
    for (const char* dtype : {"f32", "bf16", "f16"}) {
      const ProblemLine problem = parsed(
          "n=37 heads=4 kv_heads=2 dim=8 mask=window:0:0 pass=backward dtype=" + std::string(dtype) + ring);
      Inputs inputs = zero_inputs(problem);
      set_channel0(inputs.v, [](std::int64_t, std::int64_t j) { return static_cast<double>(j % 7); });
      set_channel0(inputs.k, index);
      set_channel0(inputs.d_o, [](std::int64_t, std::int64_t i) { return static_cast<double>(i % 5 + 1); });
      expect_gradients(problem, inputs, zero, zero, [](std::int64_t j) {
        return 2.0 * static_cast<double>(j % 5 + 1);
      });  // two heads a kv head
    }
  }
}

// With any scores at all: dQ and dK vanish up to the rounding of dO.V - delta.
TEST(BackwardCases, OneKeyARowWithRandomScores) {
  for (const std::string& ring : rings()) {
    const ProblemLine problem = parsed("n=50 heads=2 dim=32 mask=window:0:0 pass=backward" + ring);
    const Inputs inputs = random_inputs(problem, 9);
    const RunResult run = run_ring(problem, inputs);
    ASSERT_TRUE(run.ok()) << run.error();
    for (std::int64_t s = 0; s < 50; ++s) {
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t d = 0; d < 32; ++d) {
          ASSERT_NEAR(run.d_q.get(0, s, h, d), 0, 1e-4);
          ASSERT_NEAR(run.d_k.get(0, s, h, d), 0, 1e-4);
          ASSERT_NEAR(run.d_v.get(0, s, h, d), inputs.d_o.get(0, s, h, d), 1e-5);
        }
      }
    }
  }
}

// q = 0, k = v = j, dO = 1: uniform P over n keys, dS = (j - mean) / n. dQ is scale times the variance of the
// indices.
TEST(BackwardCases, UniformProbabilitiesFull) {
  for (const std::string& ring : rings()) {
    const ProblemLine problem = parsed("n=41 heads=2 dim=4 pass=backward" + ring);
    Inputs inputs = u1_inputs(problem);
    set_channel0(inputs.d_o, one);
    const double variance = (41.0 * 41 - 1) / 12;
    expect_gradients(
        problem, inputs, [&](std::int64_t) { return 0.5 * variance; }, zero,
        [](std::int64_t) { return 1.0; });
  }
}

double sum_over_later_rows(std::int64_t j, std::int64_t rows, const Formula& term) {
  double sum = 0;
  for (std::int64_t i = j; i < rows; ++i) sum += term(i) / static_cast<double>(i + 1);
  return sum;
}

// The same, causal: row i has i + 1 keys.
TEST(BackwardCases, UniformProbabilitiesCausal) {
  for (const std::string& ring : rings()) {
    const ProblemLine problem = parsed("n=41 heads=2 dim=4 mask=causal pass=backward" + ring);
    Inputs inputs = u1_inputs(problem);
    set_channel0(inputs.d_o, one);
    const auto d_q = [](std::int64_t i) { return 0.5 * (static_cast<double>((i + 1) * (i + 1)) - 1) / 12; };
    const auto d_v = [](std::int64_t j) {
      return sum_over_later_rows(j, 41, [](std::int64_t) { return 1.0; });
    };
    expect_gradients(problem, inputs, d_q, zero, d_v);
  }
}

// q = 1, k = 0, v = j: the other side, dK_j = scale * sum over rows i >= j of (j - i / 2) / (i + 1).
TEST(BackwardCases, GradientOfTheKeys) {
  for (const std::string& ring : rings()) {
    const ProblemLine problem = parsed("n=41 heads=3 kv_heads=1 dim=4 mask=causal pass=backward" + ring);
    Inputs inputs = u2_inputs(problem);
    set_channel0(inputs.d_o, one);
    const auto d_k = [](std::int64_t j) {
      const auto difference = [j](std::int64_t i) {
        return static_cast<double>(j) - static_cast<double>(i) / 2;
      };
      return 3 * 0.5 * sum_over_later_rows(j, 41, difference);
    };
    const auto d_v = [](std::int64_t j) {
      return 3 * sum_over_later_rows(j, 41, [](std::int64_t) { return 1.0; });
    };
    expect_gradients(problem, inputs, zero, d_k, d_v);
  }
}

// Nothing flows into O: dS = P dlse, so dQ_i = scale * dlse_i * (mean of the keys), and dV = 0 exactly.
TEST(BackwardCases, ThroughLseAlone) {
  for (const std::string& ring : rings()) {
    const ProblemLine problem = parsed("n=41 heads=2 dim=4 mask=causal pass=backward" + ring);
    Inputs inputs = u1_inputs(problem);
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t i = 0; i < 41; ++i) inputs.d_lse.set(0, h, i, 0, static_cast<double>(i % 3));
    }
    const auto d_q = [](std::int64_t i) {
      return 0.5 * static_cast<double>(i % 3) * static_cast<double>(i) / 2;
    };
    expect_gradients(problem, inputs, d_q, zero, zero, true);
    inputs = u2_inputs(problem);
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t i = 0; i < 41; ++i) inputs.d_lse.set(0, h, i, 0, 1);
    }
    const auto d_k = [](std::int64_t j) {
      return 0.5 * sum_over_later_rows(j, 41, [](std::int64_t) { return 1.0; });
    };
    expect_gradients(problem, inputs, zero, d_k, zero, true);
  }
}

void expect_zero(const HostTensor& tensor, std::int64_t token) {
  for (std::int64_t h = 0; h < tensor.shape(2); ++h) {
    for (std::int64_t d = 0; d < tensor.shape(3); ++d) {
      ASSERT_EQ(tensor.get(0, token, h, d), 0) << "token " << token << " head " << h;
    }
  }
}

// Random data; queries, keys: the tokens that nothing flows into.
void expect_zeros(const std::string& line, const std::vector<std::int64_t>& queries,
                  const std::vector<std::int64_t>& keys) {
  SCOPED_TRACE(line);
  const ProblemLine problem = parsed(line + " heads=2 dim=8 pass=backward");
  for (const bool with_d_lse : {false, true}) {
    RunOptions options;
    options.with_d_lse = with_d_lse;
    options.repeat = 2;
    const RunResult run = run_ring(problem, random_inputs(problem, 5), options);
    ASSERT_TRUE(run.ok()) << run.error();
    for (const std::int64_t query : queries) expect_zero(run.d_q, query);
    for (const std::int64_t key : keys) {
      expect_zero(run.d_k, key);
      expect_zero(run.d_v, key);
    }
  }
}

TEST(BackwardCases, WhatNothingFlowsIntoIsExactlyZero) {
  for (const int ranks : {1, 2, 3, 8}) {
    const std::string ring = " ranks=" + std::to_string(ranks);
    expect_zeros("q=5 k=2 mask=causal query_cut=by_index" + ring, {0, 1, 2}, {});
    expect_zeros("q=2 k=6 mask=window:0:0 query_cut=by_index" + ring, {}, {0, 1, 2, 3});
    expect_zeros("n=9 docs=2,3 mask=causal partition=zigzag" + ring, {5, 6, 7, 8}, {5, 6, 7, 8});
    expect_zeros("n=6 docs=none" + ring, {0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5});
    expect_zeros("q=6 k=6 docs=3,0,3 docs_k=0,4,2 scope=document query_cut=by_index" + ring, {0, 1, 2},
                 {0, 1, 2, 3});
    expect_zeros("q=6 k=6 mask=causal offset=-6 query_cut=by_index" + ring, {0, 1, 2, 3, 4, 5},
                 {0, 1, 2, 3, 4, 5});
  }
}

}  // namespace
}  // namespace ringattn::support
