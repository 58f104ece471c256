// Do two tensors of the caller have a byte in common?
#pragma once
#include "base/tensor.h"

namespace ringattn::api {

// Exact also for interleaved slices of one buffer, as a fused q, k, v, o or the ranks' parts of one global tensor.
// Two that share only a range of addresses and whose strides fit each other nowhere may need more steps than a
// call can spend; they then count as apart.
bool overlap(const TensorView& a, const TensorView& b);

// From the first byte to the last, both included.
__int128 bytes_spanned(const TensorView& t);

}  // namespace ringattn::api
