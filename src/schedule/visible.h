// The mask applied to shards: which local keys a local query sees. The one place where visibility is
// computed (base/problem.h: Mask).
#pragma once
#include <cstdint>

#include "base/problem.h"
#include "schedule/layout.h"

namespace ringattn::schedule {

// For `count` query rows from local index `first` on: lo[i]..hi[i] = local indices of the visible keys in
// segment `segment` of `keys` (lo = hi where none). Allocates nothing.
void visible_keys(const Shard& queries, std::int64_t first, std::int64_t count, const Shard& keys,
                  std::int64_t segment, const Mask& mask, std::int64_t* lo, std::int64_t* hi);

// Does any query of one shard see any key of the other? O(runs log runs), allocates nothing.
bool any_visible(const Shard& queries, const Shard& keys, const Mask& mask);

// How many (query, key) pairs are visible. Exact below 2^53, closed forms, so that millions of tokens take
// microseconds.
double visible_pairs(const Shard& queries, const Shard& keys, const Mask& mask);

}  // namespace ringattn::schedule
