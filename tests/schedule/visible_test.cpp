#include "schedule/visible.h"

#include <gtest/gtest.h>

#include "schedule/reference.h"

namespace ringattn::schedule {
namespace {

using reference::Token;

// Token by token: the local keys of the segment that each of rows first.. sees, and how many pairs there are
// in all.
void expect_visible_keys(const Shard& queries, const Shard& keys, const Mask& mask, std::int64_t first,
                         std::int64_t count) {
  const std::vector<Token> query_tokens = reference::tokens_of(queries),
                           key_tokens = reference::tokens_of(keys);
  for (std::size_t segment = 0; segment < keys.segments.size(); ++segment) {
    const std::int64_t begin = keys.runs[static_cast<std::size_t>(keys.segments[segment])].local;
    const std::int64_t end = segment + 1 < keys.segments.size()
                                 ? keys.runs[static_cast<std::size_t>(keys.segments[segment + 1])].local
                                 : keys.length;
    std::vector<std::int64_t> lo(static_cast<std::size_t>(count), -1), hi(lo);
    visible_keys(queries, first, count, keys, static_cast<std::int64_t>(segment), mask, lo.data(), hi.data());
    for (std::int64_t i = 0; i < count; ++i) {
      const auto row = static_cast<std::size_t>(i);
      ASSERT_LE(lo[row], hi[row]);
      for (std::int64_t k = begin; k < end; ++k) {
        const bool expected = reference::visible(query_tokens[static_cast<std::size_t>(first + i)],
                                                 key_tokens[static_cast<std::size_t>(k)], mask);
        ASSERT_EQ(k >= lo[row] && k < hi[row], expected) << "row " << first + i << ", key " << k;
      }
      ASSERT_TRUE(lo[row] == hi[row] || (lo[row] >= begin && hi[row] <= end));
    }
  }
}

std::int64_t count_pairs(const Shard& queries, const Shard& keys, const Mask& mask) {
  std::int64_t pairs = 0;
  const std::vector<Token> key_tokens = reference::tokens_of(keys);
  for (const Token& query : reference::tokens_of(queries)) {
    for (const Token& key : key_tokens) pairs += reference::visible(query, key, mask) ? 1 : 0;
  }
  return pairs;
}

TEST(Visible, RandomShardsLikeTheDefinition) {
  reference::Random random(5);
  std::int64_t seen = 0, unseen = 0;
  for (int i = 0; i < 4000; ++i) {
    const auto [problem, world, call] = reference::random_sample(random);
    Layout layout;
    if (!layout.build(problem, world, call).ok()) continue;
    SCOPED_TRACE(i);
    for (std::int32_t rank = 0; rank < world; ++rank) {
      for (std::int32_t block = 0; block < world; ++block) {
        for (std::int64_t row = 0; row < call.rows; ++row) {
          const Shard queries = layout.queries(rank, row), keys = layout.keys(block, row);
          const std::int64_t pairs = count_pairs(queries, keys, problem.mask);
          ASSERT_EQ(visible_pairs(queries, keys, problem.mask), static_cast<double>(pairs));
          ASSERT_EQ(any_visible(queries, keys, problem.mask), pairs > 0);
          ++(pairs > 0 ? seen : unseen);
          const std::int64_t first = reference::between(random, 0, queries.length);
          const std::int64_t count = reference::between(random, 0, queries.length - first);
          ASSERT_NO_FATAL_FAILURE(expect_visible_keys(queries, keys, problem.mask, first, count));
        }
      }
    }
  }
  EXPECT_GT(seen, 5000);
  EXPECT_GT(unseen, 5000);
}

// Strides of queries and keys that have nothing to do with each other: no partition of both axes alike makes
// them.
TEST(Visible, AnyTwoStrides) {
  reference::Random random(6);
  for (int i = 0; i < 20000; ++i) {
    const schedule::Run query{0, reference::between(random, 1, 12), reference::between(random, -30, 60),
                              reference::between(random, 1, 9), 0};
    std::vector<schedule::Run> runs;
    std::int64_t local = 0, position = reference::between(random, 0, 20);
    for (std::int64_t r = reference::between(random, 1, 4); r > 0; --r) {
      runs.push_back(
          {local, reference::between(random, 1, 8), position, reference::between(random, 1, 9), 0});
      local += runs.back().length;
      position += (runs.back().length - 1) * runs.back().stride + reference::between(random, 1, 15);
    }
    const std::vector<std::int64_t> segments = {0};
    const Shard queries{{&query, 1}, segments, query.length}, keys{runs, segments, local};
    Mask mask;
    if (reference::between(random, 0, 3) > 0) mask.left = reference::between(random, 0, 6);
    if (reference::between(random, 0, 3) > 0) mask.right = reference::between(random, 0, 6);
    const std::int64_t pairs = count_pairs(queries, keys, mask);
    ASSERT_EQ(visible_pairs(queries, keys, mask), static_cast<double>(pairs)) << i;
    ASSERT_EQ(any_visible(queries, keys, mask), pairs > 0) << i;
    ASSERT_NO_FATAL_FAILURE(expect_visible_keys(queries, keys, mask, 0, query.length)) << i;
  }
}

Layout layout_of(PartitionKind partition, std::int64_t stripe, std::int32_t world, std::int64_t n) {
  Problem problem;
  problem.partition = partition;
  problem.stripe = stripe;
  problem.seq_q = problem.seq_k = n;
  Layout layout;
  EXPECT_TRUE(layout.build(problem, world, reference::whole(n)).ok());
  return layout;
}

double sum_of_pairs(const Layout& layout, const Mask& mask) {
  double sum = 0;
  for (std::int32_t rank = 0; rank < layout.world(); ++rank) {
    for (std::int32_t block = 0; block < layout.world(); ++block) {
      sum += visible_pairs(layout.queries(rank, 0), layout.keys(block, 0), mask);
    }
  }
  return sum;
}

TEST(VisiblePairs, AMillionTokens) {
  const double n = 1000000;
  for (const auto& [partition, stripe] :
       {std::pair(PartitionKind::contiguous, 1), std::pair(PartitionKind::zigzag, 1),
        std::pair(PartitionKind::striped, 1), std::pair(PartitionKind::striped, 64)}) {
    const Layout layout = layout_of(partition, stripe, 16, 1000000);
    EXPECT_EQ(sum_of_pairs(layout, {}), n * n);
    EXPECT_EQ(sum_of_pairs(layout, {kUnbounded, 0}), n * (n + 1) / 2);
    EXPECT_EQ(sum_of_pairs(layout, {0, kUnbounded}), n * (n + 1) / 2);
    EXPECT_EQ(sum_of_pairs(layout, {99, 0}), 100 * n - 4950);
    EXPECT_EQ(sum_of_pairs(layout, {0, 0}), n);
  }
}

TEST(VisiblePairs, TwoToTheFortyTokens) {
  const std::int64_t n = std::int64_t{1} << 40;
  const double exact = static_cast<double>(n) * (static_cast<double>(n) + 1) / 2;
  for (const PartitionKind partition :
       {PartitionKind::contiguous, PartitionKind::zigzag, PartitionKind::striped}) {
    const Layout layout = layout_of(partition, 1, 16, n);
    EXPECT_NEAR(sum_of_pairs(layout, {kUnbounded, 0}) / exact, 1, 1e-12);
    EXPECT_EQ(sum_of_pairs(layout, {7, 0}), 8 * static_cast<double>(n) - 28);
    EXPECT_TRUE(any_visible(layout.queries(15, 0), layout.keys(15, 0), {0, 0}));
    EXPECT_FALSE(any_visible(layout.queries(0, 0), layout.keys(15, 0), {0, 0}));
  }
}

// Bounds next to the largest number see all, without overflow.
TEST(Visible, HugeWindowsAreNoBounds) {
  Problem problem;
  problem.seq_q = problem.seq_k = 6;
  problem.query_like_keys = false;
  for (const std::int64_t offset : {std::int64_t{0}, std::int64_t{1} << 60, -(std::int64_t{1} << 60)}) {
    Call call;
    call.sequences = {{0, 6, 0, 6, offset}};
    Layout layout;
    ASSERT_TRUE(layout.build(problem, 1, call).ok());
    const Shard queries = layout.queries(0, 0), keys = layout.keys(0, 0);
    for (const std::int64_t window : {kUnbounded - 1, std::int64_t{1} << 61, (std::int64_t{1} << 62) - 1}) {
      EXPECT_EQ(visible_pairs(queries, keys, {window, window}), 36);
      EXPECT_TRUE(any_visible(queries, keys, {window, window}));
      std::int64_t lo[6], hi[6];
      visible_keys(queries, 0, 6, keys, 0, {window, window}, lo, hi);
      EXPECT_EQ(lo[0], 0);
      EXPECT_EQ(hi[5], 6);
    }
    EXPECT_EQ(visible_pairs(queries, keys, {kUnbounded, 0}), offset == 0 ? 21 : offset > 0 ? 36 : 0);
  }
}

TEST(VisiblePairs, DocumentsOfFourAndTwelve) {  // PyTorch PR#189902
  Problem problem;
  problem.partition = PartitionKind::zigzag;
  problem.scope = Scope::document;
  problem.query_like_keys = false;
  problem.seq_q = problem.seq_k = 16;
  problem.max_sequences = 2;
  problem.mask.right = 0;
  Layout layout;
  ASSERT_TRUE(layout.build(problem, 2, reference::documents({4, 12})).ok());
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    double pairs = 0;
    for (std::int32_t block = 0; block < 2; ++block) {
      pairs += visible_pairs(layout.queries(rank, 0), layout.keys(block, 0), problem.mask);
    }
    EXPECT_EQ(pairs, 44);
  }
}

// Causal work is even: ranks differ by less than a tile of 64 rows against all keys, whatever the length;
// contiguous ranks do not.
TEST(VisiblePairs, CausalWorkIsEven) {
  const Mask causal{kUnbounded, 0};
  for (const std::int64_t n : {1000, 4096, 65536, 100003}) {
    for (const std::int32_t world : {2, 3, 8, 16, 61}) {
      for (const PartitionKind partition :
           {PartitionKind::contiguous, PartitionKind::striped, PartitionKind::zigzag}) {
        const Layout layout = layout_of(partition, 1, world, n);
        double most = 0, least = static_cast<double>(n) * static_cast<double>(n);
        for (std::int32_t rank = 0; rank < world; ++rank) {
          double pairs = 0;
          for (std::int32_t block = 0; block < world; ++block) {
            pairs += visible_pairs(layout.queries(rank, 0), layout.keys(block, 0), causal);
          }
          most = std::max(most, pairs);
          least = std::min(least, pairs);
        }
        if (partition == PartitionKind::contiguous) {
          EXPECT_GT(most, 2 * least);
        } else {
          EXPECT_LE(most - least, 64.0 * static_cast<double>(n)) << n << " tokens on " << world;
          const bool same_pieces = partition == PartitionKind::zigzag && n % (2 * world) == 0;
          EXPECT_TRUE(!same_pieces || most == least);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ringattn::schedule
