#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "schedule/reference.h"
#include "schedule/schedule.h"
#include "schedule/visible.h"

namespace ringattn::schedule {
namespace {

std::vector<Schedule> generate(const Problem& problem, const Layout& layout, bool lends, bool backward) {
  std::vector<Schedule> schedules(static_cast<std::size_t>(layout.world()));
  for (std::int32_t rank = 0; rank < layout.world(); ++rank) {
    generate_ring(problem, layout, rank, lends, backward, schedules[static_cast<std::size_t>(rank)]);
  }
  return schedules;
}

// Kinds, blocks and peers of one rank's operations, one a word.
std::string text_of(const Schedule& schedule) {
  std::string text;
  for (const Operation& op : schedule.operations) {
    if (!text.empty()) text += ' ';
    text += name_of(op.kind);
    if (op.block >= 0) text += std::to_string(op.block);
    if (op.kind == Kind::receive) text += "<" + std::to_string(op.peer);
    if (op.kind == Kind::send) text += ">" + std::to_string(op.peer);
    if (op.buffer >= 0) text += "@" + std::to_string(op.buffer);
    if (op.gradient) text += "'";
    if (op.target >= 0) text += "+" + std::to_string(op.target);
  }
  return text;
}

struct Ring {
  Problem problem;
  Layout layout;
  std::vector<Schedule> schedules;
};

Ring ring(PartitionKind partition, std::int32_t world, std::int64_t n, const Mask& mask, bool lends,
          bool backward = false) {
  Ring ring;
  ring.problem.partition = partition;
  ring.problem.mask = mask;
  ring.problem.seq_q = ring.problem.seq_k = n;
  EXPECT_TRUE(ring.layout.build(ring.problem, world, reference::whole(n)).ok());
  ring.schedules = generate(ring.problem, ring.layout, lends, backward);
  const Status status = verify(ring.problem, reference::whole(n), ring.layout, ring.schedules);
  EXPECT_TRUE(status.ok()) << status.message();
  return ring;
}

constexpr Mask kFull{}, kCausal{kUnbounded, 0};

TEST(Ring, OneRank) {
  EXPECT_EQ(text_of(ring(PartitionKind::contiguous, 1, 5, kFull, false).schedules[0]), "attend0 finalize");
  EXPECT_EQ(text_of(ring(PartitionKind::contiguous, 1, 0, kFull, false).schedules[0]), "finalize");
}

TEST(Ring, FourRanksSeeAll) {
  EXPECT_EQ(text_of(ring(PartitionKind::contiguous, 4, 16, kFull, false).schedules[0]),
            "pack0 send0>1 attend0 "
            "receive3<3@0 send3>1@0 attend3@0 release3@0 "
            "receive2<3@1 send2>1@1 attend2@1 release2@1 "
            "receive1<3@0 attend1@0 release1@0 finalize");
  EXPECT_EQ(text_of(ring(PartitionKind::contiguous, 4, 16, kFull, true).schedules[2]),
            "send2>3 attend2 receive1<1 send1>3 attend1 release1 receive0<1 send0>3 attend0 release0 "
            "receive3<1 attend3 release3 finalize");
}

// A stroke marks gradients, + the buffer of their sum: 0 is home, 1 and 2 take turns, 3 takes what arrives.
TEST(Ring, BackwardSendsSumsAfterTheBlocksAndThenHome) {
  EXPECT_EQ(text_of(ring(PartitionKind::contiguous, 4, 16, kFull, true, true).schedules[0]),
            "send0>1 attend0+0 "
            "receive3<3 send3>1 attend3+1 release3 send3>1@1'+1 "
            "receive2<3 send2>1 attend2+2 release2 receive2<3' accumulate2'+2 release2' send2>1@2'+2 "
            "receive1<3 attend1+1 release1 receive1<3' accumulate1'+1 release1' send1>1@1'+1 "
            "receive0<3' accumulate0'+0 release0' finalize finalize0'+0");
  EXPECT_EQ(text_of(ring(PartitionKind::contiguous, 2, 4, kFull, false, true).schedules[1]),
            "pack1 send1>0 attend1+0 receive0<0@0 attend0@0+1 release0@0 send0>0@1'+1 "
            "receive1<0@3' accumulate1@3'+0 release1@3' finalize finalize1'+0");
  EXPECT_EQ(text_of(ring(PartitionKind::contiguous, 1, 4, kFull, false, true).schedules[0]),
            "attend0+0 finalize finalize0'+0");
  EXPECT_EQ(text_of(ring(PartitionKind::contiguous, 1, 0, kFull, false, true).schedules[0]),
            "finalize finalize0'");
}

// Zig-zag with a window: block 1 is seen by ranks 1, 2 and, three ahead, 0: two sums come home.
TEST(Ring, BackwardSendsSumsHomeBeforeAGap) {
  const Ring window = ring(PartitionKind::zigzag, 4, 16, {1, 0}, true, true);
  EXPECT_EQ(text_of(window.schedules[1]),
            "send1>2 send1>0 attend1+0 receive0<0 attend0+1 release0 send0>0@1'+1 "
            "receive1<2' accumulate1'+0 release1' "
            "receive2<2 attend2+2 release2 send2>2@2'+2 "
            "receive1<0' accumulate1'+0 release1' finalize finalize1'+0");
}

// A rank whose own queries see none of its own keys: what comes home first is copied, not added.
TEST(Ring, BackwardCopiesWhatComesHomeFirst) {
  Problem problem;
  problem.seq_q = problem.seq_k = 4;
  problem.query_like_keys = false;
  problem.mask = {0, 0};
  Call call;
  call.sequences = {{0, 4, 0, 4, 2}};  // query i sees key i + 2 alone
  Layout layout;
  ASSERT_TRUE(layout.build(problem, 2, call).ok());
  const auto schedules = generate(problem, layout, true, true);
  const Status status = verify(problem, call, layout, schedules);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(text_of(schedules[1]), "send1>0 receive1<0' copy1'+0 release1' finalize finalize1'+0");
  EXPECT_EQ(text_of(schedules[0]), "receive1<1 attend1+1 release1 send1>1@1'+1 finalize finalize0'");
}

TEST(Ring, CausalContiguousKeepsBlocksFromThoseBefore) {
  const Ring causal = ring(PartitionKind::contiguous, 3, 9, kCausal, true);
  EXPECT_EQ(text_of(causal.schedules[0]), "send0>1 attend0 finalize");
  EXPECT_EQ(text_of(causal.schedules[1]), "send1>2 attend1 receive0<0 send0>2 attend0 release0 finalize");
  EXPECT_EQ(text_of(causal.schedules[2]),
            "attend2 receive1<1 attend1 release1 receive0<1 attend0 release0 finalize");
}

// Zig-zag with a window: rank 0 holds 0, 1, 14, 15 of 16 and the last rank the middle.
TEST(Ring, BlocksComeFromTheOwnerWhereTheRankBeforeHasNone) {
  const Ring window = ring(PartitionKind::zigzag, 4, 16, {1, 0}, true);
  EXPECT_EQ(text_of(window.schedules[0]), "send0>1 attend0 receive1<1 attend1 release1 finalize");
  EXPECT_EQ(text_of(window.schedules[3]), "send3>2 attend3 receive2<2 attend2 release2 finalize");
}

TEST(Ring, RanksWithoutTokens) {
  const Ring few = ring(PartitionKind::contiguous, 4, 2, kFull, false);
  EXPECT_EQ(text_of(few.schedules[0]), "pack0 send0>1 attend0 receive1<1@0 attend1@0 release1@0 finalize");
  EXPECT_EQ(text_of(few.schedules[3]), "finalize");
  EXPECT_EQ(few.schedules[0].receive_buffers, 1);
  EXPECT_EQ(few.schedules[3].receive_buffers, 0);
}

TEST(Ring, EmptyBatchDoesNothing) {
  Problem problem;
  problem.batch = 0;
  problem.seq_q = problem.seq_k = 8;
  for (const std::int64_t rows : {0, 1}) {
    Call call = rows == 0 ? Call() : reference::whole(8);
    call.rows = rows;
    Layout layout;
    ASSERT_TRUE(layout.build(problem, 2, call).ok());
    const auto schedules = generate(problem, layout, false, false);
    EXPECT_EQ(text_of(schedules[1]), "finalize");
    const Status status = verify(problem, call, layout, schedules);
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(Ring, StepsAndBytes) {
  Problem problem;
  problem.batch = 2;
  problem.kv_heads = 3;
  problem.heads = 6;
  problem.head_dim_qk = 8;
  problem.head_dim_v = 4;
  problem.dtype = DType::bf16;
  problem.seq_q = problem.seq_k = 10;
  Layout layout;
  ASSERT_TRUE(layout.build(problem, 3, reference::whole(10)).ok());
  EXPECT_EQ(block_bytes(problem, 4), 2u * 3 * 4 * (8 + 4) * 2);
  std::vector<std::int32_t> steps;
  Schedule schedule;
  generate_ring(problem, layout, 1, false, false, schedule);
  for (const Operation& op : schedule.operations) {
    if (op.kind == Kind::attend) steps.push_back(op.step);
    if (op.kind == Kind::receive) {
      EXPECT_EQ(op.bytes, block_bytes(problem, op.block == 0 ? 4 : 3));
    }
  }
  EXPECT_EQ(steps, (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(block_bytes(problem, std::int64_t{1} << 40), (std::uint64_t{1} << 40) * 2 * 3 * 12 * 2);
}

// Nobody receives a block that it does not see, nor twice; with one window over contiguous shards only
// neighbours talk.
TEST(Ring, NoNeedlessHop) {
  for (const PartitionKind partition :
       {PartitionKind::contiguous, PartitionKind::zigzag, PartitionKind::striped}) {
    for (const Mask& mask : {kFull, kCausal, Mask{3, 0}, Mask{40, 40}, Mask{0, 0}}) {
      const Ring some = ring(partition, 12, 1000, mask, false);
      for (const Schedule& schedule : some.schedules) {
        std::set<std::int32_t> received;
        for (const Operation& op : schedule.operations) {
          if (op.kind != Kind::receive) continue;
          EXPECT_TRUE(received.insert(op.block).second);
          EXPECT_TRUE(
              any_visible(some.layout.queries(schedule.rank, 0), some.layout.keys(op.block, 0), mask));
        }
      }
    }
  }
  std::size_t sends = 0;
  for (const Schedule& schedule : ring(PartitionKind::contiguous, 12, 1000, {40, 0}, false).schedules) {
    for (const Operation& op : schedule.operations) {
      if (op.kind != Kind::send) continue;
      ++sends;
      EXPECT_EQ(op.peer, schedule.rank + 1);
    }
  }
  EXPECT_EQ(sends, 11u);
}

TEST(Ring, DocumentsOfOneRankStayThere) {
  Problem problem;
  problem.seq_q = problem.seq_k = 64;
  problem.max_sequences = 8;
  const Call call = reference::documents({8, 8, 8, 8, 8, 8, 8, 8});
  Layout layout;
  ASSERT_TRUE(layout.build(problem, 4, call).ok());
  for (const Schedule& schedule : generate(problem, layout, false, false)) {
    EXPECT_EQ(text_of(schedule), "attend" + std::to_string(schedule.rank) + " finalize");
  }
}

TEST(Ring, GenerateTakesNoMemoryThatReserveDidNot) {
  for (const std::int32_t world : {1, 2, 3, 16, 64}) {
    Schedule schedule;
    reserve_ring(world, true, schedule);
    const auto operations = schedule.operations.capacity(), after = schedule.after.capacity();
    for (const PartitionKind partition :
         {PartitionKind::contiguous, PartitionKind::zigzag, PartitionKind::striped}) {
      for (const Mask& mask : {kFull, kCausal, Mask{1, 0}}) {
        const Ring some = ring(partition, world, 500, mask, false);
        for (const bool lends : {false, true}) {
          for (std::int32_t rank = 0; rank < world; ++rank) {
            for (const bool backward : {false, true}) {
              generate_ring(some.problem, some.layout, rank, lends, backward, schedule);
              EXPECT_EQ(schedule.operations.capacity(), operations);
              EXPECT_EQ(schedule.after.capacity(), after);
            }
          }
        }
      }
    }
  }
}

std::string name_of(const Problem& problem, std::int32_t world, bool lends) {
  return std::to_string(world) + " ranks, partition " + std::to_string(static_cast<int>(problem.partition)) +
         ", stripe " + std::to_string(problem.stripe) + ", scope " +
         std::to_string(static_cast<int>(problem.scope)) + ", " + std::to_string(problem.seq_k) +
         " keys, left " + std::to_string(problem.mask.left) + ", right " +
         std::to_string(problem.mask.right) + (lends ? ", lends" : ", copies");
}

void expect_verified(const Problem& problem, std::int32_t world, const Call& call) {
  Layout layout;
  const Status built = layout.build(problem, world, call);
  ASSERT_TRUE(built.ok()) << built.message();
  for (const bool lends : {false, true}) {
    for (const bool backward : {false, true}) {
      if (backward && world > 24 && lends == (world % 2 == 0)) continue;  // one form is enough at each size
      const Status status = verify(problem, call, layout, generate(problem, layout, lends, backward));
      ASSERT_TRUE(status.ok()) << status.message() << " [" << name_of(problem, world, lends)
                               << (backward ? ", backward]" : "]");
    }
  }
}

const Mask kMasks[] = {kFull, kCausal, {0, 0}, {5, 0}, {70, 3}, {kUnbounded, 40}, {12, kUnbounded}};

TEST(Ring, VerifiedForOneToSixtyFourRanks) {
  for (std::int32_t world = 1; world <= 64; ++world) {
    for (const auto& [partition, stripe] :
         {std::pair(PartitionKind::contiguous, 1), std::pair(PartitionKind::zigzag, 1),
          std::pair(PartitionKind::striped, 1), std::pair(PartitionKind::striped, 3)}) {
      const std::int64_t lengths[] = {1009, 131, world / 2 + 1};
      for (std::size_t i = 0; i < std::size(kMasks); ++i) {
        Problem problem;
        problem.partition = partition;
        problem.stripe = stripe;
        problem.mask = kMasks[i];
        problem.seq_q = problem.seq_k = lengths[(i + static_cast<std::size_t>(world)) % 3];
        ASSERT_NO_FATAL_FAILURE(expect_verified(problem, world, reference::whole(problem.seq_k)));
      }
    }
  }
}

TEST(Ring, VerifiedForPackedDocumentsOnOneToSixtyFourRanks) {
  const Call call = reference::documents({17, 1, 0, 250, 3, 64, 99, 5});
  for (std::int32_t world = 1; world <= 64; ++world) {
    for (const Scope scope : {Scope::capacity, Scope::call, Scope::document}) {
      for (const PartitionKind partition :
           {PartitionKind::contiguous, PartitionKind::zigzag, PartitionKind::striped}) {
        Problem problem;
        problem.partition = partition;
        problem.scope = scope;
        problem.query_like_keys = scope == Scope::capacity;
        problem.mask = world % 2 == 0 ? kCausal : Mask{20, 0};
        problem.seq_q = problem.seq_k = 467;  // the rest is padding
        problem.max_sequences = 8;
        ASSERT_NO_FATAL_FAILURE(expect_verified(problem, world, call));
      }
    }
  }
}

// Chunks of new queries on a long row of cached keys.
TEST(Ring, VerifiedForChunksOnCachedKeys) {
  for (std::int32_t world = 1; world <= 64; world += 3) {
    for (const PartitionKind partition :
         {PartitionKind::contiguous, PartitionKind::zigzag, PartitionKind::striped}) {
      for (const bool like_keys : {false, true}) {
        Problem problem;
        problem.partition = partition;
        problem.query_like_keys = like_keys;
        problem.stripe = 7;
        problem.mask = kCausal;
        problem.seq_q = 64;
        problem.seq_k = 777;
        for (const std::int64_t cached : {0, 1, 500, 713}) {
          Call call;
          call.sequences = {{0, 64, 0, cached + 64, cached}};
          ASSERT_NO_FATAL_FAILURE(expect_verified(problem, world, call));
          call.sequences = {{0, 1, 0, cached + 1, cached}};
          ASSERT_NO_FATAL_FAILURE(expect_verified(problem, world, call));
        }
      }
    }
  }
}

TEST(Ring, VerifiedForRandomCalls) {
  reference::Random random(7);
  for (int i = 0; i < 5000; ++i) {
    const auto [problem, world, call] = reference::random_sample(random);
    if (!reference::places_all(problem, call)) continue;
    SCOPED_TRACE(i);
    ASSERT_NO_FATAL_FAILURE(expect_verified(problem, world, call));
  }
}

TEST(Ring, VerifiedForExplicitRunsOnManyRanks) {
  reference::Random random(8);
  for (std::int32_t world = 1; world <= 64; ++world) {
    Problem problem;
    problem.partition = PartitionKind::explicit_runs;
    problem.seq_q = problem.seq_k = 400;
    problem.runs_k = reference::random_runs(random, world, 400);
    problem.mask = kMasks[static_cast<std::size_t>(world) % std::size(kMasks)];
    ASSERT_NO_FATAL_FAILURE(expect_verified(problem, world, reference::whole(371)));
  }
}

}  // namespace
}  // namespace ringattn::schedule
