// How much a call of a problem can need at most.
#pragma once
#include <cstdint>

#include "base/problem.h"

namespace ringattn::schedule {

struct AxisBound {
  std::int64_t shards;          // of all ranks and rows
  std::int64_t runs, segments;  // of all shards together
};

// Throws std::bad_alloc where no machine has the memory.
AxisBound bound_of_keys(const Problem& problem, std::int32_t world);
AxisBound bound_of_queries(const Problem& problem, std::int32_t world);

}  // namespace ringattn::schedule
