// Which keys of a block the lanes of a panel see, and hiding the others.
#if defined(RINGATTN_KERNELS_CPU_MASK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGATTN_KERNELS_CPU_MASK_INL_H_
#undef RINGATTN_KERNELS_CPU_MASK_INL_H_
#else
#define RINGATTN_KERNELS_CPU_MASK_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringattn::kernels::cpu::HWY_NAMESPACE {

// What one panel sees of keys [first, first + count) of a block.
struct PanelView {
  std::int64_t begin,
      end;    // the keys that any lane sees, relative to the block's first key; empty = skip the panel
  bool full;  // every lane sees all of them
  // Per lane, if not full: keys [low, high) relative to `begin`, as floats (exact, and the same vector type as scores),
  // and PanelSoftmax's `seen`. Lanes that only fill the last vector see nothing.
  HWY_ALIGN float low[kPanelLanes];
  HWY_ALIGN float high[kPanelLanes];
  HWY_ALIGN float seen[kPanelLanes];
};

inline void LookFull(std::int64_t count, PanelView& view) {
  view.begin = 0;
  view.end = count;
  view.full = true;
  std::fill_n(view.seen, kPanelLanes, std::numeric_limits<float>::lowest());
}

// Lanes of the panel are [0, lanes) of lo and hi. An empty interval may have any bounds, hence no arithmetic on them
// before they are cut to the block.
inline void Look(std::int64_t first, std::int64_t count, const std::int64_t* lo, const std::int64_t* hi,
                 int lanes, PanelView& view) {
  const std::int64_t last = first + count;
  std::int64_t begin = last, end = first;
  bool full = true;
  for (int lane = 0; lane < lanes; ++lane) {
    const std::int64_t low = std::max(lo[lane], first), high = std::min(hi[lane], last);
    full = full && low == first && high == last;
    if (low >= high) continue;
    begin = std::min(begin, low);
    end = std::max(end, high);
  }
  if (full) return LookFull(count, view);
  view.begin = begin - first;
  view.end = end - first;
  view.full = false;
  for (int lane = 0; lane < kPanelLanes; ++lane) {
    const std::int64_t low = lane < lanes ? std::max(lo[lane], first) : last;
    const std::int64_t high = lane < lanes ? std::min(hi[lane], last) : first;
    const bool sees = low < high;
    view.low[lane] = sees ? static_cast<float>(low - begin) : 0.0f;
    view.high[lane] = sees ? static_cast<float>(high - begin) : 0.0f;
    view.seen[lane] = sees ? std::numeric_limits<float>::lowest() : -std::numeric_limits<float>::infinity();
  }
}

// Numbers [key][lane] of pairs that the mask hides become `hidden`, whatever they were.
template <int kVectors>
HWY_INLINE void ReplaceUnseen(const PanelView& view, float hidden, float* HWY_RESTRICT numbers) {
  const Floats d;
  for (std::int64_t j = 0; j < view.end - view.begin; ++j) {
    const Vector key = hn::Set(d, static_cast<float>(j));
    for (int v = 0; v < kVectors; ++v) {
      const int lane = v * kVectorLanes;
      float* const place = numbers + j * kVectors * kVectorLanes + lane;
      const auto visible =
          hn::And(hn::Ge(key, hn::Load(d, view.low + lane)), hn::Lt(key, hn::Load(d, view.high + lane)));
      hn::Store(hn::IfThenElse(visible, hn::Load(d, place), hn::Set(d, hidden)), d, place);
    }
  }
}

}  // namespace ringattn::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
