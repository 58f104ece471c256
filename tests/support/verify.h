// One problem from random data to a verdict: run_ring against the fp64 oracle within D21's limits, with
// pass=backward the gradients as well.
#pragma once

#include <cstdint>
#include <string>

#include "tests/support/limits.h"
#include "tests/support/problem_line.h"
#include "tests/support/random_data.h"
#include "tests/support/run_ring.h"

namespace ringattn::support {

struct VerifyResult {
  bool ok = false;
  std::string line;   // the problem
  std::string error;  // "" when ok; otherwise one line: the library's error, or the element out of its limit
  bool backward = false;
  LimitResult o, lse;
  LimitResult d_q, d_k, d_v;  // with pass=backward
  double run_seconds = 0;     // the library's execution, all passes
  double oracle_seconds = 0;  // oracle and plain implementation
};

// Random data from `seed` (mixed with the problem's own seed).
VerifyResult verify(const ProblemLine& problem, std::uint64_t seed, const RunOptions& options = {});

// The same for given inputs.
VerifyResult verify_inputs(const ProblemLine& problem, const Inputs& inputs, const RunOptions& options = {});

// One line for people: "ok   o 1.2e-07 <= 3.4e-07 (rms ...)  lse ...  n=..." or "FAIL ...".
std::string to_text(const VerifyResult& result);

}  // namespace ringattn::support
