// D21's plain implementation, the yardstick of every error limit: scores and softmax in fp32, probabilities rounded to
// the input dtype, times V in fp32 in key order, one rounding at the end.
#pragma once

#include <vector>

#include "tests/support/host_tensor.h"
#include "tests/support/oracle.h"
#include "tests/support/problem_line.h"

namespace ringattn::support {

// Laid out as OracleResult's o and lse.
struct PlainResult {
  std::vector<float> o;  // rounded to the output dtype
  std::vector<float> lse;
};

PlainResult plain_attention(const ProblemLine& problem, const HostTensor& q, const HostTensor& k,
                            const HostTensor& v, int workers = 1);

}  // namespace ringattn::support
