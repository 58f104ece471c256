// The judge of `attend --check` and of the demo: it covers every row, sees what the whole oracle sees, and fails what
// is wrong.
#include "tools/ringattn/answer_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/oracle.h"
#include "tests/support/plain.h"
#include "tests/support/random_data.h"

namespace ringattn::tool {
namespace {

using support::HostTensor;
using support::ProblemLine;

ProblemLine problem_of(const char* line) {
  ProblemLine problem;
  const auto error = support::parse_problem(line, problem);
  EXPECT_FALSE(error) << *error;
  return problem;
}

// A problem with the plain implementation's answer, which is within the limits by their definition.
struct Solved {
  explicit Solved(const char* line) : problem(problem_of(line)), inputs(support::random_inputs(problem, 7)) {
    const support::PlainResult plain = support::plain_attention(problem, inputs.q, inputs.k, inputs.v);
    const support::OracleResult oracle = support::oracle_attention(problem, inputs.q, inputs.k, inputs.v);
    o = HostTensor(problem.effective_dtype_out(),
                   {problem.batch, problem.queries, problem.heads, problem.effective_dim_v()});
    lse = HostTensor(RINGATTN_DTYPE_F32, {problem.batch, problem.heads, problem.queries, 1});
    for (std::int64_t b = 0; b < problem.batch; ++b) {
      for (std::int64_t q = 0; q < problem.queries; ++q) {
        for (std::int64_t h = 0; h < problem.heads; ++h) {
          lse.set(b, h, q, 0, plain.lse[oracle.row(b, q, h)]);
          for (std::int64_t d = 0; d < problem.effective_dim_v(); ++d)
            o.set(b, q, h, d, plain.o[oracle.element(b, q, h, d)]);
        }
      }
    }
  }

  Answer answer() const {
    return {inputs.q.view(), inputs.k.view(), inputs.v.view(), o.view(),
            lse.view(),      std::nullopt,    std::nullopt};
  }
  Verdict check(std::int64_t rows) const {
    return check_answer(problem, answer(), row_blocks(problem, rows), {});
  }

  ProblemLine problem;
  support::Inputs inputs;
  HostTensor o, lse;
};

constexpr const char* kProblems[] = {
    "n=70 heads=4 kv_heads=2 dim=16 mask=causal dtype=bf16",
    "n=70 heads=2 dim=16 dim_v=8 mask=causal,window:9",
    "q=20 k=50 heads=2 dim=16 mask=window:7:3 dtype=f16",
    "q=30 k=8 heads=2 dim=16 mask=causal",
    "q=12 k=40 dim=16 mask=causal offset=-5",
    "n=70 heads=2 dim=16 mask=causal docs=20,0,33",
    "n=64 dim=16 mask=causal,window:6 docs=20,30 docs_k=10,40",
    "n=33 batch=3 heads=2 dim=16 mask=causal docs=33,5,0",
    "n=40 dim=16 layout=bhsd",
    "n=40 dim=16 docs=none",
};

TEST(AnswerCheck, BlocksCoverEveryRowOnce) {
  for (const char* line : kProblems) {
    const ProblemLine problem = problem_of(line);
    std::vector<int> seen(static_cast<std::size_t>(problem.batch * problem.queries), 0);
    for (const RowBlock& block : row_blocks(problem, 16)) {
      EXPECT_GE(block.key_first, 0) << line;
      EXPECT_LE(block.key_first + block.key_count, problem.keys) << line;
      for (std::int64_t i = 0; i < block.count; ++i) {
        ++seen.at(static_cast<std::size_t>(block.batch_row * problem.queries + block.first + i));
      }
    }
    EXPECT_EQ(seen, std::vector<int>(seen.size(), 1)) << line;
  }
}

TEST(AnswerCheck, BlocksGiveTheSameVerdictAsOneWholeOracle) {
  for (const char* line : kProblems) {
    const Solved solved(line);
    const support::OracleResult oracle =
        support::oracle_attention(solved.problem, solved.inputs.q, solved.inputs.k, solved.inputs.v);
    const support::PlainResult plain =
        support::plain_attention(solved.problem, solved.inputs.q, solved.inputs.k, solved.inputs.v);
    const support::LimitResult o = support::check_o(solved.o, oracle, plain);
    const support::LimitResult lse = support::check_lse(solved.lse, oracle, plain);
    const Verdict verdict = solved.check(16);
    EXPECT_TRUE(verdict.ok()) << line << ": " << to_text(verdict);
    EXPECT_EQ(verdict.rows, solved.problem.batch * solved.problem.queries);
    EXPECT_DOUBLE_EQ(verdict.o.max_abs, o.max_abs) << line;
    EXPECT_NEAR(verdict.o.rms, o.rms, 1e-12) << line;
    EXPECT_DOUBLE_EQ(verdict.lse.max_abs, lse.max_abs) << line;
    EXPECT_NEAR(verdict.lse.limit_rms, lse.limit_rms, 1e-12) << line;
  }
}

TEST(AnswerCheck, AWrongElementIsFoundAndNamedByItsPlace) {
  Solved solved("n=33 batch=3 heads=2 dim=16 mask=causal docs=33,33,20");
  ASSERT_TRUE(solved.check(16).ok());
  solved.o.set(1, 29, 1, 5, 9.0);
  Verdict verdict = solved.check(16);
  EXPECT_FALSE(verdict.o.ok);
  EXPECT_TRUE(verdict.lse.ok);
  EXPECT_EQ(verdict.o.worst.substr(0, 21), "o[1, 29, 1, 5] is 9, ") << verdict.o.worst;
  EXPECT_NE(to_text(verdict).find("OUT OF TOLERANCE: o[1, 29, 1, 5]"), std::string::npos);

  solved.lse.set(2, 1, 31, 0, 0.5);  // a row of padding must be -inf
  verdict = solved.check(16);
  EXPECT_FALSE(verdict.lse.ok);
  EXPECT_EQ(verdict.lse.worst.substr(0, 22), "lse[2, 1, 31] is 0.5, ") << verdict.lse.worst;
}

TEST(AnswerCheck, NotANumberIsWrongWhereTheAnswerIsFinite) {
  Solved solved("n=20 dim=16 mask=causal");
  solved.o.set(0, 3, 0, 0, std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(solved.check(16).ok());
}

TEST(AnswerCheck, ReferencesReplaceTheAnswerInFp64) {
  const Solved solved("n=40 heads=2 dim=16 mask=causal");
  Answer answer = solved.answer();
  HostTensor o_ref = solved.o, lse_ref = solved.lse;
  answer.o_ref = o_ref.view();
  answer.lse_ref = lse_ref.view();
  const std::vector<RowBlock> blocks = row_blocks(solved.problem, 16);
  Verdict verdict = check_answer(solved.problem, answer, blocks, {});
  EXPECT_TRUE(verdict.ok());
  EXPECT_EQ(verdict.o.max_abs, 0) << "it is compared with itself";
  EXPECT_EQ(verdict.lse.max_abs, 0);
  o_ref.set(0, 39, 1, 15, 5.0);
  verdict = check_answer(solved.problem, answer, blocks, {});
  EXPECT_FALSE(verdict.o.ok);
  EXPECT_TRUE(verdict.lse.ok);
}

TEST(AnswerCheck, RowsWithoutAKeyAreExactWithReferencesToo) {
  Solved solved("n=40 heads=2 dim=16 mask=causal docs=30");
  const HostTensor o_ref = solved.o, lse_ref = solved.lse;
  Answer answer = solved.answer();
  answer.o_ref = o_ref.view();
  answer.lse_ref = lse_ref.view();
  const std::vector<RowBlock> blocks = row_blocks(solved.problem, 16);
  ASSERT_TRUE(check_answer(solved.problem, answer, blocks, {}).ok());
  solved.o.set(0, 35, 0, 0, 1e-9);
  solved.lse.set(0, 1, 36, 0, -3.0e38);
  const Verdict verdict = check_answer(solved.problem, answer, blocks, {});
  EXPECT_FALSE(verdict.o.ok);
  EXPECT_FALSE(verdict.lse.ok);
  EXPECT_EQ(verdict.lse.worst.substr(0, 13), "lse[0, 1, 36]") << verdict.lse.worst;
}

TEST(AnswerCheck, ASampleHoldsTheRowsThatItMust) {
  Solved solved("n=200 heads=2 dim=8 mask=causal");
  const HostTensor o_ref = solved.o, lse_ref = solved.lse;
  solved.o.set(0, 123, 1, 3, 9.0);
  solved.lse.set(0, 1, 77, 0, -9.0);
  const QueryPlace worst_o = furthest_query(solved.o.view(), o_ref.view(), false);
  const QueryPlace worst_lse = furthest_query(solved.lse.view(), lse_ref.view(), true);
  EXPECT_EQ(worst_o.query, 123);
  EXPECT_EQ(worst_lse.query, 77);
  const std::vector<RowBlock> all = row_blocks(solved.problem, 4);
  const std::vector<RowBlock> some = spread(all, 5, {worst_o, worst_lse});
  EXPECT_LE(some.size(), 7u);
  EXPECT_GE(some.size(), 5u);
  Answer answer = solved.answer();
  answer.o_ref = o_ref.view();
  answer.lse_ref = lse_ref.view();
  const Verdict verdict = check_answer(solved.problem, answer, some, {});
  EXPECT_FALSE(verdict.o.ok);
  EXPECT_FALSE(verdict.lse.ok);
  EXPECT_EQ(verdict.o.worst.substr(0, 15), "o[0, 123, 1, 3]") << verdict.o.worst;
  EXPECT_EQ(spread(all, all.size(), {}).size(), all.size());
}

TEST(AnswerCheck, ProgressGoesUpToOne) {
  const Solved solved("n=100 dim=8 mask=causal");
  std::vector<double> told;
  check_answer(solved.problem, solved.answer(), row_blocks(solved.problem, 16),
               [&](double done) { told.push_back(done); });
  ASSERT_EQ(told.size(), 7u);
  for (std::size_t i = 1; i < told.size(); ++i) EXPECT_GT(told[i], told[i - 1]);
  EXPECT_NEAR(told.back(), 1.0, 0.01);
}

}  // namespace
}  // namespace ringattn::tool
