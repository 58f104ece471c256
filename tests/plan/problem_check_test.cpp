// Every field of a description: its bad values are refused with field, value and what was expected; its good
// ones are
// taken with all defaults filled in.
#include "plan/problem_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace ringattn::plan {
namespace {

constexpr std::int64_t kTooLong = (std::int64_t{1} << 48) + 1;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

ringattn_plan_desc good() {
  ringattn_plan_desc desc = RINGATTN_STRUCT(ringattn_plan_desc);
  desc.batch = 1;
  desc.seq_q = desc.seq_k = 64;
  desc.heads = 4;
  desc.head_dim_qk = 16;
  desc.dtype = RINGATTN_DTYPE_F32;
  return desc;
}

struct Bad {
  const char* name;
  std::function<void(ringattn_plan_desc&)> bend;
  std::vector<std::string> words;
};
void PrintTo(const Bad& bad, std::ostream* out) { *out << bad.name; }

const ringattn_run kRuns[] = {{0, 32, 1}, {32, 32, 1}};

std::vector<Bad> bad_sizes() {
  return {
      {"batch_negative", [](auto& d) { d.batch = -1; }, {"batch: -1", "0.."}},
      {"batch_huge", [](auto& d) { d.batch = kTooLong; }, {"batch: 281474976710657", "281474976710656"}},
      {"seq_q_negative", [](auto& d) { d.seq_q = -3; }, {"seq_q: -3", "0.."}},
      {"seq_q_huge", [](auto& d) { d.seq_q = kTooLong; }, {"seq_q: 281474976710657"}},
      {"seq_k_negative", [](auto& d) { d.seq_k = -3; }, {"seq_k: -3", "0.."}},
      {"seq_k_least",
       [](auto& d) { d.seq_k = std::numeric_limits<std::int64_t>::min(); },
       {"seq_k: -9223372036854775808"}},
      {"heads_zero", [](auto& d) { d.heads = 0; }, {"heads: 0", "1.."}},
      {"kv_heads_negative", [](auto& d) { d.kv_heads = -1; }, {"kv_heads: -1", "0.."}},
      {"kv_heads_no_divisor", [](auto& d) { d.kv_heads = 3; }, {"kv_heads: 3", "divisor of heads (4)"}},
      {"kv_heads_more_than_heads", [](auto& d) { d.kv_heads = 8; }, {"kv_heads: 8", "divisor of heads (4)"}},
      {"dim_zero", [](auto& d) { d.head_dim_qk = 0; }, {"head_dim_qk: 0", "1..576"}},
      {"dim_huge", [](auto& d) { d.head_dim_qk = 577; }, {"head_dim_qk: 577", "1..576"}},
      {"dim_v_negative", [](auto& d) { d.head_dim_v = -1; }, {"head_dim_v: -1", "0..576"}},
      {"dim_v_huge", [](auto& d) { d.head_dim_v = 577; }, {"head_dim_v: 577", "0..576"}},
      {"max_sequences_negative", [](auto& d) { d.max_sequences = -1; }, {"max_sequences: -1", "0.."}},
      {"max_sequences_below_batch",
       [](auto& d) { d.batch = 3, d.max_sequences = 2; },
       {"max_sequences: 2", "batch (3)"}},
      {"product_overflows",
       [](auto& d) { d.batch = d.heads = std::int64_t{1} << 40; },
       {"1099511627776", "overflow"}},
      {"product_just_overflows",
       [](auto& d) { d.seq_q = d.seq_k = std::int64_t{1} << 48, d.heads = 1 << 8, d.head_dim_qk = 16; },
       {"overflow"}},
  };
}

std::vector<Bad> bad_numbers() {
  return {
      {"dtype_missing", [](auto& d) { d.dtype = 0; }, {"dtype: 0", "F32 (1)", "BF16 (3)"}},
      {"dtype_i32", [](auto& d) { d.dtype = RINGATTN_DTYPE_I32; }, {"dtype: 4"}},
      {"dtype_negative", [](auto& d) { d.dtype = -1; }, {"dtype: -1"}},
      {"dtype_out_i64", [](auto& d) { d.dtype_out = RINGATTN_DTYPE_I64; }, {"dtype_out: 5"}},
      {"dtype_out_narrower", [](auto& d) { d.dtype_out = RINGATTN_DTYPE_BF16; }, {"dtype_out: 3", "F32 (1)"}},
      {"dtype_out_other_half",
       [](auto& d) { d.dtype = RINGATTN_DTYPE_F16, d.dtype_out = RINGATTN_DTYPE_BF16; },
       {"dtype_out: 3", "dtype (2)"}},
      {"accuracy", [](auto& d) { d.accuracy = 2; }, {"accuracy: 2", "0..1"}},
      {"accuracy_negative", [](auto& d) { d.accuracy = -1; }, {"accuracy: -1", "0..1"}},
      {"scale_negative", [](auto& d) { d.scale = -0.5; }, {"scale: -0.5", "positive finite"}},
      {"scale_nan", [](auto& d) { d.scale = std::nan(""); }, {"scale: nan"}},
      {"scale_infinite", [](auto& d) { d.scale = kInfinity; }, {"scale: inf"}},
      {"schedule", [](auto& d) { d.schedule = 2; }, {"schedule: 2", "0..1"}},
      {"flags", [](auto& d) { d.flags = 8; }, {"flags: 8", "PLAN_TRACE (1)", "PLAN_BACKWARD (4)"}},
      {"flags_top_bit", [](auto& d) { d.flags = 1u << 31; }, {"flags: 2147483648"}},
      {"mask_unknown", [](auto& d) { d.mask = 8; }, {"mask: 8", "CAUSAL (1)"}},
      {"window_left",
       [](auto& d) { d.mask = RINGATTN_MASK_WINDOW_LEFT, d.window_left = -1; },
       {"window_left: -1", "0.."}},
      {"window_right",
       [](auto& d) { d.mask = RINGATTN_MASK_WINDOW_RIGHT, d.window_right = -1; },
       {"window_right: -1", "0.."}},
      {"causal_with_right_window",
       [](auto& d) { d.mask = RINGATTN_MASK_CAUSAL | RINGATTN_MASK_WINDOW_RIGHT, d.window_right = 5; },
       {"window_right: 5", "CAUSAL"}},
  };
}

void make_explicit(ringattn_plan_desc& d) {
  d.partition = RINGATTN_PARTITION_EXPLICIT;
  d.runs_k = kRuns;
  d.runs_k_count = 2;
}

std::vector<Bad> bad_partitions() {
  static const ringattn_run negative{-1, 4, 1}, past_end{60, 5, 1}, strided_past_end{0, 33, 2},
      backwards{10, 2, -1}, overflow{1, 3, std::numeric_limits<std::int64_t>::max()},
      long_run{0, std::numeric_limits<std::int64_t>::max(), 1};
  const auto with = [](const ringattn_run& run) {
    return [&run](ringattn_plan_desc& d) { make_explicit(d), d.runs_k = &run, d.runs_k_count = 1; };
  };
  return {
      {"partition", [](auto& d) { d.partition = 4; }, {"partition: 4", "0..3"}},
      {"partition_negative", [](auto& d) { d.partition = -1; }, {"partition: -1"}},
      {"query_cut", [](auto& d) { d.query_cut = 3; }, {"query_cut: 3", "0..2"}},
      {"scope", [](auto& d) { d.scope = 3; }, {"scope: 3", "0..2"}},
      {"stripe_negative",
       [](auto& d) { d.partition = RINGATTN_PARTITION_STRIPED, d.stripe = -1; },
       {"stripe: -1", "0.."}},
      {"stripe_without_striped", [](auto& d) { d.stripe = 4; }, {"stripe: 4", "STRIPED"}},
      {"like_keys_in_scope_call",
       [](auto& d) { d.query_cut = RINGATTN_QUERY_CUT_LIKE_KEYS, d.scope = RINGATTN_SCOPE_CALL; },
       {"query_cut: LIKE_KEYS", "CAPACITY"}},
      {"runs_without_explicit", [](auto& d) { d.runs_k_count = 1; }, {"runs_k_count", "EXPLICIT"}},
      {"explicit_in_scope_call",
       [](auto& d) { make_explicit(d), d.scope = RINGATTN_SCOPE_CALL; },
       {"scope: 1", "CAPACITY (0)"}},
      {"runs_null", [](auto& d) { make_explicit(d), d.runs_k = nullptr; }, {"runs_k: NULL", "2 runs"}},
      {"runs_count_negative", [](auto& d) { make_explicit(d), d.runs_k_count = -1; }, {"runs_k_count: -1"}},
      {"runs_q_where_queries_follow_keys",
       [](auto& d) { make_explicit(d), d.runs_q = kRuns, d.runs_q_count = 1; },
       {"runs_q_count: 1"}},
      {"run_negative", with(negative), {"runs_k[0]: first -1", "0..63"}},
      {"run_past_end", with(past_end), {"runs_k[0]: first 60, length 5"}},
      {"run_strided_past_end", with(strided_past_end), {"stride 2"}},
      {"run_backwards", with(backwards), {"stride -1"}},
      {"run_overflows", with(overflow), {"stride 9223372036854775807"}},
      {"run_longer_than_the_axis", with(long_run), {"length 9223372036854775807"}},
  };
}

class PlanProblemRefuses : public ::testing::TestWithParam<Bad> {};

TEST_P(PlanProblemRefuses, AndNamesFieldValueAndWhatIsExpected) {
  ringattn_plan_desc desc = good();
  GetParam().bend(desc);
  Problem problem;
  problem.batch = 77;
  const Status status = check_problem(desc, 0, 1, problem);
  EXPECT_EQ(status.code(), RINGATTN_ERR_INVALID_ARGUMENT);
  for (const std::string& word : GetParam().words) {
    EXPECT_NE(status.message().find(word), std::string::npos) << word << " is not in: " << status.message();
  }
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
  EXPECT_EQ(problem.batch, 77) << "out was changed";
}

std::string name_of_bad(const ::testing::TestParamInfo<Bad>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Sizes, PlanProblemRefuses, ::testing::ValuesIn(bad_sizes()), name_of_bad);
INSTANTIATE_TEST_SUITE_P(Numbers, PlanProblemRefuses, ::testing::ValuesIn(bad_numbers()), name_of_bad);
INSTANTIATE_TEST_SUITE_P(Partitions, PlanProblemRefuses, ::testing::ValuesIn(bad_partitions()), name_of_bad);

Problem accepted(const ringattn_plan_desc& desc, std::int32_t rank = 0, std::int32_t world = 1) {
  Problem problem;
  const Status status = check_problem(desc, rank, world, problem);
  EXPECT_TRUE(status.ok()) << status.message();
  return problem;
}

TEST(PlanProblem, DefaultsAreFilledIn) {
  ringattn_plan_desc desc = good();
  desc.batch = 3;
  const Problem problem = accepted(desc);
  EXPECT_EQ(problem.kv_heads, 4);
  EXPECT_EQ(problem.head_dim_v, 16);
  EXPECT_EQ(problem.max_sequences, 3);
  EXPECT_EQ(problem.dtype_out, DType::f32);
  EXPECT_EQ(problem.scale, 0.25);
  EXPECT_EQ(problem.stripe, 1);
  EXPECT_EQ(problem.schedule, RINGATTN_SCHEDULE_RING);
  EXPECT_EQ(problem.mask.left, kUnbounded);
  EXPECT_EQ(problem.mask.right, kUnbounded);
  EXPECT_TRUE(problem.query_like_keys);
}

TEST(PlanProblem, AutoQueryCutFollowsLengthsAndScope) {
  ringattn_plan_desc desc = good();
  desc.seq_q = 63;
  EXPECT_FALSE(accepted(desc).query_like_keys);
  desc.query_cut = RINGATTN_QUERY_CUT_LIKE_KEYS;
  EXPECT_TRUE(accepted(desc).query_like_keys);
  desc = good();
  desc.scope = RINGATTN_SCOPE_CALL;
  EXPECT_FALSE(accepted(desc).query_like_keys);
  desc = good();
  desc.query_cut = RINGATTN_QUERY_CUT_BY_INDEX;
  EXPECT_FALSE(accepted(desc).query_like_keys);
}

TEST(PlanProblem, BordersAreTaken) {
  ringattn_plan_desc desc = good();
  desc.batch = desc.seq_q = desc.seq_k = 0;
  accepted(desc);
  desc = good();
  desc.head_dim_qk = desc.head_dim_v = 576;
  desc.kv_heads = 1;
  EXPECT_EQ(accepted(desc).group(), 4);
  desc = good();
  desc.seq_q = desc.seq_k = std::int64_t{1} << 48;
  accepted(desc);
  desc = good();
  desc.mask =
      RINGATTN_MASK_CAUSAL | RINGATTN_MASK_WINDOW_LEFT | RINGATTN_MASK_WINDOW_RIGHT;  // window 0: oneself
  const Problem self = accepted(desc);
  EXPECT_EQ(self.mask.left, 0);
  EXPECT_EQ(self.mask.right, 0);
  desc = good();
  desc.window_left = desc.window_right = -5;  // not read without their flags
  EXPECT_EQ(accepted(desc).mask.left, kUnbounded);
  desc.scale = std::numeric_limits<double>::denorm_min();
  accepted(desc);
}

TEST(PlanProblem, ExplicitRunsLandAtTheRanksPlaceWithoutEmptyOnes) {
  ringattn_plan_desc desc = good();
  const ringattn_run runs[] = {{5, 0, 0}, {0, 8, 0}, {9, 3, 20}};
  desc.partition = RINGATTN_PARTITION_EXPLICIT;
  desc.runs_k = runs;
  desc.runs_k_count = 3;
  const Problem problem = accepted(desc, 2, 4);
  ASSERT_EQ(problem.runs_k.size(), 4u);
  EXPECT_EQ(problem.runs_k[2], (std::vector<PositionRun>{{0, 8, 1}, {9, 3, 20}}));
  EXPECT_TRUE(problem.runs_k[0].empty());
}

}  // namespace
}  // namespace ringattn::plan
