// The vector types of one instruction set, and how many of them make a panel. Included once for each target.
#if defined(RINGATTN_KERNELS_CPU_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGATTN_KERNELS_CPU_VECTORS_INL_H_
#undef RINGATTN_KERNELS_CPU_VECTORS_INL_H_
#else
#define RINGATTN_KERNELS_CPU_VECTORS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "base/float_convert.h"
#include "hwy/highway.h"
#include "kernels/cpu/layout.h"

HWY_BEFORE_NAMESPACE();
namespace ringattn::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Vector = hn::Vec<Floats>;

inline constexpr int kVectorLanes = static_cast<int>(HWY_LANES(float));

// A panel is as many query lanes as the micro kernels hold at once: rows x vectors accumulators, the vectors of one
// operand and a broadcast must fit the registers. 16 registers: 6 x 2 + 2 + 1; 32 registers: 6 x 4 + 4 + 1.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
inline constexpr int kPanelVectors = 2;
#else
inline constexpr int kPanelVectors = 4;
#endif
inline constexpr int kPanelLanes = kPanelVectors * kVectorLanes;
static_assert(kPanelLanes <= kMaxLanes && kMaxLanes % kPanelLanes == 0);

// Vectors of the panel that begins at `first_lane` of a tile: the last one may be narrower.
inline int PanelVectors(int lanes, int first_lane) {
  const int vectors = (lanes - first_lane + kVectorLanes - 1) / kVectorLanes;
  return vectors < kPanelVectors ? vectors : kPanelVectors;
}

// Rows of a matrix in memory; any alignment.
struct Rows {
  const char* data;
  std::int64_t stride;  // bytes
  const char* at(std::int64_t row) const { return data + row * stride; }
};

// Rows that will be read soon: their lines are asked for (into the second level cache) a few at a time, between the tiles of
// other work, so that memory and arithmetic overlap. An address is never read, so it need not be valid.
struct Ahead {
  Rows rows{};
  std::int64_t count = 0;
  std::int64_t bytes = 0;  // of a row

  HWY_INLINE void Ask(std::int64_t begin, std::int64_t end) const {
    for (std::int64_t row = begin; row < (end < count ? end : count); ++row) {
      for (std::int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(rows.at(row) + byte, 0, 2);
    }
  }
};

HWY_INLINE Vector Broadcast(const char* address) { return hn::Set(Floats(), load_bits<float>(address, 0)); }

HWY_INLINE Vector LoadAny(const char* address) {
  return hn::LoadU(Floats(), reinterpret_cast<const float*>(address));
}

}  // namespace ringattn::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
