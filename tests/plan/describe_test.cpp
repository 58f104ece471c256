// A plan in words: the text is a line of the grammar that means the same problem again; the JSON is whole.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/ring/host_ring.h"

namespace ringattn::support {
namespace {

class PlanDescribe : public ::testing::Test {
 protected:
  std::string describe(const ProblemLine& problem, std::int32_t format, int rank = 0) {
    const ProblemPlan values(problem);
    const ringattn_facts facts = values.facts(true);
    ringattn_plan* plan = nullptr;
    require_ok(ringattn_plan_preview(context_.get(), &values.desc(rank), rank, problem.ranks, &facts, &plan),
               "preview");
    std::uint64_t needed = 0;
    EXPECT_EQ(ringattn_plan_describe(plan, values.call(), format, nullptr, 0, &needed), RINGATTN_OK);
    std::string text(needed, '?');
    EXPECT_EQ(ringattn_plan_describe(plan, values.call(), format, text.data(), needed, nullptr), RINGATTN_OK)
        << ringattn_last_error();
    EXPECT_EQ(text.back(), '\0');
    text.pop_back();
    EXPECT_EQ(text.find('\0'), std::string::npos);
    ringattn_plan_destroy(plan);
    return text;
  }

  // What the line says with all defaults filled in, as the library would.
  static ProblemLine whole(ProblemLine problem) {
    problem.kv_heads = problem.effective_kv_heads();
    problem.dim_v = problem.effective_dim_v();
    problem.dtype_out = problem.effective_dtype_out() == problem.dtype ? 0 : problem.dtype_out;
    problem.scale = problem.effective_scale();
    const bool same = problem.queries == problem.keys && problem.scope == RINGATTN_SCOPE_CAPACITY;
    if (problem.query_cut == RINGATTN_QUERY_CUT_AUTO) {
      problem.query_cut = same ? RINGATTN_QUERY_CUT_LIKE_KEYS : RINGATTN_QUERY_CUT_BY_INDEX;
    }
    if (problem.docs) {
      problem.max_docs =
          std::max({problem.max_docs, problem.batch, static_cast<std::int64_t>(problem.docs->size())});
    }
    problem.max_docs = std::max(problem.max_docs, problem.batch);
    if (problem.max_docs <= 1) problem.max_docs = 0;
    return problem;
  }

  HostContext context_{1};
};

TEST_F(PlanDescribe, TextIsALineThatMeansTheSameProblem) {
  for (const char* line :
       {"n=64 dim=16 ranks=1", "q=10 k=300 batch=2 heads=6 kv_heads=2 dim=24 dim_v=8 dtype=bf16 ranks=3",
        "n=100 dtype=f16 dtype_out=f32 mask=causal partition=zigzag ranks=4 accuracy=exact",
        "n=100 mask=causal,window:7 partition=striped:4 ranks=4",
        "n=100 mask=window:3:9 partition=striped ranks=2", "n=100 mask=window:*:9 ranks=2",
        "n=100 mask=window:0:* ranks=2", "n=90 scale=0.3 scope=call ranks=2",
        "n=90 scale=1e-20 scope=document docs=30,1,7 ranks=2", "n=90 query_cut=by_index ranks=5",
        "n=90 batch=2 docs=30,90 docs_k=90,0 ranks=2", "q=7 k=90 mask=causal offset=-3 ranks=2",
        "q=30 k=90 docs=3,4 docs_k=5,50 mask=causal offset=2 ranks=2 max_docs=9", "n=0 ranks=3",
        "n=50 docs=none ranks=2"}) {
    const ProblemLine problem = parse_line(line);
    const std::string text = describe(problem, RINGATTN_DESCRIBE_TEXT);
    ProblemLine again;
    const auto error = parse_problem(text, again);
    ASSERT_FALSE(error.has_value()) << text << ": " << *error;
    EXPECT_EQ(to_line(whole(again)), to_line(whole(problem))) << text;
    EXPECT_EQ(describe(again, RINGATTN_DESCRIBE_TEXT), text);
  }
}

TEST_F(PlanDescribe, TooLittleRoomWritesNothing) {
  const HostContext context(1);
  HostRing ring(context, "n=16 dim=8 ranks=1");
  std::uint64_t needed = 0;
  char text[8] = "before";
  for (const std::int32_t format : {RINGATTN_DESCRIBE_TEXT, RINGATTN_DESCRIBE_JSON}) {
    EXPECT_EQ(ringattn_plan_describe(ring.plan(0), nullptr, format, text, sizeof text, &needed),
              RINGATTN_ERR_INVALID_ARGUMENT);
    EXPECT_GT(needed, sizeof text);
    EXPECT_STREQ(text, "before");
    std::string exact(needed, '?');
    EXPECT_EQ(ringattn_plan_describe(ring.plan(0), nullptr, format, exact.data(), needed - 1, nullptr),
              RINGATTN_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(exact, std::string(needed, '?'));
    EXPECT_EQ(ringattn_plan_describe(ring.plan(0), nullptr, format, exact.data(), needed, nullptr),
              RINGATTN_OK);
  }
}

TEST_F(PlanDescribe, JsonHasEveryRanksOperationsInOrder) {
  for (const char* line :
       {"n=64 dim=16 mask=causal partition=zigzag ranks=4", "n=64 dim=16 mask=causal,window:3 ranks=5",
        "n=10 dim=8 heads=4 kv_heads=2 dtype=bf16 ranks=1", "n=0 dim=8 ranks=3"}) {
    const ProblemLine problem = parse_line(line);
    const auto json = nlohmann::json::parse(describe(problem, RINGATTN_DESCRIBE_JSON));
    EXPECT_EQ(json["problem"], describe(problem, RINGATTN_DESCRIBE_TEXT));
    EXPECT_EQ(json["world_size"], problem.ranks);
    EXPECT_TRUE(json["kernel"].is_string());
    ASSERT_EQ(json["ranks"].size(), static_cast<std::size_t>(problem.ranks));
    double pairs = 0, sent = 0, received = 0;
    for (const auto& rank : json["ranks"]) {
      pairs += rank["pairs"].get<double>();
      sent += rank["bytes_sent"].get<double>();
      received += rank["bytes_received"].get<double>();
      int finalizes = 0;
      for (std::size_t i = 0; i < rank["operations"].size(); ++i) {
        const auto& operation = rank["operations"][i];
        EXPECT_EQ(operation["id"], i);
        finalizes += operation["kind"] == "finalize" ? 1 : 0;
        std::set<std::size_t> seen;
        for (const auto& before : operation["after"]) {
          EXPECT_LT(before.get<std::size_t>(), i) << "an operation waits for a later one";
          EXPECT_TRUE(seen.insert(before.get<std::size_t>()).second);
        }
        if (operation["kind"] != "send" && operation["kind"] != "receive") continue;
        EXPECT_NE(operation["peer"], rank["rank"]);
        EXPECT_LT(operation["peer"].get<int>(), problem.ranks);
      }
      EXPECT_EQ(finalizes, 1);
    }
    EXPECT_EQ(sent, received);
    EXPECT_NEAR(pairs, json["pairs_mean"].get<double>() * problem.ranks, 1e-6 * pairs);
  }
}

}  // namespace
}  // namespace ringattn::support
