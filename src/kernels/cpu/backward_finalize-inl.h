// The begin and the end of a backward tile: lse and delta in, dQ out in the type of the gradients.
#if defined(RINGATTN_KERNELS_CPU_BACKWARD_FINALIZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGATTN_KERNELS_CPU_BACKWARD_FINALIZE_INL_H_
#undef RINGATTN_KERNELS_CPU_BACKWARD_FINALIZE_INL_H_
#else
#define RINGATTN_KERNELS_CPU_BACKWARD_FINALIZE_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "kernels/cpu/backward_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringattn::kernels::cpu::HWY_NAMESPACE {

// Both aligned; the sum does not depend on where the rows came from.
inline float DotOfRows(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::int64_t dim) {
  const Floats d;
  Vector sum = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + kVectorLanes <= dim; i += kVectorLanes)
    sum = hn::MulAdd(hn::Load(d, a + i), hn::Load(d, b + i), sum);
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < dim; ++i) total += a[i] * b[i];
  return total;
}

inline float LoadLane(const Shape& shape, const GradientTile& tile, const GradientTile::Rows& rows,
                      int lane) {
  return load_bits<float>(rows.data,
                          lane_offset(shape, tile.first + lane, rows.row_stride, rows.head_stride));
}

inline void BackwardBegin(const Shape& shape, const GradientTile& tile, void* state_memory) {
  const BackwardState state = view_backward_state(state_memory);
  HWY_ALIGN float o[kMaxHeadDim];
  HWY_ALIGN float d_o[kMaxHeadDim];
  std::fill_n(state.lse, kMaxBackwardLanes, 0.0f);
  std::fill_n(state.delta, kMaxBackwardLanes, 0.0f);
  std::fill_n(state.d_queries, kMaxBackwardLanes * shape.head_dim_qk, 0.0f);
  for (int lane = 0; lane < tile.lanes; ++lane) {
    WidenLane(shape, tile, tile.o, lane, shape.dtype_out, shape.head_dim_v, o);
    WidenLane(shape, tile, tile.d_o, lane, shape.dtype_out, shape.head_dim_v, d_o);
    double delta = DotOfRows(o, d_o, shape.head_dim_v);
    if (tile.d_lse.data != nullptr) delta -= LoadLane(shape, tile, tile.d_lse, lane);
    state.delta[lane] = static_cast<float>(shape.scale * delta);
    state.lse[lane] = static_cast<float>(1.4426950408889634 * LoadLane(shape, tile, tile.lse, lane));
    // Of a row that sees keys all the same: its sum was 0 / 0, and so are its probabilities.
    if (state.lse[lane] == kNoMaximum) state.lse[lane] = std::numeric_limits<float>::quiet_NaN();
  }
}

inline void FinalizeGradients(const Shape& shape, const QueryGradients& out, const BackwardState& state,
                              int first) {
  constexpr std::int64_t kChunk = 64;
  float turned[kPanelLanes * kChunk];
  const int lanes = std::min(out.real_lanes - first, kPanelLanes);
  const int width = PanelVectors(out.real_lanes, first) * kVectorLanes;
  const float* const panel = state.d_queries + first * shape.head_dim_qk;
  for (std::int64_t c = 0; c < shape.head_dim_qk; c += kChunk) {
    const std::int64_t count = std::min(kChunk, shape.head_dim_qk - c);
    for (std::int64_t i = 0; i < count; ++i) {
      for (int lane = 0; lane < lanes; ++lane) turned[lane * kChunk + i] = panel[(c + i) * width + lane];
    }
    for (int lane = 0; lane < lanes; ++lane) {
      const std::int64_t offset =
          lane_offset(shape, out.first + first + lane, out.row_stride, out.head_stride);
      store_floats(turned + lane * kChunk, count, element_at(out.d_q, offset + c, shape.dtype_grad),
                   shape.dtype_grad);
    }
  }
}

inline void BackwardFinalize(const Shape& shape, const QueryGradients& out, const void* state_memory) {
  const BackwardState state = view_backward_state(const_cast<void*>(state_memory));
  for (int first = 0; first < out.real_lanes; first += kPanelLanes)
    FinalizeGradients(shape, out, state, first);
  for (int lane = out.real_lanes; lane < out.lanes; ++lane) {
    const std::int64_t offset = lane_offset(shape, out.first + lane, out.row_stride, out.head_stride);
    // Zero is all bits zero in every type.
    std::fill_n(element_at(out.d_q, offset, shape.dtype_grad), shape.head_dim_qk * size_of(shape.dtype_grad),
                char{0});
  }
}

}  // namespace ringattn::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
