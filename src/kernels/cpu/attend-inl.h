// attend: folds a range of keys into a tile's state, block by block and panel by panel.
#if defined(RINGATTN_KERNELS_CPU_ATTEND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGATTN_KERNELS_CPU_ATTEND_INL_H_
#undef RINGATTN_KERNELS_CPU_ATTEND_INL_H_
#else
#define RINGATTN_KERNELS_CPU_ATTEND_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cpu/finalize-inl.h"
#include "kernels/cpu/mask-inl.h"
#include "kernels/cpu/micro-inl.h"
#include "kernels/cpu/pack-inl.h"
#include "kernels/cpu/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringattn::kernels::cpu::HWY_NAMESPACE {

// Keys [first, first + count) of a K/V block. Rows are made fp32 and close together when they are first needed.
struct Block {
  std::int64_t first, count;
  Rows keys, values;
  bool copy_keys, copy_values;  // still to be done, before the first use
  Ahead values_ahead;           // these values, while the first panel computes its scores
  Ahead keys_ahead;             // the next block's keys, while the first panel computes its outputs
  bool searched;                // marks are valid
  bool non_finite;              // some value row is marked
  bool marks[kKeyBlock];
};

// One panel's part of state and scratch.
struct Panel {
  const float* queries;
  float* outputs;
  float* maximum;
  float* sum;
};

// Whether reading the rows of a block once for every panel costs more than copying them into rows that lie close together
// but in different cache sets. `columns`: the rows are read a few channels at a time (V), so all of them are in use at once.
inline bool WorthCopying(std::int64_t stride, std::int64_t dim, int panels, bool columns) {
  if (panels < 3) return false;
  const bool scattered = stride >= 2 * dim && stride >= 128;
  return scattered || (columns && stride % 128 == 0);
}

inline void CopyRows(DType dtype, std::int64_t count, std::int64_t dim, float* target, Rows& rows) {
  const std::int64_t stride = widened_stride(dim);
  for (std::int64_t j = 0; j < count; ++j) WidenRow(rows.at(j), dtype, dim, target + j * stride);
  rows = {reinterpret_cast<const char*>(target), stride * static_cast<std::int64_t>(sizeof(float))};
}

inline Rows RowsOf(const void* data, std::int64_t stride, std::int64_t first, std::int64_t size) {
  return {static_cast<const char*>(data) + first * stride * size, stride * size};
}

inline void OpenBlock(const Shape& shape, const KeyRange& keys, int panels, Block& block) {
  const std::int64_t size = size_of(shape.dtype);
  const std::int64_t next = block.first + block.count;
  const bool widen = shape.dtype != DType::f32;
  block.keys = RowsOf(keys.k, keys.k_stride, block.first, size);
  block.values = RowsOf(keys.v, keys.v_stride, block.first, size);
  block.copy_keys = widen || WorthCopying(keys.k_stride, shape.head_dim_qk, panels, false);
  block.copy_values = widen || WorthCopying(keys.v_stride, shape.head_dim_v, panels, true);
  block.values_ahead = {block.values, block.count, shape.head_dim_v * size};
  block.keys_ahead = {RowsOf(keys.k, keys.k_stride, next, size), std::min(kKeyBlock, keys.end - next),
                      shape.head_dim_qk * size};
  block.searched = false;
}

// Whether the panel has a key whose value row is not finite. Only asked where some lane does not see some key.
inline bool HasNonFinite(const Shape& shape, const PanelView& view, Block& block) {
  if (!block.searched) {
    block.non_finite = MarkNonFinite(block.values, block.count, shape.head_dim_v, block.marks);
    block.searched = true;
  }
  return block.non_finite &&
         std::find(block.marks + view.begin, block.marks + view.end, true) != block.marks + view.end;
}

// A hidden key has probability 0, but 0 * NaN is NaN. So rows that see no such key take their outputs from values in which
// the non-finite rows are zero; the other rows from the values as they are. Hidden keys of non-finite K need nothing: their
// scores were replaced.
template <int kVectors>
HWY_NOINLINE void GuardedOutputs(const Shape& shape, const PanelView& view, const Block& block,
                                 const Panel& panel, const ScratchView& scratch, const float* correction) {
  const Floats d;
  constexpr int kLanes = kVectors * kVectorLanes;
  const std::int64_t dim = shape.head_dim_v;
  const std::int64_t count = view.end - view.begin;
  const std::int64_t stride = widened_stride(dim);
  HWY_ALIGN float sees[kPanelLanes] = {};
  for (std::int64_t j = 0; j < count; ++j) {
    float* const copy = scratch.zeroed_values + j * stride;
    if (!block.marks[view.begin + j]) {
      std::memcpy(copy, block.values.at(view.begin + j), static_cast<std::size_t>(dim) * sizeof(float));
      continue;
    }
    std::fill_n(copy, dim, 0.0f);
    for (int lane = 0; lane < kLanes; ++lane) {
      if (static_cast<float>(j) >= view.low[lane] && static_cast<float>(j) < view.high[lane])
        sees[lane] = 1.0f;
    }
  }
  std::copy_n(panel.outputs, dim * kLanes, scratch.outputs);
  const Rows zeroed{reinterpret_cast<const char*>(scratch.zeroed_values), stride * 4};
  const Rows original{block.values.at(view.begin), block.values.stride};
  PanelOutputs<kVectors>(original, count, dim, scratch.scores, correction, scratch.outputs, {});
  PanelOutputs<kVectors>(zeroed, count, dim, scratch.scores, correction, panel.outputs, {});
  for (int v = 0; v < kVectors; ++v) {
    const auto take = hn::Ne(hn::Load(d, sees + v * kVectorLanes), hn::Zero(d));
    for (std::int64_t c = 0; c < dim; ++c) {
      float* const place = panel.outputs + c * kLanes + v * kVectorLanes;
      const Vector other = hn::Load(d, scratch.outputs + c * kLanes + v * kVectorLanes);
      hn::Store(hn::IfThenElse(take, other, hn::Load(d, place)), d, place);
    }
  }
}

template <int kVectors>
HWY_NOINLINE void AttendPanel(const Shape& shape, const PanelView& view, Block& block, const Panel& panel,
                              const ScratchView& scratch) {
  HWY_ALIGN float correction[kPanelLanes];
  const std::int64_t count = view.end - view.begin;
  if (std::exchange(block.copy_keys, false)) {
    CopyRows(shape.dtype, block.count, shape.head_dim_qk, scratch.keys, block.keys);
  }
  const Rows keys{block.keys.at(view.begin), block.keys.stride};
  PanelScores<kVectors>(keys, count, shape.head_dim_qk, panel.queries, scratch.scores,
                        std::exchange(block.values_ahead, {}));
  if (!view.full) ReplaceUnseen<kVectors>(view, kNoMaximum, scratch.scores);
  PanelSoftmax<kVectors>(scratch.scores, count, view.seen, panel.maximum, panel.sum, correction);
  if (std::exchange(block.copy_values, false)) {
    CopyRows(shape.dtype, block.count, shape.head_dim_v, scratch.values, block.values);
  }
  if (!view.full && HasNonFinite(shape, view, block)) {
    GuardedOutputs<kVectors>(shape, view, block, panel, scratch, correction);
  } else {
    const Rows values{block.values.at(view.begin), block.values.stride};
    PanelOutputs<kVectors>(values, count, shape.head_dim_v, scratch.scores, correction, panel.outputs,
                           std::exchange(block.keys_ahead, {}));
  }
}

inline void AttendPanelOfWidth(int vectors, const Shape& shape, const PanelView& view, Block& block,
                               const Panel& panel, const ScratchView& scratch) {
  switch (vectors) {
    case 1:
      return AttendPanel<1>(shape, view, block, panel, scratch);
    case 2:
      return AttendPanel<2>(shape, view, block, panel, scratch);
#if HWY_TARGET != HWY_AVX2 && HWY_TARGET != HWY_SSE4
    case 3:
      return AttendPanel<3>(shape, view, block, panel, scratch);
    case 4:
      return AttendPanel<4>(shape, view, block, panel, scratch);
#endif
    default:
      return;
  }
}

inline void Attend(const Shape& shape, const QueryTile& queries, const KeyRange& keys, void* state,
                   void* scratch_memory) {
  const ScratchView scratch = view_scratch(shape, scratch_memory);
  const StateView tile = view_state(state);
  if (!queries.packed) PackQueries(shape, queries, scratch);
  const int panels = (queries.lanes + kPanelLanes - 1) / kPanelLanes;
  Block block;
  PanelView view;
  for (std::int64_t at = keys.begin; at < keys.end; at = block.first + block.count) {
    block.first = at;
    block.count = std::min((at / kKeyBlock + 1) * kKeyBlock, keys.end) - at;
    bool open = false;
    for (int lane = 0; lane < queries.lanes; lane += kPanelLanes) {
      if (keys.full) {
        LookFull(block.count, view);
      } else {
        Look(at, block.count, keys.lo + lane, keys.hi + lane, std::min(queries.lanes - lane, kPanelLanes),
             view);
      }
      if (view.begin >= view.end) continue;
      if (!open) OpenBlock(shape, keys, panels, block);
      open = true;
      const Panel panel{scratch.queries + lane * shape.head_dim_qk, tile.outputs + lane * shape.head_dim_v,
                        tile.maximum + lane, tile.sum + lane};
      AttendPanelOfWidth(PanelVectors(queries.lanes, lane), shape, view, block, panel, scratch);
    }
  }
}

}  // namespace ringattn::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
