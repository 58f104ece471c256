// Q, K, V of a real language model on real text, against answers computed in fp64 by others (shared/data/README.md).
#include "tests/e2e/real_data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <tuple>

#include "tests/e2e/closed_forms.h"
#include "tests/support/limits.h"
#include "tests/support/oracle.h"
#include "tests/support/plain.h"

namespace ringattn::support {
namespace {

const std::string kProblem = "n=2048 heads=9 kv_heads=3 dim=64 dtype=bf16 mask=causal";

// Loaded once: the inputs, the answers and the yardstick of the limits.
struct RealData {
  ProblemLine problem = parsed(kProblem);
  Inputs inputs;
  OracleResult oracle;
  PlainResult plain;
  double largest_o = 0, largest_lse = 0;  // differences between our oracle and the answers in the file

  explicit RealData(const std::string& path) {
    const tool::SafetensorsFile file(path);
    inputs.q = tensor_of(file, "q", RINGATTN_DTYPE_BF16, {1, 2048, 9, 64});
    inputs.k = tensor_of(file, "k", RINGATTN_DTYPE_BF16, {1, 2048, 3, 64});
    inputs.v = tensor_of(file, "v", RINGATTN_DTYPE_BF16, {1, 2048, 3, 64});
    oracle = oracle_attention(problem, inputs.q, inputs.k, inputs.v, 2);
    plain = plain_attention(problem, inputs.q, inputs.k, inputs.v, 2);
    take_answers(tensor_of(file, "o_ref", RINGATTN_DTYPE_F32, {1, 2048, 9, 64}),
                 tensor_of(file, "lse_ref", RINGATTN_DTYPE_F32, {1, 9, 2048, 1}));
  }

  // The answers of the file take the place of our oracle's; its slack terms stay.
  void take_answers(const HostTensor& o, const HostTensor& lse) {
    for (std::int64_t query = 0; query < 2048; ++query) {
      for (std::int64_t head = 0; head < 9; ++head) {
        double& own_lse = oracle.lse[oracle.row(0, query, head)];
        largest_lse = std::max(largest_lse, std::fabs(own_lse - lse.get(0, head, query, 0)));
        own_lse = lse.get(0, head, query, 0);
        for (std::int64_t d = 0; d < 64; ++d) {
          double& own_o = oracle.o[oracle.element(0, query, head, d)];
          largest_o = std::max(largest_o, std::fabs(own_o - o.get(0, query, head, d)));
          own_o = o.get(0, query, head, d);
        }
      }
    }
  }
};

const RealData* real_data() {
  static const std::unique_ptr<RealData> data = [] {
    const std::string path = data_folder() + "/smollm2-layer00.safetensors";
    return std::filesystem::exists(path) ? std::make_unique<RealData>(path) : nullptr;
  }();
  return data.get();
}

#define SKIP_WITHOUT_DATA(data)                                                                           \
  if ((data) == nullptr) {                                                                                \
    GTEST_SKIP() << "no smollm2-layer00.safetensors in " << data_folder() << " (set RINGATTN_TEST_DATA)"; \
  }

class RealDataTest : public ::testing::TestWithParam<std::tuple<int, std::string>> {};

TEST_P(RealDataTest, IsWithinTheLimits) {
  const RealData* data = real_data();
  SKIP_WITHOUT_DATA(data);
  const auto& [ranks, partition] = GetParam();
  const ProblemLine problem =
      parsed(kProblem + " partition=" + partition + " ranks=" + std::to_string(ranks));
  const RunResult run = run_ring(problem, data->inputs);
  ASSERT_TRUE(run.ok()) << run.error();
  const LimitResult o = check_o(run.o, data->oracle, data->plain);
  const LimitResult lse = check_lse(run.lse, data->oracle, data->plain);
  EXPECT_TRUE(o.ok) << o.worst;
  EXPECT_TRUE(lse.ok) << lse.worst;
}

INSTANTIATE_TEST_SUITE_P(SmolLm2, RealDataTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 5, 8),
                                            ::testing::ValuesIn(three_partitions())),
                         [](const auto& info) {
                           return std::get<1>(info.param) + std::to_string(std::get<0>(info.param));
                         });

// Two independent fp64 programs wrote the file; our oracle is a third one.
TEST(RealDataOracle, AgreesWithTheAnswersInTheFile) {
  const RealData* data = real_data();
  SKIP_WITHOUT_DATA(data);
  EXPECT_LT(data->largest_o, 5e-7);
  EXPECT_LT(data->largest_lse, 5e-6);
}

}  // namespace
}  // namespace ringattn::support
