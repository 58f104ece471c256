// Who sees whom, straight from the definition of the mask in ringattn.h: every pair is tested by itself. It
// shares nothing with the library but the meaning of a problem.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/support/problem_line.h"

namespace ringattn::support {

// Where a token of the global row is: its sequence, and its position there.
struct TokenPlace {
  std::int64_t sequence;  // -1 = padding
  std::int64_t position;
};

// Places of all queries (offset included) and all keys of one row of the batch.
std::vector<TokenPlace> query_places(const ProblemLine& problem, std::int64_t batch_row);
std::vector<TokenPlace> key_places(const ProblemLine& problem, std::int64_t batch_row);

// The header's sentence about the mask, for one pair.
bool visible(const ProblemLine& problem, const TokenPlace& query, const TokenPlace& key);

// Visible pairs of the whole problem, batch and heads counted.
double visible_pairs(const ProblemLine& problem);

// The places of a whole problem, found once. Borrows the problem.
class Visibility {
 public:
  explicit Visibility(const ProblemLine& problem);
  // Keys that the query sees, in order, into `keys`.
  void keys_of(std::int64_t batch_row, std::int64_t query, std::vector<std::int64_t>& keys) const;

 private:
  const ProblemLine& problem_;
  std::vector<std::vector<TokenPlace>> queries_, keys_;  // [batch row]
};

}  // namespace ringattn::support
