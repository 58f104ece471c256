// The end of a tile: O / l in the output type, and the natural logarithm of the sum.
#if defined(RINGATTN_KERNELS_CPU_FINALIZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGATTN_KERNELS_CPU_FINALIZE_INL_H_
#undef RINGATTN_KERNELS_CPU_FINALIZE_INL_H_
#else
#define RINGATTN_KERNELS_CPU_FINALIZE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringattn::kernels::cpu::HWY_NAMESPACE {

inline constexpr float kNoMaximum = -std::numeric_limits<float>::infinity();

inline void Begin(const Shape& shape, void* state) {
  const StateView tile = view_state(state);
  std::fill_n(tile.maximum, kMaxLanes, kNoMaximum);
  std::fill_n(tile.sum, kMaxLanes, 0.0f);
  std::fill_n(tile.outputs, kMaxLanes * shape.head_dim_v, 0.0f);
}

// m is in units of ln 2. In double, because m can be large next to ln l.
inline float NaturalLse(float maximum, float sum) {
  return static_cast<float>(maximum * 0.6931471805599453 + std::log(static_cast<double>(sum)));
}

// O / l of `count` channels of a panel, from [channel][lane] to [lane][channel].
inline void DivideAndTurn(const float* HWY_RESTRICT outputs, const float* HWY_RESTRICT sum, int width,
                          std::int64_t count, std::int64_t turned_stride, float* HWY_RESTRICT turned) {
  const Floats d;
  HWY_ALIGN float quotient[kPanelLanes];
  for (std::int64_t c = 0; c < count; ++c) {
    for (int lane = 0; lane < width; lane += kVectorLanes) {
      hn::Store(hn::Div(hn::Load(d, outputs + c * width + lane), hn::Load(d, sum + lane)), d,
                quotient + lane);
    }
    for (int lane = 0; lane < width; ++lane) turned[lane * turned_stride + c] = quotient[lane];
  }
}

inline void FinalizePanel(const Shape& shape, const OutputTile& out, const StateView& tile, int first) {
  constexpr std::int64_t kChunk = 64;
  HWY_ALIGN float turned[kPanelLanes * kChunk];
  const int lanes = std::min(out.lanes - first, kPanelLanes);
  const int width = PanelVectors(out.lanes, first) * kVectorLanes;
  for (std::int64_t c = 0; c < shape.head_dim_v; c += kChunk) {
    const std::int64_t count = std::min(kChunk, shape.head_dim_v - c);
    DivideAndTurn(tile.outputs + first * shape.head_dim_v + c * width, tile.sum + first, width, count, kChunk,
                  turned);
    for (int lane = 0; lane < lanes; ++lane) {
      float* const row = turned + lane * kChunk;
      if (tile.maximum[first + lane] == kNoMaximum) std::fill_n(row, count, 0.0f);  // saw no key
      const std::int64_t offset =
          lane_offset(shape, out.first + first + lane, out.o_row_stride, out.o_head_stride);
      store_floats(row, count, element_at(out.o, offset + c, shape.dtype_out), shape.dtype_out);
    }
  }
}

inline void Finalize(const Shape& shape, const OutputTile& out, const void* state) {
  const StateView tile = view_state(const_cast<void*>(state));
  for (int first = 0; first < out.lanes; first += kPanelLanes) FinalizePanel(shape, out, tile, first);
  if (out.lse == nullptr) return;
  for (int lane = 0; lane < out.lanes; ++lane) {
    const bool empty = tile.maximum[lane] == kNoMaximum;
    const std::int64_t offset = lane_offset(shape, out.first + lane, out.lse_row_stride, out.lse_head_stride);
    store_bits(out.lse, offset, empty ? kNoMaximum : NaturalLse(tile.maximum[lane], tile.sum[lane]));
  }
}

}  // namespace ringattn::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
