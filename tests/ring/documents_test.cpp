// Packed documents cost no transfers of their own: what one document moves in a step, a thousand move as well.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tests/ring/host_ring.h"

namespace ringattn::support {
namespace {

constexpr int kDocuments = 1024;
constexpr int kTokens = 8;  // of a document: of each, every one of four ranks has two
constexpr int kRanks = 4;

// What one execution of a problem moves.
struct Moved {
  // (kind of event, rank, peer, owner of the block) is one transfer of one step: how often, and how many bytes.
  std::map<std::tuple<int, int, int, int>, std::pair<int, std::uint64_t>> steps;
  std::uint64_t sends = 0, receives = 0;  // what the transport was asked for
};

Moved moved_by(const std::string& line, const char* transport) {
  const HostContext context;
  HostRingOptions options;
  options.transport = transport;
  options.plan_flags = RINGATTN_PLAN_TRACE;
  HostRing ring(context, line, options);
  const test::FakeCounts before = test::fake_counts();
  EXPECT_EQ(ring.execute_all(), RINGATTN_OK) << ringattn_last_error();
  const test::FakeCounts after = test::fake_counts();
  Moved moved;
  moved.sends = after.sends - before.sends;
  moved.receives = after.receives - before.receives;
  for (int rank = 0; rank < ring.ranks(); ++rank) {
    std::uint64_t count = 0, dropped = 0;
    EXPECT_EQ(ringattn_plan_trace(ring.plan(rank), nullptr, 0, &count, &dropped), RINGATTN_OK);
    EXPECT_EQ(dropped, 0u);
    std::vector<ringattn_event> events(count + 1, RINGATTN_STRUCT(ringattn_event));
    EXPECT_EQ(ringattn_plan_trace(ring.plan(rank), events.data(), count + 1, &count, nullptr), RINGATTN_OK);
    events.resize(count);
    for (const ringattn_event& event : events) {
      if (event.kind != RINGATTN_EVENT_SEND && event.kind != RINGATTN_EVENT_RECEIVE) continue;
      auto& [times, bytes] = moved.steps[{event.kind, rank, event.peer, event.block}];
      ++times;
      bytes += event.bytes;
    }
  }
  return moved;
}

std::string problem(int documents, const std::string& more) {
  std::string line = "n=" + std::to_string(kDocuments * kTokens) + " dim=8 ranks=" + std::to_string(kRanks) +
                     " max_docs=" + std::to_string(kDocuments) + " " + more + " docs=";
  for (int i = 0; i < documents; ++i)
    line.append(i == 0 ? "" : ",").append(std::to_string(kDocuments * kTokens / documents));
  return line;
}

class DocumentTransfers : public ::testing::TestWithParam<Over> {
 protected:
  std::string with(const std::string& words) const { return words + " pass=" + GetParam().pass; }
};

// Striped, every rank has keys of every document: all blocks go all the way, however many documents there are.
TEST_P(DocumentTransfers, AThousandMoveWhatOneMoves) {
  const Watchdog watchdog("transfers of documents", 120);
  for (const char* words : {"mask=causal partition=striped", "mask=causal partition=zigzag scope=document",
                            "mask=causal,window:5 partition=striped"}) {
    const Moved one = moved_by(problem(1, with(words)), GetParam().transport);
    const Moved many = moved_by(problem(kDocuments, with(words)), GetParam().transport);
    EXPECT_GE(one.steps.size(), 2u * kRanks * (kRanks - 1)) << words << ": every block to every rank";
    EXPECT_EQ(many.steps, one.steps) << words;
    EXPECT_GE(one.sends, 1u * kRanks * (kRanks - 1)) << words;
    EXPECT_EQ(many.sends, one.sends) << words;
    EXPECT_EQ(many.receives, one.receives) << words;
  }
}

// Where documents lie within ranks fewer blocks are needed; no step moves more than it did.
TEST_P(DocumentTransfers, NoStepMovesMoreThanForOne) {
  const Watchdog watchdog("transfers of documents", 120);
  for (const char* words :
       {"mask=causal", "mask=causal partition=zigzag", "mask=causal partition=striped:64"}) {
    const Moved one = moved_by(problem(1, with(words)), GetParam().transport);
    const Moved many = moved_by(problem(kDocuments, with(words)), GetParam().transport);
    for (const auto& [step, transfers] : many.steps) {
      const auto same = one.steps.find(step);
      ASSERT_NE(same, one.steps.end()) << words;
      EXPECT_LE(transfers.first, same->second.first) << words;
      EXPECT_LE(transfers.second, same->second.second) << words;
    }
    EXPECT_LE(many.sends, one.sends) << words;
    EXPECT_LE(many.receives, one.receives) << words;
  }
}

INSTANTIATE_TEST_SUITE_P(Fakes, DocumentTransfers,
                         ::testing::Values(Over{"ring_lend", "forward"}, Over{"ring_copy", "forward"},
                                           Over{"ring_lend", "backward"}, Over{"ring_copy", "backward"}),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace ringattn::support
