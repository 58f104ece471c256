// Gradients that can be written down, for inputs whose answers are in channel 0 (closed_forms.h) and dO = 1
// there.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "tests/e2e/closed_forms.h"

namespace ringattn::support {

// Channel 0 of token s of batch row b, for every head.
using Channel0 = std::function<double(std::int64_t, std::int64_t)>;

struct ClosedGradients {
  Channel0 d_q, d_k, d_v;
  double relative = 2e-5;  // and absolute below 1
};

inline void expect_gradient(const char* name, const HostTensor& tensor, const Channel0& expected,
                            double relative) {
  SCOPED_TRACE(name);
  for (std::int64_t b = 0; b < tensor.shape(0); ++b) {
    for (std::int64_t s = 0; s < tensor.shape(1); ++s) {
      const double value = expected(b, s), size = std::max(1.0, std::fabs(value));
      const double near =
          relative * size + (tensor.dtype() == RINGATTN_DTYPE_F32 ? 0 : ulp(tensor.dtype(), size));
      for (std::int64_t h = 0; h < tensor.shape(2); ++h) {
        ASSERT_NEAR(tensor.get(b, s, h, 0), value, near) << "row " << b << " token " << s << " head " << h;
        for (std::int64_t d = 1; d < tensor.shape(3); ++d)
          ASSERT_EQ(tensor.get(b, s, h, d), 0) << "channel " << d << " of token " << s;
      }
    }
  }
}

// Runs it (outputs start as NaN) and compares every element of the three gradients.
inline RunResult expect_gradients(const ProblemLine& problem, const Inputs& inputs,
                                  const ClosedGradients& expected, const RunOptions& options = {}) {
  SCOPED_TRACE(to_line(problem));
  RunResult run = run_ring(problem, inputs, options);
  EXPECT_TRUE(run.ok()) << run.error();
  if (!run.ok()) return run;
  expect_gradient("d_q", run.d_q, expected.d_q, expected.relative);
  expect_gradient("d_k", run.d_k, expected.d_k, expected.relative);
  expect_gradient("d_v", run.d_v, expected.d_v, expected.relative);
  return run;
}

inline double zero_gradient(std::int64_t, std::int64_t) { return 0; }

// dO = 1 in channel 0 of the rows that the call has; `beyond` where it has none.
inline void set_d_o(Inputs& inputs, std::int64_t rows, double beyond = 0) {
  set_channel0(inputs.d_o, [=](std::int64_t, std::int64_t i) { return i < rows ? 1.0 : beyond; });
}

inline Inputs u1_with_d_o(const ProblemLine& problem) {
  Inputs inputs = u1_inputs(problem);
  set_d_o(inputs, problem.queries);
  return inputs;
}

// U1, causal, one sequence: dQ_i = i (i + 2) / 12, dK = 0, dV_j = sum over i = j .. S - 1 of 1 / (i + 1).
inline double u1_causal_d_q(std::int64_t i) { return static_cast<double>(i * (i + 2)) / 12; }
inline double u1_causal_d_v(std::int64_t j, std::int64_t length) {
  double sum = 0;
  for (std::int64_t i = length - 1; i >= j; --i) sum += 1 / static_cast<double>(i + 1);
  return sum;
}
inline ClosedGradients u1_causal(std::int64_t length) {
  return {[](std::int64_t, std::int64_t i) { return u1_causal_d_q(i); }, zero_gradient,
          [length](std::int64_t, std::int64_t j) { return u1_causal_d_v(j, length); }};
}

inline void expect_causal_gradients(const std::string& line, const RunOptions& options = {}) {
  const ProblemLine problem = parsed(line + " mask=causal scale=1 pass=backward");
  expect_gradients(problem, u1_with_d_o(problem), u1_causal(problem.keys), options);
}

}  // namespace ringattn::support
