// Bringing queries, and 16-bit keys and values, into the form that the micro kernels read.
#if defined(RINGATTN_KERNELS_CPU_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGATTN_KERNELS_CPU_PACK_INL_H_
#undef RINGATTN_KERNELS_CPU_PACK_INL_H_
#else
#define RINGATTN_KERNELS_CPU_PACK_INL_H_
#endif

#include <cmath>

#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringattn::kernels::cpu::HWY_NAMESPACE {

HWY_INLINE Vector WidenBf16(const char* address) {
  const hn::Rebind<std::uint16_t, Floats> halves;
  const hn::RebindToUnsigned<Floats> words;
  const auto half = hn::LoadU(halves, reinterpret_cast<const std::uint16_t*>(address));
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(words, half)));
}

#if HWY_TARGET == HWY_SSE4
// Without F16C. Highway's own emulation does not know infinity and NaN. Denormals come from an integer, because the
// float whose bits they are may be read as zero.
HWY_INLINE Vector WidenF16(const char* address) {
  const Floats d;
  const hn::Rebind<std::uint16_t, Floats> halves;
  const hn::RebindToUnsigned<Floats> words;
  const hn::RebindToSigned<Floats> integers;
  const auto bits = hn::PromoteTo(words, hn::LoadU(halves, reinterpret_cast<const std::uint16_t*>(address)));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(words, 0x8000u)));
  const auto magnitude = hn::And(bits, hn::Set(words, 0x7fffu));
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  const Vector denormal = hn::Mul(hn::ConvertTo(d, hn::BitCast(integers, magnitude)), hn::Set(d, 0x1p-24f));
  const auto normal = hn::Add(shifted, hn::Set(words, 112u << 23));
  const auto special = hn::Or(shifted, hn::Set(words, 0x7f800000u));
  const auto small = hn::BitCast(integers, magnitude);
  const auto finite = hn::IfThenElse(hn::RebindMask(words, hn::Lt(small, hn::Set(integers, 0x0400))),
                                     hn::BitCast(words, denormal), normal);
  const auto all =
      hn::IfThenElse(hn::RebindMask(words, hn::Lt(small, hn::Set(integers, 0x7c00))), finite, special);
  return hn::BitCast(d, hn::Or(sign, all));
}
#else
HWY_INLINE Vector WidenF16(const char* address) {
  const hn::Rebind<hwy::float16_t, Floats> halves;
  return hn::PromoteTo(Floats(), hn::LoadU(halves, reinterpret_cast<const hwy::float16_t*>(address)));
}
#endif

// `dim` elements as floats; nothing beyond them is read.
HWY_INLINE void WidenRow(const char* source, DType dtype, std::int64_t dim, float* HWY_RESTRICT target) {
  std::int64_t i = 0;
  if (dtype == DType::bf16) {
    for (; i + kVectorLanes <= dim; i += kVectorLanes)
      hn::StoreU(WidenBf16(source + 2 * i), Floats(), target + i);
  } else if (dtype == DType::f16) {
    for (; i + kVectorLanes <= dim; i += kVectorLanes)
      hn::StoreU(WidenF16(source + 2 * i), Floats(), target + i);
  }
  load_floats(element_at(source, i, dtype), dtype, dim - i, target + i);
}

// Q^T in panels, times scale and log2(e). Lanes that only fill the last vector are zero.
inline void PackQueries(const Shape& shape, const QueryTile& tile, const ScratchView& scratch) {
  const auto factor = static_cast<float>(shape.scale * 1.4426950408889634);
  const std::int64_t dim = shape.head_dim_qk;
  for (int first = 0; first < tile.lanes; first += kPanelLanes) {
    const int width = PanelVectors(tile.lanes, first) * kVectorLanes;
    float* const panel = scratch.queries + first * dim;
    for (int lane = 0; lane < width; ++lane) {
      const bool real = first + lane < tile.lanes;
      if (real) {
        const std::int64_t offset =
            lane_offset(shape, tile.first + first + lane, tile.row_stride, tile.head_stride);
        WidenRow(element_at(static_cast<const char*>(tile.q), offset, shape.dtype), shape.dtype, dim,
                 scratch.row);
      }
      for (std::int64_t d = 0; d < dim; ++d) panel[d * width + lane] = real ? scratch.row[d] * factor : 0.0f;
    }
  }
}

// Marks the rows that hold a NaN or an infinity; says whether there is one. 0 * x is 0 for every finite x, else NaN.
inline bool MarkNonFinite(const Rows& rows, std::int64_t count, std::int64_t dim, bool* marks) {
  const Floats d;
  bool any = false;
  for (std::int64_t j = 0; j < count; ++j) {
    const char* const row = rows.at(j);
    Vector zeros = hn::Zero(d);
    std::int64_t i = 0;
    for (; i + kVectorLanes <= dim; i += kVectorLanes)
      zeros = hn::MulAdd(LoadAny(row + 4 * i), hn::Zero(d), zeros);
    bool finite = hn::AllTrue(d, hn::Eq(zeros, hn::Zero(d)));
    for (; i < dim; ++i) finite = finite && std::isfinite(load_bits<float>(row, i));
    marks[j] = !finite;
    any = any || !finite;
  }
  return any;
}

}  // namespace ringattn::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
