// The pictures and the trace, from made-up events and plans.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/ringattn/perfetto.h"
#include "tools/ringattn/plan_svg.h"
#include "tools/ringattn/rank_trace.h"
#include "tools/ringattn/svg.h"
#include "tools/ringattn/timeline_svg.h"
#include "xml_check.h"

namespace ringattn::tool {
namespace {

using tools_test::check_xml;
using tools_test::XmlVerdict;

ringattn_event event_of(int kind, int worker, int block, std::uint64_t start_us, std::uint64_t end_us,
                        int peer = -1) {
  auto event = RINGATTN_STRUCT(ringattn_event);
  event.kind = kind;
  event.worker = worker;
  event.peer = peer;
  event.block = block;
  event.start_ns = 5'000'000'000 + 1000 * start_us;
  event.end_ns = 5'000'000'000 + 1000 * end_us;
  return event;
}

// Two ranks: tiles on two workers, overlapping sends, a wait.
std::vector<RankTrace> two_ranks() {
  std::vector<RankTrace> traces(2);
  for (int rank = 0; rank < 2; ++rank) {
    RankTrace& trace = traces[static_cast<std::size_t>(rank)];
    trace.rank = rank;
    trace.times.total_ns = 4'000'000;
    trace.events = {event_of(RINGATTN_EVENT_AGREE, -1, -1, 0, 100),
                    event_of(RINGATTN_EVENT_TILE, 0, rank, 100, 1500),
                    event_of(RINGATTN_EVENT_TILE, 1, rank, 120, 1400),
                    event_of(RINGATTN_EVENT_SEND, -1, rank, 100, 2000, 1 - rank),
                    event_of(RINGATTN_EVENT_SEND, -1, rank, 1000, 3000, 1 - rank),
                    event_of(RINGATTN_EVENT_RECEIVE, -1, 1 - rank, 100, 1800, 1 - rank),
                    event_of(RINGATTN_EVENT_WAIT, -1, -1, 1500, 1800),
                    event_of(RINGATTN_EVENT_TILE, 0, 1 - rank, 1800, 4000),
                    event_of(RINGATTN_EVENT_MOVE, -1, 1 - rank, 1400, 1450)};
  }
  return traces;
}

TEST(Lanes, EventsOfALaneDoNotOverlap) {
  const RankTrace trace = two_ranks()[0];
  std::size_t events = 0;
  std::map<int, int> lanes_of_kind;
  for (const Lane& lane : lanes_of(trace)) {
    ++lanes_of_kind[lane.kind];
    events += lane.events.size();
    for (std::size_t i = 1; i < lane.events.size(); ++i) {
      EXPECT_LE(lane.events[i - 1].end_ns, lane.events[i].start_ns);
    }
  }
  EXPECT_EQ(events, trace.events.size());
  EXPECT_EQ(lanes_of_kind[RINGATTN_EVENT_TILE], 2);
  EXPECT_EQ(lanes_of_kind[RINGATTN_EVENT_SEND], 2) << "two sends at the same time";
  EXPECT_EQ(lanes_of_kind[RINGATTN_EVENT_RECEIVE], 1);
  EXPECT_EQ(lanes_of_kind[RINGATTN_EVENT_WAIT], 1);
  EXPECT_EQ(lanes_of_kind[RINGATTN_EVENT_AGREE], 1);
}

TEST(TimelineSvg, DrawsEveryKindAndIsWellFormed) {
  const std::string svg = timeline_svg(two_ranks(), {"title <&\">", "sub\x01title"});
  const XmlVerdict verdict = check_xml(svg);
  EXPECT_EQ(verdict.error, "");
  for (const char* expected :
       {"title &lt;&amp;&quot;&gt;", "subtitle", "rank 0", "rank 1", "worker 1", ">send<", ">receive<",
        "waits, 0.30 ms at 1.50 ms", "K/V block 1: 1 tile, 2.20 ms at 1.80 ms", "block 0 to rank 1",
        "block 1 from rank 1", ">move<", "moves memory of block 1, 0 bytes, 0.05 ms at 1.40 ms", ">ms<"}) {
    EXPECT_NE(svg.find(expected), std::string::npos) << expected;
  }
}

TEST(TimelineSvg, MergesTilesThatNobodyCouldTellApart) {
  std::vector<RankTrace> traces(1);
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    traces[0].events.push_back(event_of(RINGATTN_EVENT_TILE, 0, i < 50'000 ? 0 : 1, 10 * i, 10 * i + 9));
  }
  const std::string svg = timeline_svg(traces, {"t", "s"});
  EXPECT_EQ(check_xml(svg).error, "");
  EXPECT_LT(svg.size(), 20'000u);
  EXPECT_NE(svg.find("K/V block 0: 50000 tiles"), std::string::npos);
  EXPECT_NE(svg.find("K/V block 1: 50000 tiles"), std::string::npos);
}

TEST(TimelineSvg, SurvivesNoEventsAndZeroTimes) {
  EXPECT_EQ(check_xml(timeline_svg({}, {"t", "s"})).error, "");
  EXPECT_EQ(check_xml(timeline_svg({RankTrace{}}, {"t", "s"})).error, "");
  RankTrace instant;
  instant.events = {event_of(RINGATTN_EVENT_TILE, 0, 0, 7, 7)};
  EXPECT_EQ(check_xml(timeline_svg({instant}, {"t", "s"})).error, "");
}

TEST(Perfetto, EveryEventOnceWithItsRankAndLane) {
  const std::vector<RankTrace> traces = two_ranks();
  const auto root = nlohmann::json::parse(perfetto_json(traces));
  std::map<int, int> complete;          // by process
  std::set<std::pair<int, int>> named;  // (process, thread)
  std::map<std::pair<int, int>, double> end_of_lane;
  for (const auto& event : root.at("traceEvents")) {
    const int process = event.at("pid"), thread = event.at("tid");
    if (event.at("ph") == "M") {
      if (event.at("name") == "thread_name") named.insert({process, thread});
      continue;
    }
    ASSERT_EQ(event.at("ph"), "X");
    ++complete[process];
    EXPECT_TRUE(named.contains({process, thread}));
    const double start = event.at("ts"), duration = event.at("dur");
    EXPECT_GE(start, end_of_lane[std::pair(process, thread)]);
    end_of_lane[std::pair(process, thread)] = start + duration;
  }
  EXPECT_EQ(complete, (std::map<int, int>{{0, 9}, {1, 9}}));
  EXPECT_NE(perfetto_json(traces).find("\"ts\":1800.000,\"dur\":2200.000"), std::string::npos);
}

TEST(Perfetto, NoRanksIsStillJson) {
  EXPECT_TRUE(nlohmann::json::parse(perfetto_json({})).at("traceEvents").empty());
}

RingPlan causal_contiguous(int ranks) {
  RingPlan plan;
  for (int rank = 0; rank < ranks; ++rank) {
    auto info = RINGATTN_STRUCT(ringattn_plan_info);
    info.rank = rank;
    info.local_q = info.local_k = 100;
    info.pairs = 1e6 * (rank + 0.5);
    info.pairs_max = 1e6 * (ranks - 0.5);
    info.pairs_mean = 1e6 * ranks / 2.0;
    plan.infos.push_back(info);
    plan.operations.emplace_back();
    for (int block = rank; block >= 0; --block) {
      if (rank + 1 < ranks) plan.operations.back().push_back({0, "send", rank + 1, block, 4096, 0});
      plan.operations.back().push_back({1, "attend", -1, block, 0, block == rank ? 0.5e6 : 1e6});
    }
  }
  return plan;
}

TEST(PlanSvg, ShowsBlocksSendsAndBalance) {
  const std::string svg = plan_svg(causal_contiguous(4), "n=400 mask=causal & more");
  EXPECT_EQ(check_xml(svg).error, "");
  for (const char* expected :
       {"mask=causal &amp; more", "step 3", "rank 3, step 3: K/V block 0, 1.00 M pairs", "0 to 1, 4.10 kB",
        "work of the busiest rank / mean = 1.7500"}) {
    EXPECT_NE(svg.find(expected), std::string::npos) << expected;
  }
  EXPECT_EQ(svg.find("rank 0, step 1"), std::string::npos) << "rank 0 sees only its own block";
}

TEST(PlanSvg, ManyRanksAndEmptyPlans) {
  EXPECT_EQ(check_xml(plan_svg(causal_contiguous(kMostPicturedRanks), "p")).error, "");
  EXPECT_EQ(check_xml(plan_svg(causal_contiguous(1), "p")).error, "");
  RingPlan empty;
  empty.infos.push_back(RINGATTN_STRUCT(ringattn_plan_info));
  empty.operations.emplace_back();
  EXPECT_EQ(check_xml(plan_svg(empty, "p")).error, "");
}

TEST(PlanSvg, ReadsTheDescriptionAndPassesOverUnknownKeys) {
  const auto operations = operations_of(
      R"({"new":1,"ranks":[{"operations":[{"id":0,"kind":"attend","block":1,"pairs":2.5,"peer":null,"later":[]}]},)"
      R"({"operations":[{"id":4,"kind":"send","peer":0,"block":1,"bytes":18446744073709551615}]}]})");
  ASSERT_EQ(operations.size(), 2u);
  EXPECT_EQ(operations[0][0].kind, "attend");
  EXPECT_EQ(operations[0][0].pairs, 2.5);
  EXPECT_EQ(operations[0][0].peer, -1);
  EXPECT_EQ(operations[1][0].bytes, 18446744073709551615u);
  EXPECT_ANY_THROW(operations_of("{}"));
  EXPECT_ANY_THROW(operations_of("no JSON"));
}

TEST(Colours, BlocksOfARingDiffer) {
  for (const int ranks : {1, 2, 8, 9, 16, 128}) {
    std::set<std::string> colours;
    for (int block = 0; block < ranks; ++block) {
      const std::string colour = block_colour(block, ranks);
      ASSERT_EQ(colour.size(), 7u);
      colours.insert(colour);
    }
    EXPECT_EQ(colours.size(), static_cast<std::size_t>(ranks));
  }
  EXPECT_EQ(text_colour_on("#000000"), "#ffffff");
  EXPECT_NE(text_colour_on("#ffffff"), "#ffffff");
}

}  // namespace
}  // namespace ringattn::tool
