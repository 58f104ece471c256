#include "schedule/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace ringattn::schedule::reference {

std::vector<std::vector<std::int64_t>> owned(PartitionKind kind, std::int64_t stripe, std::int32_t world,
                                             std::int64_t length,
                                             const std::vector<std::vector<PositionRun>>& runs) {
  std::vector<std::vector<std::int64_t>> owned(static_cast<std::size_t>(world));
  if (kind == PartitionKind::explicit_runs) {
    for (std::size_t rank = 0; rank < runs.size(); ++rank) {
      for (const PositionRun& run : runs[rank]) {
        for (std::int64_t i = 0; i < run.length; ++i) owned[rank].push_back(run.first + i * run.stride);
      }
    }
    return owned;
  }
  if (kind == PartitionKind::striped) {
    for (std::int64_t p = 0; p < length; ++p)
      owned[static_cast<std::size_t>(p / stripe % world)].push_back(p);
    return owned;
  }
  const std::int64_t pieces = kind == PartitionKind::zigzag ? 2 * world : world;
  std::int64_t next = 0;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const std::int64_t owner = piece < world ? piece : 2 * world - 1 - piece;
    const std::int64_t count = length / pieces + (piece < length % pieces ? 1 : 0);
    for (std::int64_t i = 0; i < count; ++i) owned[static_cast<std::size_t>(owner)].push_back(next++);
  }
  return owned;
}

namespace {

// Cuts one axis; `coordinate` tells where a token of a sequence lies on what is cut.
template <typename Length, typename Coordinate>
std::vector<Token> cut(const std::vector<std::int64_t>& owned_by_rank, std::int64_t first, std::int64_t last,
                       Length length, Coordinate coordinate, bool as_query, const Call& call) {
  std::vector<Token> tokens;
  for (const std::int64_t p : owned_by_rank) {
    for (std::int64_t s = first; s < last; ++s) {
      const Sequence& sequence = call.sequences[static_cast<std::size_t>(s)];
      const std::int64_t i = p - coordinate(sequence);
      if (i >= 0 && i < length(sequence)) tokens.push_back({s, i + (as_query ? sequence.offset : 0)});
    }
  }
  return tokens;
}

std::vector<Token> axis(const Problem& problem, std::int32_t world, const Call& call, std::int32_t rank,
                        std::int64_t row, bool as_query) {
  const bool like_keys = as_query && problem.query_like_keys && problem.scope == Scope::capacity;
  const auto& runs = as_query && !like_keys ? problem.runs_q : problem.runs_k;
  const auto length = [=](const Sequence& s) { return as_query ? s.q_length : s.k_length; };
  const auto start = [=](const Sequence& s) {
    return like_keys ? s.k_start + s.offset : as_query ? s.q_start : s.k_start;
  };
  const auto owned_of = [&](std::int64_t total) {
    return owned(problem.partition, problem.stripe, world, total, runs)[static_cast<std::size_t>(rank)];
  };
  const std::int64_t first = call.first_of(row), last = call.last_of(row);
  if (problem.scope == Scope::document) {
    std::vector<Token> tokens;
    for (std::int64_t s = first; s < last; ++s) {
      const std::int64_t total = length(call.sequences[static_cast<std::size_t>(s)]);
      const auto part = cut(
          owned_of(total), s, s + 1, length, [](const Sequence&) { return 0; }, as_query, call);
      tokens.insert(tokens.end(), part.begin(), part.end());
    }
    return tokens;
  }
  std::int64_t total = as_query && !like_keys ? problem.seq_q : problem.seq_k;
  if (problem.scope == Scope::call) total = as_query ? call.total_q(row) : call.total_k(row);
  return cut(owned_of(total), first, last, length, start, as_query, call);
}

}  // namespace

std::vector<Token> keys(const Problem& problem, std::int32_t world, const Call& call, std::int32_t rank,
                        std::int64_t row) {
  return axis(problem, world, call, rank, row, false);
}
std::vector<Token> queries(const Problem& problem, std::int32_t world, const Call& call, std::int32_t rank,
                           std::int64_t row) {
  return axis(problem, world, call, rank, row, true);
}

bool places_all(const Problem& problem, const Call& call) {
  if (!problem.query_like_keys) return true;
  const bool alone = call.rows > 1 || call.sequences.size() == 1;
  for (const Sequence& s : call.sequences) {
    for (std::int64_t i = 0; i < s.q_length; ++i) {
      const std::int64_t position = s.offset + i;
      if (position < 0 || position >= (alone ? problem.seq_k : s.k_length)) return false;
    }
  }
  return true;
}

std::vector<Token> tokens_of(const Shard& shard) {
  std::vector<Token> tokens;
  for (const Run& run : shard.runs) {
    for (std::int64_t i = 0; i < run.length; ++i)
      tokens.push_back({run.sequence, run.position + i * run.stride});
  }
  return tokens;
}

bool visible(const Token& query, const Token& key, const Mask& mask) {
  if (query.sequence != key.sequence) return false;
  const bool left = mask.left == kUnbounded || key.position >= query.position - mask.left;
  const bool right = mask.right == kUnbounded || key.position <= query.position + mask.right;
  return left && right;
}

std::int64_t between(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

// Interleaves a random number of progressions, cuts them up and deals the parts out in any order.
std::vector<std::vector<PositionRun>> random_runs(Random& random, std::int32_t world, std::int64_t length) {
  std::vector<std::vector<PositionRun>> runs(static_cast<std::size_t>(world));
  std::vector<PositionRun> all;
  for (std::int64_t zone = 0; zone < length;) {
    const std::int64_t end = between(random, zone + 1, length), ways = between(random, 1, 4);
    for (std::int64_t way = 0; way < ways; ++way) {
      for (std::int64_t p = zone + way; p < end;) {
        const std::int64_t count = between(random, 1, (end - 1 - p) / ways + 1);
        all.push_back({p, count, ways});
        p += count * ways;
      }
    }
    zone = end;
  }
  if (between(random, 0, 1) == 1) std::shuffle(all.begin(), all.end(), random);
  for (const PositionRun& run : all)
    runs[static_cast<std::size_t>(between(random, 0, world - 1))].push_back(run);
  return runs;
}

namespace {

void random_call(Random& random, Sample& sample) {
  Problem& problem = sample.problem;
  Call& call = sample.call;
  const bool like_keys = problem.query_like_keys;
  const bool rows = problem.batch > 1 && between(random, 0, 3) > 0;
  call.rows = rows ? problem.batch : 1;
  const std::int64_t count = rows                 ? problem.batch
                             : problem.batch == 1 ? between(random, 0, problem.max_sequences)
                                                  : 1;
  std::int64_t q = 0, k = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (rows) q = k = 0;
    Sequence s{};
    s.q_start = q;
    s.k_start = k;
    const std::int64_t share = rows || count == 1 ? 1 : 2;
    s.q_length = between(random, 0, (problem.seq_q - q) / share);
    s.k_length = between(random, 0, (problem.seq_k - k) / share);
    s.offset = s.k_length - s.q_length;
    if (between(random, 0, 1) == 1) s.offset = between(random, -5, problem.seq_k + 5);
    if (like_keys && s.q_length > 0 && between(random, 0, 20) > 0) {  // mostly where it can be placed
      const std::int64_t bound = rows || count == 1 ? problem.seq_k : s.k_length;
      s.q_length = std::min(s.q_length, bound);
      s.offset = between(random, 0, bound - s.q_length);
    }
    q += s.q_length;
    k += s.k_length;
    call.sequences.push_back(s);
  }
}

}  // namespace

Sample random_sample(Random& random) {
  Sample sample;
  Problem& problem = sample.problem;
  sample.world = static_cast<std::int32_t>(between(random, 1, 7));
  problem.partition = static_cast<PartitionKind>(between(random, 0, 3));
  if (problem.partition != PartitionKind::explicit_runs)
    problem.scope = static_cast<Scope>(between(random, 0, 2));
  problem.query_like_keys = problem.scope == Scope::capacity && between(random, 0, 1) == 1;
  const std::array<std::int64_t, 6> stripes = {1, 1, 2, 3, 8, 1000};
  problem.stripe = stripes[static_cast<std::size_t>(between(random, 0, 5))];
  problem.seq_q = between(random, 0, 40);
  problem.seq_k = between(random, 0, 40);
  problem.batch = between(random, 0, 2) == 0 ? between(random, 2, 3) : 1;
  problem.max_sequences = problem.batch == 1 ? between(random, 1, 6) : problem.batch;
  if (between(random, 0, 3) > 0) problem.mask.right = between(random, 0, 3) == 0 ? between(random, 1, 9) : 0;
  if (between(random, 0, 2) == 0) problem.mask.left = between(random, 0, 9);
  if (problem.partition == PartitionKind::explicit_runs) {
    problem.runs_k = random_runs(random, sample.world, problem.seq_k);
    if (!problem.query_like_keys) problem.runs_q = random_runs(random, sample.world, problem.seq_q);
  }
  random_call(random, sample);
  return sample;
}

Call whole(std::int64_t n) { return documents({n}); }

Call documents(const std::vector<std::int64_t>& lengths) {
  Call call;
  std::int64_t start = 0;
  for (const std::int64_t length : lengths) {
    call.sequences.push_back({start, length, start, length, 0});
    start += length;
  }
  return call;
}

}  // namespace ringattn::schedule::reference

// The reference itself, by hand.
TEST(ScheduleReference, OwnsAsInTheHeader) {
  using ringattn::PartitionKind;
  using ringattn::schedule::reference::owned;
  using Owned = std::vector<std::vector<std::int64_t>>;
  EXPECT_EQ(owned(PartitionKind::contiguous, 1, 3, 7), (Owned{{0, 1, 2}, {3, 4}, {5, 6}}));
  EXPECT_EQ(owned(PartitionKind::zigzag, 1, 2, 7), (Owned{{0, 1, 6}, {2, 3, 4, 5}}));
  EXPECT_EQ(owned(PartitionKind::striped, 2, 2, 7), (Owned{{0, 1, 4, 5}, {2, 3, 6}}));
}
