// Shards and visibility token by token, straight from the header's definitions; and random small problems to
// compare with.
#pragma once
#include <cstdint>
#include <random>
#include <vector>

#include "base/call.h"
#include "base/problem.h"
#include "schedule/layout.h"

namespace ringattn::schedule::reference {

struct Token {
  std::int64_t sequence, position;
  bool operator==(const Token&) const = default;
};

// Which positions of 0..length-1 each rank owns, in local order. `runs` only for EXPLICIT.
std::vector<std::vector<std::int64_t>> owned(PartitionKind kind, std::int64_t stripe, std::int32_t world,
                                             std::int64_t length,
                                             const std::vector<std::vector<PositionRun>>& runs = {});

// Tokens of one rank in one row.
std::vector<Token> keys(const Problem& problem, std::int32_t world, const Call& call, std::int32_t rank,
                        std::int64_t row);
std::vector<Token> queries(const Problem& problem, std::int32_t world, const Call& call, std::int32_t rank,
                           std::int64_t row);
// Can LIKE_KEYS place all queries of the call?
bool places_all(const Problem& problem, const Call& call);

std::vector<Token> tokens_of(const Shard& shard);
bool visible(const Token& query, const Token& key, const Mask& mask);

struct Sample {
  Problem problem;
  std::int32_t world = 1;
  Call call;
};
using Random = std::mt19937_64;
std::int64_t between(Random& random, std::int64_t low, std::int64_t high);
std::vector<std::vector<PositionRun>> random_runs(Random& random, std::int32_t world, std::int64_t length);
Sample random_sample(Random& random);

// One sequence of n queries and n keys in every row.
Call whole(std::int64_t n);
Call documents(const std::vector<std::int64_t>& lengths);

}  // namespace ringattn::schedule::reference
