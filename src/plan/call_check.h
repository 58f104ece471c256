// From the caller's values of one call to a checked, resolved Call.
#pragma once
#include "base/call.h"
#include "base/problem.h"
#include "base/status.h"

namespace ringattn::plan {

// `call` null = full lengths; it has been read in full. Allocates nothing when out.sequences has room for
// max_sequences.
Status check_call(const Problem& problem, const ringattn_call* call, Call& out);

}  // namespace ringattn::plan
