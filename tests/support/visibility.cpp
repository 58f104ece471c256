#include "tests/support/visibility.h"

#include <functional>

namespace ringattn::support {
namespace {

// Lengths of the sequences of one row of the batch: query lengths or key lengths.
std::vector<std::int64_t> sequence_lengths(const ProblemLine& problem, std::int64_t batch_row, bool of_keys) {
  if (!problem.docs) return {of_keys ? problem.keys : problem.queries};
  const std::vector<std::int64_t>& lengths = of_keys && problem.docs_k ? *problem.docs_k : *problem.docs;
  if (problem.batch <= 1) return lengths;
  if (static_cast<std::size_t>(batch_row) >= lengths.size()) return {};
  return {lengths[static_cast<std::size_t>(batch_row)]};
}

std::vector<TokenPlace> places(std::int64_t row_length, const std::vector<std::int64_t>& lengths,
                               const std::function<std::int64_t(std::size_t)>& first_position) {
  std::vector<TokenPlace> tokens(static_cast<std::size_t>(row_length), TokenPlace{-1, 0});
  std::size_t token = 0;
  for (std::size_t sequence = 0; sequence < lengths.size(); ++sequence) {
    for (std::int64_t i = 0; i < lengths[sequence] && token < tokens.size(); ++i, ++token) {
      tokens[token] = {static_cast<std::int64_t>(sequence), first_position(sequence) + i};
    }
  }
  return tokens;
}

}  // namespace

std::vector<TokenPlace> query_places(const ProblemLine& problem, std::int64_t batch_row) {
  const std::vector<std::int64_t> queries = sequence_lengths(problem, batch_row, false);
  const std::vector<std::int64_t> keys = sequence_lengths(problem, batch_row, true);
  return places(problem.queries, queries, [&](std::size_t sequence) {
    return problem.offset ? *problem.offset : keys[sequence] - queries[sequence];
  });
}

std::vector<TokenPlace> key_places(const ProblemLine& problem, std::int64_t batch_row) {
  return places(problem.keys, sequence_lengths(problem, batch_row, true), [](std::size_t) { return 0; });
}

bool visible(const ProblemLine& problem, const TokenPlace& query, const TokenPlace& key) {
  if (query.sequence < 0 || query.sequence != key.sequence) return false;
  if ((problem.mask & RINGATTN_MASK_CAUSAL) != 0 && key.position > query.position) return false;
  if ((problem.mask & RINGATTN_MASK_WINDOW_LEFT) != 0 &&
      query.position - key.position > problem.window_left) {
    return false;
  }
  return (problem.mask & RINGATTN_MASK_WINDOW_RIGHT) == 0 ||
         key.position - query.position <= problem.window_right;
}

double visible_pairs(const ProblemLine& problem) {
  double pairs = 0;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const std::vector<TokenPlace> keys = key_places(problem, b);
    for (const TokenPlace& query : query_places(problem, b)) {
      for (const TokenPlace& key : keys) pairs += visible(problem, query, key) ? 1 : 0;
    }
  }
  return pairs * static_cast<double>(problem.heads);
}

Visibility::Visibility(const ProblemLine& problem) : problem_(problem) {
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    queries_.push_back(query_places(problem, b));
    keys_.push_back(key_places(problem, b));
  }
}

void Visibility::keys_of(std::int64_t batch_row, std::int64_t query, std::vector<std::int64_t>& keys) const {
  const TokenPlace place = queries_[static_cast<std::size_t>(batch_row)][static_cast<std::size_t>(query)];
  const std::vector<TokenPlace>& places = keys_[static_cast<std::size_t>(batch_row)];
  keys.clear();
  for (std::int64_t key = 0; key < problem_.keys; ++key) {
    if (visible(problem_, place, places[static_cast<std::size_t>(key)])) keys.push_back(key);
  }
}

}  // namespace ringattn::support
