// One problem of `ringattn verify` on a ring whose ranks are processes: as tests/support/verify.h for a ring of one process.
#pragma once
#include <cstdint>

#include "ring.h"
#include "tests/support/verify.h"

namespace ringattn::tool {

// Collective. Every rank makes all the data and keeps its shard; rank 0 judges, and the others get its `ok` alone.
support::VerifyResult verify_on_ring(const support::ProblemLine& problem, std::uint64_t seed,
                                     const Ring& ring);

}  // namespace ringattn::tool
