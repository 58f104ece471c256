// Attention in fp64 over the gathered sequence, straight from its definition: every pair is tested by itself.
// It shares nothing with the library but the meaning of a problem.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/support/host_tensor.h"
#include "tests/support/problem_line.h"
#include "tests/support/visibility.h"

namespace ringattn::support {

// All arrays are dense: o like [batch, query, head, dim_v], the others like [batch, query, head].
struct OracleResult {
  std::int64_t queries = 0, heads = 0, dim_v = 0;
  std::vector<double> o;
  std::vector<double> lse;        // natural logarithm; -inf where no key is visible
  std::vector<double> abs_pv;     // sum of p |v|, like o
  std::vector<double> abs_score;  // A: largest scale * sum |q_d k_d| over the visible keys
  std::vector<double> row_max;    // m: largest score
  std::vector<double> log_sum;    // ln l, with l = sum of exp(score - m)

  std::size_t row(std::int64_t b, std::int64_t query, std::int64_t head) const {
    return static_cast<std::size_t>((b * queries + query) * heads + head);
  }
  std::size_t element(std::int64_t b, std::int64_t query, std::int64_t head, std::int64_t d) const {
    return row(b, query, head) * static_cast<std::size_t>(dim_v) + static_cast<std::size_t>(d);
  }
};

// `workers` threads share the rows. The answer does not depend on how many.
OracleResult oracle_attention(const ProblemLine& problem, const HostTensor& q, const HostTensor& k,
                              const HostTensor& v, int workers = 1);

}  // namespace ringattn::support
