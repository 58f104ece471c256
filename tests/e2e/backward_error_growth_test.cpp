// Errors of the gradients must not grow with the ring (D21's last sentence).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tests/e2e/closed_forms.h"
#include "tests/support/oracle_backward.h"

namespace ringattn::support {
namespace {

struct Errors {
  double max = 0, rms = 0;
};

Errors errors_of(const HostTensor& result, const OracleGradient& oracle) {
  const std::vector<float> values = result.to_floats();
  Errors errors;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double error = std::fabs(values[i] - oracle.value[i]);
    errors.max = std::max(errors.max, error);
    errors.rms += error * error;
  }
  errors.rms = std::sqrt(errors.rms / static_cast<double>(values.size()));
  return errors;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return (values[half] + values[values.size() - 1 - half]) / 2;
}

class BackwardErrorGrowth : public ::testing::TestWithParam<const char*> {};

TEST_P(BackwardErrorGrowth, SixteenRanksAreAsGoodAsOne) {
  ProblemLine problem = parsed(std::string(GetParam()) + " pass=backward");
  constexpr const char* kNames[] = {"d_q", "d_k", "d_v"};
  std::array<std::vector<double>, 3> max, rms;  // sixteen ranks over one, of every seed
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    const Inputs inputs = random_inputs(problem, seed);
    const OracleGradients oracle =
        oracle_backward(problem, inputs.q, inputs.k, inputs.v, inputs.d_o, nullptr, 2);
    std::array<Errors, 3> errors[2];
    for (const int many : {0, 1}) {
      problem.ranks = many == 1 ? 16 : 1;
      const RunResult run = run_ring(problem, inputs);
      ASSERT_TRUE(run.ok()) << run.error();
      errors[many] = {errors_of(run.d_q, oracle.d_q), errors_of(run.d_k, oracle.d_k),
                      errors_of(run.d_v, oracle.d_v)};
    }
    for (std::size_t i = 0; i < 3; ++i) {
      max[i].push_back(errors[1][i].max / errors[0][i].max);
      rms[i].push_back(errors[1][i].rms / errors[0][i].rms);
    }
  }
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_LE(median(rms[i]), 1.1) << kNames[i];
    EXPECT_LE(median(max[i]), 1.5) << kNames[i];
  }
}

INSTANTIATE_TEST_SUITE_P(
    Types, BackwardErrorGrowth,
    ::testing::Values("n=512 dim=64 dtype=f32 mask=causal partition=zigzag",
                      "n=512 heads=2 kv_heads=1 dim=64 dtype=bf16 mask=causal partition=zigzag",
                      "n=512 dim=64 dtype=bf16 dtype_grad=f32 dtype_out=f32 mask=causal partition=striped",
                      "n=512 dim=64 dtype=f16 mask=causal partition=striped",
                      "n=384 dim=64 dtype=f16 dtype_grad=f32 partition=contiguous",
                      "n=384 dim=64 dtype=f32 partition=contiguous"));

}  // namespace
}  // namespace ringattn::support
