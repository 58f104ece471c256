// Errors must not grow with the ring (D21's last sentence, and public bug report B006).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/e2e/closed_forms.h"
#include "tests/e2e/process_counts.h"
#include "tests/support/oracle.h"

namespace ringattn::support {
namespace {

struct Errors {
  double max = 0, rms = 0;
};

Errors errors_of(const std::vector<float>& result, const std::vector<double>& expected) {
  Errors errors;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const double error = std::fabs(result[i] - expected[i]);
    errors.max = std::max(errors.max, error);
    errors.rms += error * error;
  }
  errors.rms = std::sqrt(errors.rms / static_cast<double>(result.size()));
  return errors;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return (values[half] + values[values.size() - 1 - half]) / 2;
}

// lse of a run as the oracle lays it out, [query, head] of one batch row.
std::vector<float> lse_rows(const HostTensor& lse) {
  std::vector<float> rows;
  for (std::int64_t query = 0; query < lse.shape(2); ++query) {
    for (std::int64_t head = 0; head < lse.shape(1); ++head) {
      rows.push_back(static_cast<float>(lse.get(0, head, query, 0)));
    }
  }
  return rows;
}

class ErrorGrowth : public ::testing::TestWithParam<const char*> {};

TEST_P(ErrorGrowth, SixteenRanksAreAsGoodAsOne) {
  ProblemLine problem = parsed(GetParam());
  std::vector<double> rms_o, max_o, rms_lse, max_lse;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    const Inputs inputs = random_inputs(problem, seed);
    const OracleResult oracle = oracle_attention(problem, inputs.q, inputs.k, inputs.v);
    Errors o[2], lse[2];
    for (const int many : {0, 1}) {
      problem.ranks = many == 1 ? 16 : 1;
      const RunResult run = run_ring(problem, inputs);
      ASSERT_TRUE(run.ok()) << run.error();
      o[many] = errors_of(run.o.to_floats(), oracle.o);
      lse[many] = errors_of(lse_rows(run.lse), oracle.lse);
    }
    rms_o.push_back(o[1].rms / o[0].rms);
    max_o.push_back(o[1].max / o[0].max);
    rms_lse.push_back(lse[1].rms / lse[0].rms);
    max_lse.push_back(lse[1].max / lse[0].max);
  }
  EXPECT_LE(median(rms_o), 1.1);
  EXPECT_LE(median(max_o), 1.5);
  EXPECT_LE(median(rms_lse), 1.1);
  EXPECT_LE(median(max_lse), 1.5);
}

INSTANTIATE_TEST_SUITE_P(Types, ErrorGrowth,
                         ::testing::Values("n=768 dim=64 dtype=f32 mask=causal partition=zigzag",
                                           "n=768 dim=64 dtype=bf16 mask=causal partition=zigzag",
                                           "n=768 dim=64 dtype=f16 mask=causal partition=striped",
                                           "n=512 dim=64 dtype=f32 partition=contiguous"));

TEST(CaseB006, ErrorDoesNotGrowWithTheRing) {
  const std::int64_t n = 4096 / (kOwnAllocator ? 1 : 8);  // sanitizers: the same with a shorter row
  ProblemLine problem =
      parsed("n=" + std::to_string(n) + " heads=4 dim=64 dtype=bf16 mask=causal partition=zigzag");
  const Inputs inputs = random_inputs(problem, 0);
  const OracleResult oracle = oracle_attention(problem, inputs.q, inputs.k, inputs.v, 2);
  double max_of_one = 0;
  for (const int ranks : {1, 2, 4, 8, 16}) {
    problem.ranks = ranks;
    const RunResult run = run_ring(problem, inputs);
    ASSERT_TRUE(run.ok()) << run.error();
    const Errors o = errors_of(run.o.to_floats(), oracle.o);
    if (ranks == 1) max_of_one = o.max;
    EXPECT_LE(o.max, 1.5 * max_of_one) << "ranks " << ranks;
    const std::vector<float> lse = lse_rows(run.lse);
    for (std::size_t i = 0; i < lse.size(); ++i) {
      ASSERT_LE(std::fabs(lse[i] - oracle.lse[i]), 1e-5 * std::max(1.0, std::fabs(oracle.lse[i])))
          << "ranks " << ranks;
    }
  }
}

}  // namespace
}  // namespace ringattn::support
