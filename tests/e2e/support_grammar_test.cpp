// The grammar of a problem line: what it reads, what it refuses and how it says so.
#include <gtest/gtest.h>

#include "tests/e2e/closed_forms.h"
#include "tests/support/problem_line.h"
#include "tests/support/problem_plan.h"

namespace ringattn::support {
namespace {

std::string refusal(std::string_view line) {
  ProblemLine problem;
  problem.queries = 77;
  const std::optional<std::string> error = parse_problem(line, problem);
  EXPECT_EQ(problem.queries, 77) << "a refused line must leave the problem alone: " << line;
  return error.value_or("");
}

TEST(ProblemGrammar, DefaultsAreThoseOfTheBrief) {
  const ProblemLine problem = parsed("n=300");
  EXPECT_EQ(problem.queries, 300);
  EXPECT_EQ(problem.keys, 300);
  EXPECT_EQ(problem.batch, 1);
  EXPECT_EQ(problem.heads, 1);
  EXPECT_EQ(problem.effective_kv_heads(), 1);
  EXPECT_EQ(problem.dim, 64);
  EXPECT_EQ(problem.effective_dim_v(), 64);
  EXPECT_EQ(problem.dtype, RINGATTN_DTYPE_F32);
  EXPECT_EQ(problem.effective_dtype_out(), RINGATTN_DTYPE_F32);
  EXPECT_EQ(problem.mask, static_cast<std::uint32_t>(RINGATTN_MASK_FULL));
  EXPECT_EQ(problem.partition, RINGATTN_PARTITION_CONTIGUOUS);
  EXPECT_EQ(problem.ranks, 1);
  EXPECT_EQ(problem.threads, 1);
  EXPECT_DOUBLE_EQ(problem.effective_scale(), 0.125);
  EXPECT_FALSE(problem.backward);
  EXPECT_EQ(problem.effective_dtype_grad(), RINGATTN_DTYPE_F32);
  EXPECT_FALSE(problem.docs.has_value());
  EXPECT_FALSE(problem.offset.has_value());
}

TEST(ProblemGrammar, ReadsEveryKey) {
  const ProblemLine problem = parsed(
      "q=10 k=20  batch=2\theads=8 kv_heads=2 dim=192 dim_v=128 dtype=f16 dtype_out=f32 "
      "mask=causal,window:5:0 "
      "docs=3,4 docs_k=6,7 max_docs=9 offset=-2 partition=striped:16 query_cut=by_index scope=call scale=0.5 "
      "accuracy=exact ranks=7 threads=3 layout=sbhd pass=backward dtype_grad=f32 transport=local "
      "seed=18446744073709551615");
  EXPECT_EQ(problem.queries, 10);
  EXPECT_EQ(problem.keys, 20);
  EXPECT_EQ(problem.batch, 2);
  EXPECT_EQ(problem.heads, 8);
  EXPECT_EQ(problem.kv_heads, 2);
  EXPECT_EQ(problem.dim, 192);
  EXPECT_EQ(problem.dim_v, 128);
  EXPECT_EQ(problem.dtype, RINGATTN_DTYPE_F16);
  EXPECT_EQ(problem.dtype_out, RINGATTN_DTYPE_F32);
  EXPECT_EQ(problem.mask, static_cast<std::uint32_t>(RINGATTN_MASK_CAUSAL | RINGATTN_MASK_WINDOW_LEFT |
                                                     RINGATTN_MASK_WINDOW_RIGHT));
  EXPECT_EQ(problem.window_left, 5);
  EXPECT_EQ(problem.window_right, 0);
  EXPECT_EQ(problem.docs, (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(problem.docs_k, (std::vector<std::int64_t>{6, 7}));
  EXPECT_EQ(problem.max_docs, 9);
  EXPECT_EQ(problem.offset, -2);
  EXPECT_EQ(problem.partition, RINGATTN_PARTITION_STRIPED);
  EXPECT_EQ(problem.stripe, 16);
  EXPECT_EQ(problem.query_cut, RINGATTN_QUERY_CUT_BY_INDEX);
  EXPECT_EQ(problem.scope, RINGATTN_SCOPE_CALL);
  EXPECT_EQ(problem.scale, 0.5);
  EXPECT_EQ(problem.accuracy, RINGATTN_ACCURACY_EXACT);
  EXPECT_EQ(problem.ranks, 7);
  EXPECT_EQ(problem.threads, 3);
  EXPECT_EQ(problem.layout, Layout::kSbhd);
  EXPECT_TRUE(problem.backward);
  EXPECT_EQ(problem.dtype_grad, RINGATTN_DTYPE_F32);
  EXPECT_EQ(problem.transport, "local");
  EXPECT_EQ(problem.seed, 18446744073709551615ull);
}

TEST(ProblemGrammar, GradientsAreOfTheInputTypeUnlessSaid) {
  EXPECT_EQ(parsed("n=8 dtype=bf16 pass=backward").effective_dtype_grad(), RINGATTN_DTYPE_BF16);
  EXPECT_EQ(parsed("n=8 dtype=bf16 dtype_grad=same pass=backward").effective_dtype_grad(),
            RINGATTN_DTYPE_BF16);
  EXPECT_EQ(parsed("n=8 dtype=bf16 pass=backward dtype_grad=f32").effective_dtype_grad(), RINGATTN_DTYPE_F32);
  EXPECT_FALSE(parsed("n=8 pass=forward").backward);
}

TEST(ProblemGrammar, WindowSidesMayBeUnbounded) {
  const ProblemLine right = parsed("n=8 mask=window:*:3");
  EXPECT_EQ(right.mask, static_cast<std::uint32_t>(RINGATTN_MASK_WINDOW_RIGHT));
  EXPECT_EQ(right.window_right, 3);
  EXPECT_EQ(parsed("n=8 mask=window:0").mask, static_cast<std::uint32_t>(RINGATTN_MASK_WINDOW_LEFT));
  EXPECT_EQ(parsed("n=8 mask=window:*:*").mask, static_cast<std::uint32_t>(RINGATTN_MASK_FULL));
}

TEST(ProblemGrammar, LineAndProblemAreOneAnotherExactly) {
  for (const char* line :
       {"n=300 ranks=1", "n=0 ranks=16", "q=7 k=9 ranks=2",
        "n=64 batch=3 heads=8 kv_heads=2 dim=17 dim_v=3 dtype=bf16 dtype_out=f32 mask=causal,window:0 "
        "docs=1,2,3 "
        "docs_k=4,5,6 max_docs=12 offset=-4 partition=striped:5 query_cut=like_keys scope=document scale=0.1 "
        "accuracy=exact ranks=4 threads=2 layout=sliced transport=local seed=42",
        "n=8 partition=explicit:4/0/4/0 ranks=4", "n=8 partition=explicit:random ranks=4 seed=3",
        "n=8 mask=window:*:2 docs=none ranks=1", "n=8 mask=window:3:2 partition=zigzag ranks=3 layout=bhsd",
        "n=8 pass=backward ranks=2",
        "n=8 dtype=f16 accuracy=exact pass=backward dtype_grad=f32 ranks=2 threads=3"}) {
    const ProblemLine problem = parsed(line);
    EXPECT_EQ(to_line(problem), line);
    EXPECT_EQ(parsed(to_line(problem)), problem) << line;
  }
}

TEST(ProblemGrammar, ErrorsNameKeyValueAndWhatWasExpected) {
  const struct {
    const char* line;
    std::vector<const char*> parts;
  } cases[] = {
      {"n=8 colour=red", {"colour=red", "unknown key \"colour\"", "partition"}},
      {"n=8 heads=2 heads=2", {"heads", "only once"}},
      {"n=8 heads=two", {"heads=two", "integer"}},
      {"n=8 heads=0", {"heads=0", "at least 1"}},
      {"n=-1", {"n=-1", "at least 0"}},
      {"n=99999999999999999999", {"n=99999999999999999999", "integer"}},
      {"n=8 ranks=4097", {"ranks=4097", "1 to 4096"}},
      {"n=8 dtype=f64", {"dtype=f64", "f32, f16, bf16"}},
      {"n=8 dtype_out=bf16", {"dtype_out=bf16", "same, f32"}},
      {"n=8 mask=causal,causal", {"mask=causal,causal", "each once"}},
      {"n=8 mask=full,causal", {"mask=full,causal"}},
      {"n=8 mask=window", {"mask=window", "window:LEFT"}},
      {"n=8 mask=window:1:2:3", {"window:1:2:3"}},
      {"n=8 mask=window:-1", {"window:-1", "at least 0"}},
      {"n=8 mask=diagonal", {"mask=diagonal", "causal"}},
      {"n=8 partition=ring", {"partition=ring", "contiguous, striped"}},
      {"n=8 partition=striped:0", {"striped:0"}},
      {"n=8 partition=zigzag:2", {"zigzag:2"}},
      {"n=8 partition=explicit", {"explicit", "explicit:LEN/LEN"}},
      {"n=8 partition=explicit:4/x ranks=2", {"explicit:4/x"}},
      {"n=8 partition=explicit:4/4 ranks=3", {"2 pieces", "expected 3"}},
      {"n=8 docs=", {"docs=", "none"}},
      {"n=8 docs=1,,2", {"docs=1,,2", "lengths"}},
      {"n=8 docs_k=1", {"docs_k", "docs"}},
      {"n=8 docs=1 docs_k=1,2", {"docs_k has 2", "expected 1"}},
      {"n=8 q=8", {"n together with q"}},
      {"q=8", {"length is missing"}},
      {"", {"length is missing"}},
      {"n=8 causal", {"\"causal\"", "key=value"}},
      {"n=8 scale=big", {"scale=big", "number"}},
      {"n=8 offset=1.5", {"offset=1.5", "integer"}},
      {"n=8 seed=-1", {"seed=-1"}},
      {"n=8 pass=sideways", {"pass=sideways", "forward, backward"}},
      {"n=8 pass=backward dtype_grad=f16", {"dtype_grad=f16", "same, f32"}},
      {"n=8 dtype_grad=f32", {"dtype_grad=f32", "pass=backward"}},
      {"n=8 dtype_grad=same", {"dtype_grad=same", "pass=backward"}},
      {"n=8 pass=forward dtype_grad=f32", {"dtype_grad=f32", "pass=backward"}},
      {"n=8 layout=thd", {"layout=thd", "bshd"}},
      {"n=8 =5", {"unknown key"}},
  };
  for (const auto& one : cases) {
    const std::string error = refusal(one.line);
    EXPECT_FALSE(error.empty()) << one.line;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    for (const char* part : one.parts)
      EXPECT_NE(error.find(part), std::string::npos) << one.line << " -> " << error;
  }
}

TEST(ProblemGrammar, FilesHaveCommentsAndBlankLines) {
  const std::vector<NumberedLine> lines = problem_lines("# title\n\n  n=1 ranks=2  # why\n\t\r\nn=2\r\n");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].number, 3);
  EXPECT_EQ(lines[0].text, "n=1 ranks=2");
  EXPECT_EQ(lines[1].number, 5);
  EXPECT_EQ(lines[1].text, "n=2");
}

TEST(ProblemPlan, BackwardIsAFlagOfThePlan) {
  const ProblemPlan plan(parsed("n=6 dtype=f16 pass=backward dtype_grad=f32 ranks=2"));
  EXPECT_EQ(plan.desc(1).flags, static_cast<std::uint32_t>(RINGATTN_PLAN_BACKWARD));
  EXPECT_EQ(plan.desc(1).dtype_grad, RINGATTN_DTYPE_F32);
  const ProblemPlan forward(parsed("n=6 ranks=2"));
  EXPECT_EQ(forward.desc(0).flags, 0u);
  EXPECT_EQ(forward.desc(0).dtype_grad, 0);
}

TEST(ProblemPlan, DescriptionSaysWhatTheLineSays) {
  const ProblemPlan plan(
      parsed("q=6 k=9 heads=4 kv_heads=2 dim=8 mask=causal docs=2,4 docs_k=3,6 offset=1 ranks=3"));
  ASSERT_EQ(plan.descs().size(), 3u);
  const ringattn_plan_desc& desc = plan.desc(2);
  EXPECT_EQ(desc.struct_size, sizeof desc);
  EXPECT_EQ(desc.seq_q, 6);
  EXPECT_EQ(desc.seq_k, 9);
  EXPECT_EQ(desc.kv_heads, 2);
  EXPECT_EQ(desc.max_sequences, 2);
  ASSERT_NE(plan.call(), nullptr);
  EXPECT_EQ(plan.call()->flags,
            static_cast<std::uint32_t>(RINGATTN_CALL_SEQUENCES | RINGATTN_CALL_QUERY_OFFSET));
  EXPECT_EQ(plan.call()->sequences, 2);
  EXPECT_EQ(plan.call()->cu_q[2], 6);
  EXPECT_EQ(plan.call()->cu_k[1], 3);
  EXPECT_EQ(plan.call()->cu_k[2], 9);
  EXPECT_EQ(plan.call()->query_offset, 1);
  EXPECT_EQ(ProblemPlan(parsed("n=6")).call(), nullptr);
  const ProblemPlan none(parsed("n=6 docs=none"));
  ASSERT_NE(none.call(), nullptr);
  EXPECT_EQ(none.call()->sequences, 0);
}

// Every position exactly once, for many seeds, and runs with a stride and shuffled runs do occur.
TEST(ProblemPlan, RandomExplicitRunsCoverTheAxisOnce) {
  bool strided = false, shuffled = false;
  for (int seed = 0; seed < 50; ++seed) {
    const ProblemPlan plan(
        parsed("q=41 k=97 partition=explicit:random ranks=5 seed=" + std::to_string(seed)));
    std::vector<int> seen_k(97, 0), seen_q(41, 0);
    for (const ringattn_plan_desc& desc : plan.descs()) {
      for (std::int64_t run = 0; run < desc.runs_k_count; ++run) {
        const ringattn_run& piece = desc.runs_k[run];
        strided |= piece.stride > 1 && piece.length > 1;
        shuffled |= run > 0 && piece.first < desc.runs_k[run - 1].first;
        for (std::int64_t i = 0; i < piece.length; ++i)
          ++seen_k.at(static_cast<std::size_t>(piece.first + i * piece.stride));
      }
      for (std::int64_t run = 0; run < desc.runs_q_count; ++run) {
        const ringattn_run& piece = desc.runs_q[run];
        for (std::int64_t i = 0; i < piece.length; ++i)
          ++seen_q.at(static_cast<std::size_t>(piece.first + i * piece.stride));
      }
    }
    EXPECT_EQ(seen_k, std::vector<int>(97, 1)) << "seed " << seed;
    EXPECT_EQ(seen_q, std::vector<int>(41, 1)) << "seed " << seed;
  }
  EXPECT_TRUE(strided);
  EXPECT_TRUE(shuffled);
}

TEST(ProblemPlan, PiecesInOrderMayBeEmpty) {
  const ProblemPlan plan(parsed("n=8 partition=explicit:4/0/4/0 ranks=4"));
  EXPECT_EQ(plan.desc(0).runs_k_count, 1);
  EXPECT_EQ(plan.desc(1).runs_k_count, 0);
  EXPECT_EQ(plan.desc(2).runs_k[0].first, 4);
  EXPECT_EQ(plan.desc(2).runs_k[0].length, 4);
  EXPECT_EQ(plan.desc(3).runs_q_count, 0);
  EXPECT_EQ(plan.facts(true).descs, plan.descs().data());
  EXPECT_EQ(ProblemPlan(parsed("n=8 ranks=4")).facts(false).descs, nullptr);
}

}  // namespace
}  // namespace ringattn::support
