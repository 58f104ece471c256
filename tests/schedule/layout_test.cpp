#include "schedule/layout.h"

#include <gtest/gtest.h>

#include <numeric>

#include "schedule/reference.h"

namespace ringattn::schedule {
namespace {

using reference::Token;
using Positions = std::vector<std::vector<std::int64_t>>;  // [rank]

Problem problem_of(PartitionKind partition, std::int64_t length, std::int64_t stripe = 1) {
  Problem problem;
  problem.partition = partition;
  problem.seq_q = problem.seq_k = length;
  problem.stripe = stripe;
  return problem;
}

Layout build(const Problem& problem, std::int32_t world, const Call& call) {
  Layout layout;
  layout.reserve(problem, world);
  const Status status = layout.build(problem, world, call);
  EXPECT_TRUE(status.ok()) << status.message();
  return layout;
}

Positions key_positions(const Problem& problem, std::int32_t world, const Call& call) {
  const Layout layout = build(problem, world, call);
  Positions positions;
  for (std::int32_t rank = 0; rank < world; ++rank) {
    positions.emplace_back();
    for (const Token& token : reference::tokens_of(layout.keys(rank, 0)))
      positions.back().push_back(token.position);
  }
  return positions;
}

Positions golden(PartitionKind partition, std::int32_t world, std::int64_t length, std::int64_t stripe = 1) {
  return key_positions(problem_of(partition, length, stripe), world, reference::whole(length));
}

TEST(Layout, Contiguous) {
  EXPECT_EQ(golden(PartitionKind::contiguous, 4, 16),
            (Positions{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
  EXPECT_EQ(golden(PartitionKind::contiguous, 4, 10), (Positions{{0, 1, 2}, {3, 4, 5}, {6, 7}, {8, 9}}));
  EXPECT_EQ(golden(PartitionKind::contiguous, 4, 2), (Positions{{0}, {1}, {}, {}}));
  EXPECT_EQ(golden(PartitionKind::contiguous, 3, 0), (Positions{{}, {}, {}}));
}

TEST(Layout, ZigZag) {
  EXPECT_EQ(golden(PartitionKind::zigzag, 4, 16),
            (Positions{{0, 1, 14, 15}, {2, 3, 12, 13}, {4, 5, 10, 11}, {6, 7, 8, 9}}));
  // 11 = 6 pieces of 2, 2, 2, 2, 2, 1
  EXPECT_EQ(golden(PartitionKind::zigzag, 3, 11), (Positions{{0, 1, 10}, {2, 3, 8, 9}, {4, 5, 6, 7}}));
  EXPECT_EQ(golden(PartitionKind::zigzag, 3, 4), (Positions{{0}, {1}, {2, 3}}));
  EXPECT_EQ(golden(PartitionKind::zigzag, 4, 1), (Positions{{0}, {}, {}, {}}));
}

TEST(Layout, Striped) {
  EXPECT_EQ(golden(PartitionKind::striped, 4, 16),
            (Positions{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
  EXPECT_EQ(golden(PartitionKind::striped, 2, 11, 3), (Positions{{0, 1, 2, 6, 7, 8}, {3, 4, 5, 9, 10}}));
  EXPECT_EQ(golden(PartitionKind::striped, 3, 2), (Positions{{0}, {1}, {}}));
  EXPECT_EQ(golden(PartitionKind::striped, 3, 5, 100), (Positions{{0, 1, 2, 3, 4}, {}, {}}));
  EXPECT_EQ(golden(PartitionKind::striped, 3, 5, kUnbounded), (Positions{{0, 1, 2, 3, 4}, {}, {}}));
}

TEST(Layout, ExplicitInTheOrderGiven) {
  Problem problem = problem_of(PartitionKind::explicit_runs, 5);
  problem.runs_k = {{{0, 2, 1}}, {{2, 2, 1}}, {{4, 1, 1}}, {}};
  EXPECT_EQ(key_positions(problem, 4, reference::whole(5)), (Positions{{0, 1}, {2, 3}, {4}, {}}));
  problem.runs_k = {{{4, 1, 1}, {0, 2, 2}}, {{1, 2, 2}}};
  EXPECT_EQ(key_positions(problem, 2, reference::whole(5)), (Positions{{4, 0, 2}, {1, 3}}));
  const Layout layout = build(problem, 2, reference::whole(5));
  EXPECT_EQ(layout.keys(0, 0).segments.size(), 2u) << "4, then 0 and 2";
  EXPECT_EQ(layout.keys(1, 0).segments.size(), 1u);
}

// One run where one progression says it, whatever the length; neighbours that continue each other are one
// run.
TEST(Layout, FewestRuns) {
  const std::int64_t n = (std::int64_t{1} << 40) + 7;
  for (const auto& [partition, world, expected] :
       {std::tuple(PartitionKind::contiguous, 16, 1u), std::tuple(PartitionKind::zigzag, 16, 2u),
        std::tuple(PartitionKind::striped, 16, 1u), std::tuple(PartitionKind::striped, 1, 1u)}) {
    const Layout layout = build(problem_of(partition, n), world, reference::whole(n));
    EXPECT_EQ(layout.keys(0, 0).runs.size(), expected);
  }
  EXPECT_EQ(build(problem_of(PartitionKind::striped, n, 64), 1, reference::whole(n)).keys(0, 0).runs.size(),
            1u);
  const Layout zigzag = build(problem_of(PartitionKind::zigzag, 100), 4, reference::whole(100));
  EXPECT_EQ(zigzag.keys(3, 0).runs.size(), 1u) << "its pieces are neighbours";
  EXPECT_EQ(zigzag.keys(3, 0).length, 25) << "13 + 12";
  EXPECT_EQ(build(problem_of(PartitionKind::striped, n), 16, reference::whole(n)).keys(3, 0).runs[0].stride,
            16);
}

TEST(Layout, CapacityScopeOnlyClipsAShorterCall) {
  EXPECT_EQ(key_positions(problem_of(PartitionKind::contiguous, 16), 4, reference::whole(6)),
            (Positions{{0, 1, 2, 3}, {4, 5}, {}, {}}));
  Problem by_call = problem_of(PartitionKind::contiguous, 16);
  by_call.scope = Scope::call;
  EXPECT_EQ(key_positions(by_call, 4, reference::whole(6)), (Positions{{0, 1}, {2, 3}, {4}, {5}}));
}

// PyTorch PR#189902: documents of 4 and 12 tokens, zig-zag in each.
TEST(Layout, DocumentsCutByThemselves) {
  Problem problem = problem_of(PartitionKind::zigzag, 16);
  problem.scope = Scope::document;
  problem.max_sequences = 2;
  const Layout layout = build(problem, 2, reference::documents({4, 12}));
  const std::vector<Token> first = {{0, 0}, {0, 3}, {1, 0}, {1, 1}, {1, 2}, {1, 9}, {1, 10}, {1, 11}};
  const std::vector<Token> second = {{0, 1}, {0, 2}, {1, 3}, {1, 4}, {1, 5}, {1, 6}, {1, 7}, {1, 8}};
  EXPECT_EQ(reference::tokens_of(layout.queries(0, 0)), first);
  EXPECT_EQ(reference::tokens_of(layout.queries(1, 0)), second);
  EXPECT_EQ(reference::tokens_of(layout.keys(1, 0)), second);
}

TEST(Layout, NewTokensLiveWhereTheirKeysDo) {
  Problem problem = problem_of(PartitionKind::contiguous, 16);
  problem.seq_q = 3;
  Call call;
  call.sequences = {{0, 3, 0, 9, 6}};  // positions 6, 7 and 8 of 9 keys
  const Layout layout = build(problem, 4, call);
  EXPECT_EQ(reference::tokens_of(layout.queries(1, 0)), (std::vector<Token>{{0, 6}, {0, 7}}));
  EXPECT_EQ(reference::tokens_of(layout.queries(2, 0)), (std::vector<Token>{{0, 8}}));
  EXPECT_EQ(layout.local_queries(0), 0);
}

void expect_refused(const Problem& problem, const Call& call, const std::vector<std::string>& words) {
  Layout layout;
  layout.reserve(problem, 2);
  const Status status = layout.build(problem, 2, call);
  EXPECT_EQ(status.code(), RINGATTN_ERR_INVALID_ARGUMENT);
  for (const std::string& word : words) {
    EXPECT_NE(status.message().find(word), std::string::npos) << word << " in: " << status.message();
  }
}

TEST(Layout, RefusesQueriesThatLieOutsideTheKeys) {
  Problem problem = problem_of(PartitionKind::contiguous, 8);
  problem.max_sequences = 2;
  Call call;
  call.sequences = {{0, 5, 0, 2, -3}};
  expect_refused(problem, call, {"sequence 0", "position -3", "0..7", "BY_INDEX"});
  call.sequences = {{0, 3, 0, 2, 6}};
  expect_refused(problem, call, {"sequence 0", "position 8", "0..7", "BY_INDEX"});
  call.sequences = {{0, 3, 0, 2, 5}};  // beyond the keys of the call, but not of the row
  build(problem, 2, call);
  call.sequences = {{0, 2, 0, 4, 2}, {2, 2, 4, 3, 2}};  // position 3 of 3 keys
  expect_refused(problem, call, {"sequence 1", "position 3", "0..2", "own sequence", "BY_INDEX"});
  call.sequences = {{0, 0, 0, 4, 100}, {0, 2, 4, 3, 1}};  // no query, so nothing is outside
  build(problem, 2, call);
  call.sequences = {{0, 1, 0, 4, kUnbounded}};
  expect_refused(problem, call, {"query_offset", "sequence 0"});
}

TEST(Layout, ExplicitNeedsTheRunsOfAllRanks) {
  Problem problem = problem_of(PartitionKind::explicit_runs, 4);
  problem.runs_k = {{{0, 4, 1}}};
  Layout layout;
  layout.reserve(problem, 2);
  EXPECT_EQ(layout.build(problem, 2, reference::whole(4)).code(), RINGATTN_ERR_INTERNAL);
}

void expect_like_reference(const reference::Sample& sample, const Layout& layout) {
  const auto& [problem, world, call] = sample;
  for (std::int32_t rank = 0; rank < world; ++rank) {
    std::int64_t longest_q = 0, longest_k = 0;
    for (std::int64_t row = 0; row < call.rows; ++row) {
      const auto queries = reference::queries(problem, world, call, rank, row);
      const auto keys = reference::keys(problem, world, call, rank, row);
      ASSERT_EQ(reference::tokens_of(layout.queries(rank, row)), queries);
      ASSERT_EQ(reference::tokens_of(layout.keys(rank, row)), keys);
      longest_q = std::max(longest_q, layout.queries(rank, row).length);
      longest_k = std::max(longest_k, layout.keys(rank, row).length);
      ASSERT_EQ(layout.keys(rank, row).length, static_cast<std::int64_t>(keys.size()));
      if (problem.partition != PartitionKind::explicit_runs) {
        ASSERT_EQ(layout.keys(rank, row).segments.size(), keys.empty() ? 0u : 1u);
        ASSERT_EQ(layout.queries(rank, row).segments.size(), queries.empty() ? 0u : 1u);
      }
    }
    ASSERT_EQ(layout.local_queries(rank), longest_q);
    ASSERT_EQ(layout.local_keys(rank), longest_k);
    ASSERT_LE(longest_q, local_capacity_queries(problem, rank, world));
    ASSERT_LE(longest_k, local_capacity_keys(problem, rank, world));
  }
}

// Every partition, scope, query cut and form of call against the definition; and build takes no memory that
// reserve did not.
TEST(Layout, RandomCallsLikeTheDefinition) {
  reference::Random random(1);
  std::int64_t built = 0, refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const reference::Sample sample = reference::random_sample(random);
    SCOPED_TRACE(i);
    Layout layout;
    layout.reserve(sample.problem, sample.world);
    const std::uint64_t reserved = layout.bytes();
    const Status status = layout.build(sample.problem, sample.world, sample.call);
    ASSERT_EQ(status.ok(), reference::places_all(sample.problem, sample.call)) << status.message();
    ASSERT_EQ(layout.bytes(), reserved);
    if (status.ok()) {
      ASSERT_NO_FATAL_FAILURE(expect_like_reference(sample, layout));
    }
    ++(status.ok() ? built : refused);
  }
  EXPECT_GT(built, 15000);
  EXPECT_GT(refused, 100);
}

TEST(Layout, ReservesForThousandsOfDocumentsToo) {
  const std::vector<std::int64_t> lengths(3000, 7);
  for (const PartitionKind partition :
       {PartitionKind::contiguous, PartitionKind::striped, PartitionKind::zigzag}) {
    for (const Scope scope : {Scope::capacity, Scope::call, Scope::document}) {
      for (const std::int64_t stripe : {1, 3}) {
        Problem problem = problem_of(partition, 21000, stripe);
        problem.scope = scope;
        problem.query_like_keys = scope == Scope::capacity;
        problem.max_sequences = 3000;
        Layout layout;
        layout.reserve(problem, 48);
        const std::uint64_t reserved = layout.bytes();
        ASSERT_TRUE(layout.build(problem, 48, reference::documents(lengths)).ok());
        EXPECT_EQ(layout.bytes(), reserved);
      }
    }
  }
}

// The most that any call can have: over all ways to split the tokens into documents.
std::int64_t most_in_documents(const Problem& problem, std::int32_t rank, std::int32_t world) {
  const std::int64_t total = problem.seq_k;
  std::vector<std::int64_t> most(static_cast<std::size_t>(total + 1));
  for (std::int64_t document = 0; document < problem.max_sequences; ++document) {
    for (std::int64_t sum = total; sum > 0; --sum) {  // downwards: `most` still is without this document
      for (std::int64_t length = 1; length <= sum; ++length) {
        const auto owned = reference::owned(problem.partition, problem.stripe, world, length);
        most[static_cast<std::size_t>(sum)] =
            std::max(most[static_cast<std::size_t>(sum)],
                     most[static_cast<std::size_t>(sum - length)] +
                         static_cast<std::int64_t>(owned[static_cast<std::size_t>(rank)].size()));
      }
    }
  }
  return most.back();
}

TEST(LocalCapacity, IsTheMostOfAnyDocuments) {
  for (const auto& [partition, stripe] :
       {std::pair(PartitionKind::contiguous, 1), std::pair(PartitionKind::zigzag, 1),
        std::pair(PartitionKind::striped, 1), std::pair(PartitionKind::striped, 3)}) {
    for (const std::int32_t world : {1, 2, 3, 4}) {
      for (const std::int64_t documents : {1, 2, 3, 5, 9}) {
        for (std::int64_t length = 0; length <= 26; length += length < 17 ? 1 : 3) {
          Problem problem = problem_of(partition, length, stripe);
          problem.scope = Scope::document;
          problem.query_like_keys = false;
          problem.max_sequences = documents;
          for (std::int32_t rank = 0; rank < world; ++rank) {
            const std::int64_t most = most_in_documents(problem, rank, world);
            ASSERT_EQ(local_capacity_keys(problem, rank, world), most)
                << "rank " << rank << " of " << world << ", " << documents << " documents, " << length;
            ASSERT_EQ(local_capacity_queries(problem, rank, world), most);
          }
        }
      }
    }
  }
}

TEST(LocalCapacity, OfNewTokensIsThatOfTheBestPlacedInterval) {
  for (const auto& [partition, stripe] :
       {std::pair(PartitionKind::contiguous, 1), std::pair(PartitionKind::zigzag, 1),
        std::pair(PartitionKind::striped, 1), std::pair(PartitionKind::striped, 4)}) {
    for (const std::int32_t world : {1, 2, 3, 5}) {
      Problem problem = problem_of(partition, 60, stripe);  // whole stripes and turns
      const auto owned = reference::owned(partition, stripe, world, 60);
      for (problem.seq_q = 0; problem.seq_q <= 60; ++problem.seq_q) {
        for (std::int32_t rank = 0; rank < world; ++rank) {
          std::int64_t most = 0;
          for (std::int64_t first = 0; first + problem.seq_q <= 60; ++first) {
            std::int64_t inside = 0;
            for (const std::int64_t p : owned[static_cast<std::size_t>(rank)]) {
              inside += p >= first && p < first + problem.seq_q ? 1 : 0;
            }
            most = std::max(most, inside);
          }
          ASSERT_EQ(local_capacity_queries(problem, rank, world), most)
              << "rank " << rank << " of " << world << ", " << problem.seq_q << " queries";
        }
      }
    }
  }
}

TEST(LocalCapacity, DoesNotOverflow) {
  const std::int64_t n = std::int64_t{1} << 40;
  for (const PartitionKind partition :
       {PartitionKind::contiguous, PartitionKind::striped, PartitionKind::zigzag}) {
    for (const Scope scope : {Scope::capacity, Scope::call, Scope::document}) {
      for (const std::int64_t stripe : {std::int64_t{1}, std::int64_t{64}, n, kUnbounded}) {
        Problem problem = problem_of(partition, n, stripe);
        problem.scope = scope;
        problem.query_like_keys = scope == Scope::capacity;
        problem.max_sequences = 1000;
        std::int64_t keys = 0;
        for (std::int32_t rank = 0; rank < 4096; ++rank) keys += local_capacity_keys(problem, rank, 4096);
        EXPECT_GE(keys, n);
        EXPECT_LE(local_capacity_queries(problem, 4095, 4096), n);
      }
    }
  }
}

TEST(Layout, HopelessSizesAreOutOfMemory) {
  Problem problem = problem_of(PartitionKind::striped, kUnbounded / 2, 2);
  Layout layout;
  EXPECT_THROW(layout.reserve(problem, 2), std::bad_alloc);
}

}  // namespace
}  // namespace ringattn::schedule
