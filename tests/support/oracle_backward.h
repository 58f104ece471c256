// The gradients of attention in fp64 over the gathered sequence, straight from their definition
// (ringattn/backward.h), with P exact: nothing of it comes from a forward pass.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "tests/support/host_tensor.h"
#include "tests/support/problem_line.h"

namespace ringattn::support {

// The gradient of one input, dense: value and the sums like the input [batch, seq, head, dim], the others
// like [batch, seq, head].
struct OracleGradient {
  std::array<std::int64_t, 4> shape{};
  std::vector<double> value;
  // D21's sums. dQ, dK: |dS||k|, |dS||q| times scale, with |dS| as p (|dO.v| + |delta|); dV: p|dO|.
  std::vector<double> abs_terms;
  // The same with the products inside dO.v and delta taken one by one, |dO.v| as sum |dO_d v_d|: what the rounding of
  // these sums moves, however small they are. dV: 0.
  std::vector<double> abs_products;
  // How far the value moves when delta comes from an O that was given, for one that has been rounded. 0 without such an O.
  std::vector<double> shift;
  std::vector<double> abs_score;  // A of a row; of a key: the largest A of the rows that see it
  std::vector<char>
      reached;  // 0: sees no key, is seen by no query or is padding, so the gradient is exactly zero

  std::size_t row(std::int64_t b, std::int64_t s, std::int64_t h) const {
    return static_cast<std::size_t>((b * shape[1] + s) * shape[2] + h);
  }
  std::size_t element(std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t d) const {
    return row(b, s, h) * static_cast<std::size_t>(shape[3]) + static_cast<std::size_t>(d);
  }
};

struct OracleGradients {
  OracleGradient d_q, d_k, d_v;
};

// The value is always that of the exact O. d_lse may be NULL: nothing flows into lse. `workers` threads share the kv
// heads; the answer does not depend on how many. `progress` (may be empty) hears the part that is done, from one thread
// at a time. `given_o`: the O that ringattn_backward was given, for `shift`; may be NULL.
OracleGradients oracle_backward(const ProblemLine& problem, const HostTensor& q, const HostTensor& k,
                                const HostTensor& v, const HostTensor& d_o, const HostTensor* d_lse,
                                int workers = 1, const std::function<void(double)>& progress = {},
                                const HostTensor* given_o = nullptr);

}  // namespace ringattn::support
