// The library's own words for a plan are a problem line again, and the same problem.
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "tests/e2e/closed_forms.h"
#include "tests/support/oracle.h"
#include "tests/support/ready_ring.h"

namespace ringattn::support {
namespace {

std::string described(ringattn_plan* plan, const ringattn_call* call) {
  std::uint64_t needed = 0;
  EXPECT_EQ(ringattn_plan_describe(plan, call, RINGATTN_DESCRIBE_TEXT, nullptr, 0, &needed), RINGATTN_OK);
  std::string text(needed, '?');
  EXPECT_EQ(ringattn_plan_describe(plan, call, RINGATTN_DESCRIBE_TEXT, text.data(), needed, nullptr),
            RINGATTN_OK)
      << ringattn_last_error();
  EXPECT_EQ(text.back(), '\0');
  EXPECT_EQ(ringattn_plan_describe(plan, call, RINGATTN_DESCRIBE_TEXT, text.data(), needed - 1, nullptr),
            RINGATTN_ERR_INVALID_ARGUMENT);
  text.pop_back();
  return text;
}

bool same_places(const std::vector<TokenPlace>& a, const std::vector<TokenPlace>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].sequence != b[i].sequence) return false;
    if (a[i].sequence >= 0 && a[i].position != b[i].position) return false;
  }
  return true;
}

void expect_same_problem(const ProblemLine& a, const ProblemLine& b) {
  EXPECT_EQ(a.batch, b.batch);
  EXPECT_EQ(a.heads, b.heads);
  EXPECT_EQ(a.effective_kv_heads(), b.effective_kv_heads());
  EXPECT_EQ(a.dim, b.dim);
  EXPECT_EQ(a.effective_dim_v(), b.effective_dim_v());
  EXPECT_EQ(a.dtype, b.dtype);
  EXPECT_EQ(a.effective_dtype_out(), b.effective_dtype_out());
  EXPECT_DOUBLE_EQ(a.effective_scale(), b.effective_scale());
  EXPECT_EQ(a.accuracy, b.accuracy);
  EXPECT_EQ(a.partition, b.partition);
  EXPECT_EQ(std::max<std::int64_t>(a.stripe, 1), std::max<std::int64_t>(b.stripe, 1));
  EXPECT_EQ(a.scope, b.scope);
  EXPECT_EQ(a.ranks, b.ranks);
  for (std::int64_t row = 0; row < a.batch; ++row) {
    EXPECT_TRUE(same_places(query_places(a, row), query_places(b, row))) << "queries of row " << row;
    EXPECT_TRUE(same_places(key_places(a, row), key_places(b, row))) << "keys of row " << row;
  }
  EXPECT_EQ(visible_pairs(a), visible_pairs(b));
}

TEST(Describe, TextIsTheSameProblemAgain) {
  std::ifstream file(RINGATTN_SOURCE_DIR "/tests/problems/ci.txt");
  std::stringstream text;
  text << file.rdbuf();
  const CommRing ring(1);
  int count = 0;
  for (const NumberedLine& line : problem_lines(text.str())) {
    const ProblemLine problem = parsed(line.text);
    if (problem.partition == RINGATTN_PARTITION_EXPLICIT) continue;  // the grammar has no words for runs
    SCOPED_TRACE("ci.txt:" + std::to_string(line.number) + ": " + line.text);
    const ProblemPlan values(problem);
    ringattn_plan* plan = nullptr;
    ASSERT_EQ(ringattn_plan_preview(ring.context(), &values.desc(0), 0, problem.ranks, nullptr, &plan),
              RINGATTN_OK)
        << ringattn_last_error();
    const std::string words = described(plan, values.call());
    ringattn_plan_destroy(plan);
    ProblemLine again;
    const std::optional<std::string> error = parse_problem(words, again);
    ASSERT_FALSE(error.has_value()) << words << ": " << *error;
    expect_same_problem(problem, again);
    ASSERT_FALSE(::testing::Test::HasFailure()) << words;
    ++count;
  }
  EXPECT_GT(count, 200);
}

}  // namespace
}  // namespace ringattn::support
