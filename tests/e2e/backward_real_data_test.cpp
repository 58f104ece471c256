// Gradients of a real language model's layer, against answers computed in fp64 by others
// (shared/data/README.md).
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <tuple>

#include "tests/e2e/closed_forms.h"
#include "tests/e2e/real_data.h"
#include "tests/support/limits.h"
#include "tests/support/oracle.h"
#include "tests/support/oracle_backward.h"
#include "tests/support/plain.h"
#include "tests/support/plain_backward.h"

namespace ringattn::support {
namespace {

const std::string kProblem =
    "n=2048 heads=9 kv_heads=3 dim=64 dtype=bf16 mask=causal scale=0.125 pass=backward";

// The answers of the file take the place of our oracle's; its slack terms stay. Returns the largest
// difference.
double take_answers(std::vector<double>& own, const HostTensor& answers) {
  const std::vector<float> values = answers.to_floats();
  EXPECT_EQ(values.size(), own.size());
  double largest = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    largest = std::max(largest, std::fabs(own[i] - values[i]));
    own[i] = values[i];
  }
  return largest;
}

// Loaded once: the inputs, the answers and the yardstick of the limits.
struct BackwardData {
  ProblemLine problem = parsed(kProblem);
  Inputs inputs;
  OracleResult oracle;
  PlainResult plain;
  OracleGradients gradients;
  PlainGradients plain_gradients;
  double d_q = 0, d_k = 0, d_v = 0;  // differences between our oracle and the answers in the file

  explicit BackwardData(const std::string& path) {
    constexpr std::array<std::int64_t, 4> kQuery{1, 2048, 9, 64}, kKey{1, 2048, 3, 64};
    const tool::SafetensorsFile file(path);
    inputs.q = tensor_of(file, "q", RINGATTN_DTYPE_BF16, kQuery);
    inputs.k = tensor_of(file, "k", RINGATTN_DTYPE_BF16, kKey);
    inputs.v = tensor_of(file, "v", RINGATTN_DTYPE_BF16, kKey);
    inputs.d_o = tensor_of(file, "do", RINGATTN_DTYPE_BF16, kQuery);
    oracle = oracle_attention(problem, inputs.q, inputs.k, inputs.v, 2);
    plain = plain_attention(problem, inputs.q, inputs.k, inputs.v, 2);
    gradients = oracle_backward(problem, inputs.q, inputs.k, inputs.v, inputs.d_o, nullptr, 2);
    plain_gradients = plain_backward(problem, inputs.q, inputs.k, inputs.v, plain, inputs.d_o, nullptr, 2);
    take_answers(oracle.o, tensor_of(file, "o_ref", RINGATTN_DTYPE_F32, kQuery));
    d_q = take_answers(gradients.d_q.value, tensor_of(file, "dq_ref", RINGATTN_DTYPE_F32, kQuery));
    d_k = take_answers(gradients.d_k.value, tensor_of(file, "dk_ref", RINGATTN_DTYPE_F32, kKey));
    d_v = take_answers(gradients.d_v.value, tensor_of(file, "dv_ref", RINGATTN_DTYPE_F32, kKey));
  }
};

const BackwardData* backward_data() {
  static const std::unique_ptr<BackwardData> data = [] {
    const std::string path = data_folder() + "/smollm2-layer14-backward.safetensors";
    return std::filesystem::exists(path) ? std::make_unique<BackwardData>(path) : nullptr;
  }();
  return data.get();
}

#define SKIP_WITHOUT_DATA(data)                                                    \
  if ((data) == nullptr) {                                                         \
    GTEST_SKIP() << "no smollm2-layer14-backward.safetensors in " << data_folder() \
                 << " (set RINGATTN_TEST_DATA)";                                   \
  }

void expect_within(const BackwardData& data, const ProblemLine& problem, const PlainGradients& plain) {
  const RunResult run = run_ring(problem, data.inputs);
  ASSERT_TRUE(run.ok()) << run.error();
  for (const LimitResult& limit :
       {check_o(run.o, data.oracle, data.plain), check_lse(run.lse, data.oracle, data.plain),
        check_gradient("d_q", run.d_q, data.gradients.d_q, plain.d_q),
        check_gradient("d_k", run.d_k, data.gradients.d_k, plain.d_k),
        check_gradient("d_v", run.d_v, data.gradients.d_v, plain.d_v)}) {
    EXPECT_TRUE(limit.ok) << limit.worst;
  }
}

class BackwardRealData : public ::testing::TestWithParam<std::tuple<int, std::string>> {};

TEST_P(BackwardRealData, IsWithinTheLimits) {
  const BackwardData* data = backward_data();
  SKIP_WITHOUT_DATA(data);
  const auto& [ranks, partition] = GetParam();
  const ProblemLine problem =
      parsed(kProblem + " partition=" + partition + " ranks=" + std::to_string(ranks));
  expect_within(*data, problem, data->plain_gradients);
}

INSTANTIATE_TEST_SUITE_P(SmolLm2, BackwardRealData,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 5, 8),
                                            ::testing::ValuesIn(three_partitions())),
                         [](const auto& info) {
                           return std::get<1>(info.param) + std::to_string(std::get<0>(info.param));
                         });

// In fp32 the plain implementation is the same but for its last rounding, so its limits are a little
// narrower.
TEST(BackwardRealDataOracle, GradientsInFp32AreWithinTheirOwnLimits) {
  const BackwardData* data = backward_data();
  SKIP_WITHOUT_DATA(data);
  const ProblemLine problem = parsed(kProblem + " dtype_grad=f32 partition=zigzag ranks=4");
  const Inputs& inputs = data->inputs;
  const PlainGradients plain =
      plain_backward(problem, inputs.q, inputs.k, inputs.v, data->plain, inputs.d_o, nullptr, 2);
  expect_within(*data, problem, plain);
}

// Two independent fp64 programs and automatic differentiation agree on the file; our oracle is one more. The
// answers are rounded to fp32: half a unit of 128 is 4e-6.
TEST(BackwardRealDataOracle, AgreesWithTheAnswersInTheFile) {
  const BackwardData* data = backward_data();
  SKIP_WITHOUT_DATA(data);
  EXPECT_LT(data->d_q, 1e-6);
  EXPECT_LT(data->d_k, 1e-5);
  EXPECT_LT(data->d_v, 1e-5);
}

}  // namespace
}  // namespace ringattn::support
