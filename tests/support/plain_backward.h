// D21's plain implementation of the gradients: fp32, from its own forward's lse and its o as rounded to the
// output dtype; P and dS rounded to the input dtype before the products; dQ, dK and dV summed in fp32, row
// after row, and rounded once.
#pragma once

#include <vector>

#include "tests/support/host_tensor.h"
#include "tests/support/plain.h"
#include "tests/support/problem_line.h"

namespace ringattn::support {

// Laid out as OracleGradients' values.
struct PlainGradients {
  std::vector<float> d_q, d_k, d_v;  // rounded to the gradients' dtype
};

// `forward` is plain_attention's answer for the same inputs; d_lse may be NULL.
PlainGradients plain_backward(const ProblemLine& problem, const HostTensor& q, const HostTensor& k,
                              const HostTensor& v, const PlainResult& forward, const HostTensor& d_o,
                              const HostTensor* d_lse, int workers = 1);

}  // namespace ringattn::support
