// Where things lie in a tile's state and in a worker's scratch. The same for every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel.h"
#include "kernels/shape.h"

namespace ringattn::kernels::cpu {

// Keys are folded in blocks of so many, cut at multiples of it from local key 0: a multiple of the six rows of a micro
// kernel tile, and small enough that scores, queries and output of a panel stay in the first level cache.
inline constexpr std::int64_t kKeyBlock = 120;

// A full tile of the largest head dims takes 1.1e9 floating point operations: about 25 ms by AVX2, 60 ms by SSE4.
inline constexpr std::int64_t kKeysPerTask = 64 * kKeyBlock;

// Floats from one widened key or value row to the next. The extra line keeps rows of 512 bytes out of the same cache sets.
inline std::int64_t widened_stride(std::int64_t dim) { return (dim + 15) / 16 * 16 + 16; }

// State: m and l per lane, then O as one panel [channel][lane] after the other.
struct StateView {
  float* maximum;
  float* sum;
  float* outputs;
};

inline StateView view_state(void* state) {
  auto* const floats = static_cast<float*>(state);
  return {floats, floats + kMaxLanes, floats + 2 * kMaxLanes};
}

inline std::size_t state_bytes(const Shape& shape) {
  return round_up(static_cast<std::int64_t>(sizeof(float)) * kMaxLanes * (2 + shape.head_dim_v), 64);
}

struct ScratchView {
  float* queries;        // Q^T, one panel [channel][lane] after the other: kept while the tile stays the same
  float* scores;         // S^T, then P^T of one panel and block: [key][lane]
  float* outputs;        // a second O^T of one panel, for blocks with non-finite values
  float* row;            // one widened query
  float* keys;           // a block of K, widened or copied
  float* values;         // a block of V, likewise
  float* zeroed_values;  // a block of V without its non-finite rows
  std::int64_t total;    // floats
};

inline ScratchView view_scratch(const Shape& shape, void* scratch) {
  auto* const base = static_cast<float*>(scratch);
  std::int64_t used = 0;
  const auto take = [&](std::int64_t floats) {
    float* const place = base == nullptr ? nullptr : base + used;
    used += (floats + 15) / 16 * 16;
    return place;
  };
  const std::int64_t keys = kKeyBlock * widened_stride(shape.head_dim_qk);
  const std::int64_t values = kKeyBlock * widened_stride(shape.head_dim_v);
  ScratchView view{};
  view.queries = take(kMaxLanes * shape.head_dim_qk);
  view.scores = take(kMaxLanes * kKeyBlock);
  view.outputs = take(kMaxLanes * shape.head_dim_v);
  view.row = take(shape.head_dim_qk);
  view.keys = take(keys);
  view.values = take(values);
  view.zeroed_values = take(values);
  view.total = used;
  return view;
}

inline std::size_t scratch_bytes(const Shape& shape) {
  return static_cast<std::size_t>(view_scratch(shape, nullptr).total) * sizeof(float);
}

}  // namespace ringattn::kernels::cpu
