// What a plan tells of work, bytes and memory, against closed forms.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/ring/host_ring.h"
#include "tests/support/oracle.h"

namespace ringattn::support {
namespace {

class PlanFigures : public ::testing::Test {
 protected:
  std::vector<ringattn_plan_info> infos(const std::string& line, bool lends) {
    const ProblemLine problem = parse_line(line);
    const ProblemPlan values(problem);
    const ringattn_facts facts = values.facts(lends);
    std::vector<ringattn_plan_info> out;
    for (int rank = 0; rank < problem.ranks; ++rank) {
      ringattn_plan* plan = nullptr;
      require_ok(
          ringattn_plan_preview(context_.get(), &values.desc(rank), rank, problem.ranks, &facts, &plan),
          "preview");
      out.push_back(RINGATTN_STRUCT(ringattn_plan_info));
      EXPECT_EQ(ringattn_plan_get_info(plan, values.call(), &out.back()), RINGATTN_OK)
          << ringattn_last_error();
      ringattn_plan_destroy(plan);
    }
    return out;
  }

  HostContext context_{1};
};

TEST_F(PlanFigures, FullAttentionMovesEveryBlockPMinusOneTimes) {
  for (const int ranks : {1, 2, 4, 8}) {
    const auto all = infos(
        "n=64 batch=2 heads=6 kv_heads=2 dim=16 dim_v=8 dtype=bf16 ranks=" + std::to_string(ranks), true);
    for (const ringattn_plan_info& info : all) {
      EXPECT_EQ(info.steps, ranks);
      EXPECT_EQ(info.local_q, 64 / ranks);
      EXPECT_EQ(info.local_k, 64 / ranks);
      EXPECT_EQ(info.pairs, 2.0 * 6 * 64 * 64 / ranks);
      EXPECT_EQ(info.pairs_max, info.pairs);
      EXPECT_EQ(info.pairs_mean, info.pairs);
      EXPECT_EQ(info.flops, 2 * (16 + 8) * info.pairs);
      const std::uint64_t block =
          2u * 2 * 64 / static_cast<unsigned>(ranks) * (16 + 8) * 2;  // batch, kv heads, rows, dims, bytes
      EXPECT_EQ(info.bytes_sent, block * static_cast<unsigned>(ranks - 1));
      EXPECT_EQ(info.bytes_received, info.bytes_sent);
      // Each of P equal steps hides one block.
      if (ranks > 1) {
        EXPECT_DOUBLE_EQ(info.overlap_flops_per_byte, info.flops / ranks / static_cast<double>(block));
      }
      if (ranks == 1) {
        EXPECT_TRUE(std::isinf(info.overlap_flops_per_byte));
      }
    }
  }
}

TEST_F(PlanFigures, CausalContiguousGrowsWithTheRank) {
  const auto all = infos("n=64 heads=3 dim=16 mask=causal ranks=4", true);
  for (int rank = 0; rank < 4; ++rank) {
    const ringattn_plan_info& info = all[static_cast<std::size_t>(rank)];
    EXPECT_EQ(info.steps, rank + 1) << "blocks of later ranks are never needed";
    EXPECT_EQ(info.pairs, 3.0 * (16 * 17 / 2 + 16 * 16 * rank));
    EXPECT_EQ(info.pairs_max, 3.0 * (16 * 17 / 2 + 16 * 16 * 3));
    EXPECT_EQ(info.pairs_mean, 3.0 * 64 * 65 / 2 / 4);
    EXPECT_EQ(info.bytes_received, static_cast<std::uint64_t>(rank) * 3 * 16 * 32 * 4);
  }
}

TEST_F(PlanFigures, CausalZigzagIsTheSameForEveryRank) {
  const auto all = infos("n=64 heads=3 dim=16 mask=causal partition=zigzag ranks=4", true);
  for (const ringattn_plan_info& info : all) {
    EXPECT_EQ(info.pairs, 3.0 * 64 * 65 / 2 / 4);
    EXPECT_EQ(info.pairs_max, info.pairs_mean);
    EXPECT_EQ(info.steps, 4);
    EXPECT_EQ(info.bytes_received, 3u * 3 * 16 * 32 * 4);
  }
}

// Work differs between ranks by at most one row of the longest reach for every stretch that is uneven.
TEST_F(PlanFigures, CausalStripedAndZigzagBalanceWithinOneRowOfEachStretch) {
  for (const char* partition : {"striped", "zigzag"}) {
    for (const int n : {257, 1000, 1001}) {
      for (const int ranks : {2, 3, 5, 8}) {
        const auto all = infos("n=" + std::to_string(n) + " dim=8 mask=causal partition=" + partition +
                                   " ranks=" + std::to_string(ranks),
                               true);
        double least = all[0].pairs, most = all[0].pairs;
        for (const auto& info : all) least = std::min(least, info.pairs), most = std::max(most, info.pairs);
        EXPECT_LE(most - least, 2.0 * n) << partition << " n=" << n << " ranks=" << ranks;
        EXPECT_EQ(most, all[0].pairs_max);
      }
    }
  }
}

TEST_F(PlanFigures, PairsOfAllRanksAreThoseOfTheDefinition) {
  for (const char* line : {"n=61 heads=2 dim=8 mask=causal,window:9 partition=striped:3 ranks=4",
                           "n=61 dim=8 mask=window:5:2 partition=zigzag ranks=5",
                           "q=20 k=50 dim=8 mask=causal docs=7,0,9 docs_k=20,3,20 ranks=3",
                           "n=50 batch=3 heads=2 dim=8 mask=causal docs=50,0,13 ranks=4",
                           "n=40 dim=8 mask=causal docs=11,8 scope=document ranks=3",
                           "q=9 k=40 dim=8 mask=causal offset=-4 ranks=2",
                           "n=70 dim=8 mask=causal partition=explicit:random ranks=4 seed=3"}) {
    const ProblemLine problem = parse_line(line);
    double sum = 0;
    const auto all = infos(line, true);
    for (const auto& info : all) sum += info.pairs;
    EXPECT_EQ(sum, visible_pairs(problem)) << line;
    EXPECT_NEAR(all[0].pairs_mean * problem.ranks, sum, 1e-9 * sum) << line;
  }
}

TEST_F(PlanFigures, HopsThatNobodyNeedsAreNotSent) {
  const auto near = infos("n=64 dim=8 mask=causal,window:3 ranks=8", true);
  for (std::size_t rank = 0; rank < near.size(); ++rank) {
    EXPECT_EQ(near[rank].steps, rank == 0 ? 1 : 2);
    EXPECT_EQ(near[rank].bytes_received, rank == 0 ? 0u : 8u * 16 * 4);
  }
  // Documents that end at the borders of shards: nobody needs anybody.
  for (const auto& info : infos("n=64 dim=8 docs=16,16,16,16 ranks=4", true)) {
    EXPECT_EQ(info.steps, 1);
    EXPECT_EQ(info.bytes_sent, 0u);
    EXPECT_EQ(info.bytes_received, 0u);
  }
}

TEST_F(PlanFigures, SentIsReceived) {
  for (const char* line :
       {"n=61 dim=8 mask=causal partition=zigzag ranks=5", "n=61 dim=8 mask=window:9:3 ranks=7",
        "n=3 dim=8 ranks=6", "n=61 dim=8 docs=20,20,9 partition=striped ranks=4"}) {
    for (const bool lends : {true, false}) {
      std::uint64_t sent = 0, received = 0;
      for (const auto& info : infos(line, lends)) sent += info.bytes_sent, received += info.bytes_received;
      EXPECT_EQ(sent, received) << line;
    }
  }
}

TEST_F(PlanFigures, LendingWorkspaceDependsOnTheShardAloneAndCopyingTakesBlocksMore) {
  std::uint64_t lent = 0;
  for (int ranks = 2; ranks <= 8; ++ranks) {
    const std::string line =
        "n=" + std::to_string(128 * ranks) + " heads=2 dim=32 mask=causal ranks=" + std::to_string(ranks);
    const auto lends = infos(line, true), copies = infos(line, false);
    if (ranks == 2) lent = lends[0].workspace_bytes;
    for (const auto& info : lends) EXPECT_EQ(info.workspace_bytes, lent) << "ranks " << ranks;
    for (const auto& info : copies) {
      EXPECT_GE(info.workspace_bytes, lent + 2u * 128 * 2 * 64 * 4) << "two K/V blocks";
      EXPECT_LE(info.workspace_bytes, lent + 3u * 128 * 2 * 64 * 4 + 1024)
          << "two K/V blocks and the packed own one";
    }
    EXPECT_EQ(lends[0].workspace_alignment, 64u);
  }
}

// dK and dV in fp32: the own block's at home, two sums on their way where there are other ranks, one more where
// arrivals are copied; with f16 inputs a gradient block is twice a K/V block.
TEST_F(PlanFigures, BackwardTakesThreeGradientBlocksAndOneMoreWhereTheTransportCopies) {
  const std::string common = " heads=4 kv_heads=2 dim=32 dtype=f16 mask=causal pass=backward ranks=";
  constexpr std::uint64_t kGradients = 128u * 2 * 64 * 4, kBlock = kGradients / 2;
  const std::uint64_t alone = infos("n=128" + common + "1", true)[0].workspace_bytes;
  EXPECT_GE(alone, kGradients + 128u * 4 * 32 * 4) << "home, and dQ of the tiles";
  for (int ranks = 2; ranks <= 8; ++ranks) {
    const std::string line = "n=" + std::to_string(128 * ranks) + common + std::to_string(ranks);
    for (const auto& info : infos(line, true)) {
      EXPECT_EQ(info.workspace_bytes, alone + 2 * kGradients) << ranks;
    }
    for (const auto& info : infos(line, false)) {
      EXPECT_EQ(info.workspace_bytes, alone + 3 * kGradients + 3 * kBlock) << ranks;
    }
  }
}

TEST_F(PlanFigures, WorkspaceIsTheSameForEveryCallOfAPlan) {
  const HostContext context(1);
  HostRing ring(context, "n=200 dim=16 docs=200 max_docs=4 ranks=3");
  ringattn_plan_info full = RINGATTN_STRUCT(ringattn_plan_info), small = full;
  const std::int64_t cu[] = {0, 3, 9};
  ringattn_call call = RINGATTN_STRUCT(ringattn_call);
  call.flags = RINGATTN_CALL_SEQUENCES;
  call.sequences = 2;
  call.cu_q = cu;
  ASSERT_EQ(ringattn_plan_get_info(ring.plan(1), nullptr, &full), RINGATTN_OK);
  ASSERT_EQ(ringattn_plan_get_info(ring.plan(1), &call, &small), RINGATTN_OK);
  EXPECT_EQ(full.workspace_bytes, small.workspace_bytes);
  EXPECT_EQ(full.local_capacity_q, small.local_capacity_q);
  EXPECT_GT(full.pairs, small.pairs);
  EXPECT_GT(full.plan_bytes, 0u);
}

}  // namespace
}  // namespace ringattn::support
