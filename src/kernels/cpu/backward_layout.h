// Where things lie in the state and scratch of a backward tile. The same for every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/layout.h"

namespace ringattn::kernels::cpu {

// One call then takes 0.35e9 floating point operations for the largest head dims.
inline constexpr std::int64_t kBackwardKeysPerTask = 4 * kKeyBlock;

// State: lse times log2(e) and delta times scale per lane, then dQ as one panel [channel][lane] after the
// other.
struct BackwardState {
  float* lse;
  float* delta;
  float* d_queries;
};

inline BackwardState view_backward_state(void* state) {
  auto* const floats = static_cast<float*>(state);
  return {floats, floats + kMaxBackwardLanes, floats + 2 * kMaxBackwardLanes};
}

inline std::size_t backward_state_bytes(const Shape& shape) {
  return round_up(static_cast<std::int64_t>(sizeof(float)) * kMaxBackwardLanes * (2 + shape.head_dim_qk), 64);
}

// Up to `non_finite` everything is kept while the tile stays the same.
struct BackwardScratch {
  float* queries;        // Q^T, panels [channel][lane]; times scale and log2(e)
  float* d_outputs;      // dO^T, likewise; times scale
  float* query_rows;     // Q, panels [lane][channel]
  float* d_output_rows;  // dO, likewise
  float* non_finite;     // per lane: 1 = its Q or dO is not finite; in the rows above both are zero
  float* probabilities;  // S^T, then P^T of a block: panels [key][lane]
  float* d_scores;       // dP^T, then dS^T, likewise
  float* row;            // one widened row of a tensor
  float* keys;           // a block of K, widened or copied
  float* values;         // a block of V, likewise
  std::int64_t total;    // floats
};

inline BackwardScratch view_backward_scratch(const Shape& shape, void* scratch) {
  auto* const base = static_cast<float*>(scratch);
  std::int64_t used = 0;
  const auto take = [&](std::int64_t floats) {
    float* const place = base == nullptr ? nullptr : base + used;
    used += (floats + 15) / 16 * 16;
    return place;
  };
  const auto whole_vectors = [](std::int64_t dim) { return (dim + 15) / 16 * 16; };
  const std::int64_t dim_qk = shape.head_dim_qk, dim_v = shape.head_dim_v;
  BackwardScratch view{};
  view.queries = take(kMaxBackwardLanes * dim_qk);
  view.d_outputs = take(kMaxBackwardLanes * dim_v);
  view.query_rows = take(kMaxBackwardLanes * whole_vectors(dim_qk));
  view.d_output_rows = take(kMaxBackwardLanes * whole_vectors(dim_v));
  view.non_finite = take(kMaxBackwardLanes);
  view.probabilities = take(kMaxBackwardLanes * kKeyBlock);
  view.d_scores = take(kMaxBackwardLanes * kKeyBlock);
  view.row = take(dim_qk > dim_v ? dim_qk : dim_v);
  view.keys = take(kKeyBlock * widened_stride(dim_qk));
  view.values = take(kKeyBlock * widened_stride(dim_v));
  view.total = used;
  return view;
}

inline std::size_t backward_scratch_bytes(const Shape& shape) {
  return static_cast<std::size_t>(view_backward_scratch(shape, nullptr).total) * sizeof(float);
}

}  // namespace ringattn::kernels::cpu
