// Inputs with answers that can be written down: q = 0 (every visible key counts the same), V = a number per key. The
// answer of a row is then the mean of its visible keys' numbers and lse is ln of how many they are.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/half.h"
#include "tests/support/problem_line.h"
#include "tests/support/random_data.h"
#include "tests/support/run_ring.h"

namespace ringattn::support {

inline ProblemLine parsed(std::string_view line) {
  ProblemLine problem;
  const std::optional<std::string> error = parse_problem(line, problem);
  EXPECT_FALSE(error.has_value()) << line << ": " << error.value_or("");
  return problem;
}

// Sets channel 0 of every kv head and batch row to value(batch row, key).
inline void set_channel0(HostTensor& tensor, const std::function<double(std::int64_t, std::int64_t)>& value) {
  for (std::int64_t b = 0; b < tensor.shape(0); ++b) {
    for (std::int64_t s = 0; s < tensor.shape(1); ++s) {
      for (std::int64_t h = 0; h < tensor.shape(2); ++h) tensor.set(b, s, h, 0, value(b, s));
    }
  }
}

// U1 of the public bug reports: q = 0, K = V = j in channel 0.
inline Inputs u1_inputs(const ProblemLine& problem) {
  Inputs inputs = zero_inputs(problem);
  const auto index = [](std::int64_t, std::int64_t j) { return static_cast<double>(j); };
  set_channel0(inputs.k, index);
  set_channel0(inputs.v, index);
  return inputs;
}

// U2: q = 1, K = 0, V = j in channel 0. The answers are U1's.
inline Inputs u2_inputs(const ProblemLine& problem) {
  Inputs inputs = zero_inputs(problem);
  set_channel0(inputs.q, [](std::int64_t, std::int64_t) { return 1.0; });
  set_channel0(inputs.v, [](std::int64_t, std::int64_t j) { return static_cast<double>(j); });
  return inputs;
}

struct Row {
  double o;    // channel 0
  double lse;  // -inf = no visible key
};

// fp32: 1e-5 relative, or absolute below 1. 16 bit: one unit in the last place of o; lse is fp32 always.
inline void expect_row(const RunResult& run, std::int64_t b, std::int64_t query, const Row& row) {
  for (std::int64_t h = 0; h < run.o.shape(2); ++h) {
    const double near_o = run.o.dtype() == RINGATTN_DTYPE_F32 ? 1e-5 * std::max(1.0, std::fabs(row.o))
                                                              : ulp(run.o.dtype(), row.o);
    const double lse = run.lse.get(b, h, query, 0);
    if (std::isinf(row.lse)) {
      EXPECT_EQ(run.o.get(b, query, h, 0), 0) << "row " << query << " of batch row " << b << ", head " << h;
      EXPECT_EQ(lse, row.lse) << "row " << query << " of batch row " << b << ", head " << h;
    } else {
      EXPECT_NEAR(run.o.get(b, query, h, 0), row.o, near_o)
          << "row " << query << " of batch row " << b << ", head " << h;
      EXPECT_NEAR(lse, row.lse, 1e-5 * std::max(1.0, std::fabs(row.lse)))
          << "row " << query << ", head " << h;
    }
    for (std::int64_t d = 1; d < run.o.shape(3); ++d) {
      ASSERT_EQ(run.o.get(b, query, h, d), 0) << "channel " << d << " of row " << query;
    }
  }
}

// Runs and compares every row of every batch row.
inline void expect_rows(const ProblemLine& problem, const Inputs& inputs,
                        const std::function<Row(std::int64_t, std::int64_t)>& expected,
                        const RunOptions& options = {}) {
  SCOPED_TRACE(to_line(problem));
  const RunResult run = run_ring(problem, inputs, options);
  ASSERT_TRUE(run.ok()) << run.error();
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    for (std::int64_t query = 0; query < problem.queries; ++query) {
      expect_row(run, b, query, expected(b, query));
      if (::testing::Test::HasFailure()) return;  // one wrong row tells enough
    }
  }
}

// One sequence, causal: out_i = i / 2, lse_i = ln(i + 1).
inline Row causal_row(std::int64_t i) {
  return {static_cast<double>(i) / 2, std::log(static_cast<double>(i) + 1)};
}

inline void expect_causal(const std::string& line, const RunOptions& options = {}) {
  const ProblemLine problem = parsed(line + " mask=causal");
  const auto row = [](std::int64_t, std::int64_t i) { return causal_row(i); };
  expect_rows(problem, u1_inputs(problem), row, options);
  expect_rows(problem, u2_inputs(problem), row, options);
}

// One sequence, full: out = (S - 1) / 2, lse = ln S.
inline void expect_full(const std::string& line, const RunOptions& options = {}) {
  const ProblemLine problem = parsed(line);
  const auto keys = static_cast<double>(problem.keys);
  const Row row{(keys - 1) / 2, std::log(keys)};
  expect_rows(
      problem, u1_inputs(problem), [&](std::int64_t, std::int64_t) { return row; }, options);
}

inline std::vector<std::string> three_partitions() { return {"contiguous", "striped", "zigzag"}; }

}  // namespace ringattn::support
