// Seeded random numbers that are the same on every machine: integer arithmetic, no libm, no standard
// distributions.
#pragma once

#include <cstdint>

#include "tests/support/host_tensor.h"
#include "tests/support/problem_line.h"

namespace ringattn::support {

class Random {
 public:
  explicit Random(std::uint64_t seed);
  std::uint64_t bits();                    // xoshiro256**
  std::int64_t below(std::int64_t limit);  // 0 <= result < limit; limit >= 1
  double uniform();                        // [0, 1)
  double normal();                         // mean 0, variance 1: a sum of twelve uniform numbers

 private:
  std::uint64_t state_[4];
};

void fill_normal(HostTensor& tensor, Random& random);

// Inputs of a problem: global q, k, v; with pass=backward also d_o (like o) and d_lse (F32, like lse), else
// empty.
struct Inputs {
  HostTensor q, k, v;
  HostTensor d_o, d_lse;
};

// N(0, 1) rounded to the problem's dtypes, in the problem's layout. The values do not depend on the layout,
// and those of q, k, v not on the pass. Rows beyond the lengths of the call are NaN.
Inputs random_inputs(const ProblemLine& problem, std::uint64_t seed);

// Zeros of the right shapes, for tests that fill channel 0 by a closed form.
Inputs zero_inputs(const ProblemLine& problem);

}  // namespace ringattn::support
