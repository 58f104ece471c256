// What `ringattn attend` has computed, and its judgement against fp64 and the references of the file.
#pragma once
#include "attend_input.h"
#include "ring_run.h"

namespace ringattn::tool {

// Of the whole ring; lse is [batch, head, seq, 1].
struct AttendResult {
  Buffer o, lse;
  Buffer d_q, d_k, d_v;  // with --backward
};

// What is computed again in fp64 as a whole must end in reasonable time: an answer without references, and
// gradients always. Throws BadInput.
void require_checkable(const support::ProblemLine& problem, const AttendInput& input);

// Everything is checked, also after the first part that is wrong. Prints the errors beside their limits. `gradients` is
// NULL without --backward.
bool check_all(const support::ProblemLine& problem, const AttendInput& input, const BackwardInput* gradients,
               const AttendResult& result);

}  // namespace ringattn::tool
