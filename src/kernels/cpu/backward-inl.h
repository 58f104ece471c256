// Backward attend: adds a range of keys to the gradients, block by block and panel by panel.
#if defined(RINGATTN_KERNELS_CPU_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGATTN_KERNELS_CPU_BACKWARD_INL_H_
#undef RINGATTN_KERNELS_CPU_BACKWARD_INL_H_
#else
#define RINGATTN_KERNELS_CPU_BACKWARD_INL_H_
#endif

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/cpu/attend-inl.h"
#include "kernels/cpu/backward_pack-inl.h"
#include "kernels/cpu/gradient_micro-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringattn::kernels::cpu::HWY_NAMESPACE {

// What the lanes of a tile see of a range.
struct Sight {
  const std::int64_t *lo, *hi;
  bool full;

  bool Sees(int lane, std::int64_t key) const { return full || (lo[lane] <= key && key < hi[lane]); }
};

// Keys [first, first + count) of a K/V block, as fp32 rows that lie well in the cache.
struct GradientBlock {
  std::int64_t first, count;
  Rows keys, values;
  Ahead values_ahead, keys_ahead;  // of the next block, while the first panel computes
  bool searched;                   // marks are valid
  bool non_finite;                 // some key row is marked
  bool marks[kKeyBlock];
};

// Keys are also read a few channels at a time, for dQ.
inline void OpenGradientBlock(const Shape& shape, const KeyRange& keys, int panels,
                              const BackwardScratch& scratch, GradientBlock& block) {
  const std::int64_t size = size_of(shape.dtype);
  const std::int64_t next = block.first + block.count;
  const std::int64_t next_count = std::min(kKeyBlock, keys.end - next);
  const bool widen = shape.dtype != DType::f32;
  block.keys = RowsOf(keys.k, keys.k_stride, block.first, size);
  block.values = RowsOf(keys.v, keys.v_stride, block.first, size);
  if (widen || WorthCopying(keys.k_stride, shape.head_dim_qk, panels, true))
    CopyRows(shape.dtype, block.count, shape.head_dim_qk, scratch.keys, block.keys);
  if (widen || WorthCopying(keys.v_stride, shape.head_dim_v, panels, false))
    CopyRows(shape.dtype, block.count, shape.head_dim_v, scratch.values, block.values);
  block.keys_ahead = {RowsOf(keys.k, keys.k_stride, next, size), next_count, shape.head_dim_qk * size};
  block.values_ahead = {RowsOf(keys.v, keys.v_stride, next, size), next_count, shape.head_dim_v * size};
  block.searched = false;
}

inline bool HasNonFiniteKey(const Shape& shape, const PanelView& view, GradientBlock& block) {
  if (!block.searched) {
    block.non_finite = MarkNonFinite(block.keys, block.count, shape.head_dim_qk, block.marks);
    block.searched = true;
  }
  return block.non_finite &&
         std::find(block.marks + view.begin, block.marks + view.end, true) != block.marks + view.end;
}

// One panel's part of state and scratch.
struct GradientPanel {
  const float *queries, *d_outputs;
  const float *lse, *delta;
  float *probabilities, *d_scores;
  float* d_queries;
};

// 2^128, and so every larger power, becomes infinity; NaN stays.
HWY_INLINE Vector CutToRange(Vector x) {
  const Vector most = hn::Set(Floats(), 128.0f);
#if HWY_ARCH_X86
  return hn::Min(most, x);  // the second operand where one is NaN
#else
  return hn::IfThenElse(hn::Gt(x, most), most, x);
#endif
}

// kRows keys: scores become probabilities, and the gradients of probabilities those of scores.
template <int kRows, int kVectors>
HWY_INLINE void ScoreGradientRows(const float* HWY_RESTRICT lse, const float* HWY_RESTRICT delta,
                                  float* HWY_RESTRICT scores, float* HWY_RESTRICT gradients) {
  const Floats d;
  Vector x[kRows * kVectors];
  for (int i = 0; i < kRows * kVectors; ++i) {
    const Vector own_lse = hn::Load(d, lse + i % kVectors * kVectorLanes);
    x[i] = CutToRange(hn::Sub(hn::Load(d, scores + i * kVectorLanes), own_lse));
  }
  Exp2(x);
  for (int i = 0; i < kRows * kVectors; ++i) {
    float* const place = gradients + i * kVectorLanes;
    const Vector own_delta = hn::Load(d, delta + i % kVectors * kVectorLanes);
    hn::Store(x[i], d, scores + i * kVectorLanes);
    hn::Store(hn::Mul(x[i], hn::Sub(hn::Load(d, place), own_delta)), d, place);
  }
}

template <int kVectors>
HWY_NOINLINE void PanelScoreGradients(const float* lse, const float* delta, std::int64_t count, float* scores,
                                      float* gradients) {
  constexpr int kWidth = kVectors * kVectorLanes;
  constexpr int kRows = kVectors < kPanelVectors ? kPanelVectors / kVectors : 1;  // more would spill
  std::int64_t j = 0;
  for (; j + kRows <= count; j += kRows)
    ScoreGradientRows<kRows, kVectors>(lse, delta, scores + j * kWidth, gradients + j * kWidth);
  for (; j < count; ++j)
    ScoreGradientRows<1, kVectors>(lse, delta, scores + j * kWidth, gradients + j * kWidth);
}

// dQ^T += K^T dS^T.
template <int kVectors>
HWY_INLINE void AddQueryGradients(const Rows& keys, std::int64_t count, std::int64_t dim,
                                  const float* d_scores, float* d_queries) {
  HWY_ALIGN float ones[kPanelLanes];
  std::fill_n(ones, kPanelLanes, 1.0f);
  PanelOutputs<kVectors>(keys, count, dim, d_scores, ones, d_queries, {});
}

// dQ^T += K^T dS^T of one key for the lanes that see it; for the others as if the key were zero.
template <int kVectors>
HWY_INLINE void AddGuardedKey(const PanelView& view, const Rows& keys, std::int64_t j, std::int64_t dim,
                              const float* d_scores, float* d_queries) {
  const Floats d;
  for (int v = 0; v < kVectors; ++v) {
    const int lane = v * kVectorLanes;
    const Vector number = hn::Set(d, static_cast<float>(j));
    const auto visible =
        hn::And(hn::Ge(number, hn::Load(d, view.low + lane)), hn::Lt(number, hn::Load(d, view.high + lane)));
    const Vector weight = hn::Load(d, d_scores + j * kVectors * kVectorLanes + lane);
    for (std::int64_t c = 0; c < dim; ++c) {
      float* const place = d_queries + c * kVectors * kVectorLanes + lane;
      const Vector key = hn::IfThenElseZero(visible, Broadcast(keys.at(j) + 4 * c));
      hn::Store(hn::MulAdd(key, weight, hn::Load(d, place)), d, place);
    }
  }
}

// A hidden pair has dS = 0, but 0 * NaN is NaN. So keys that are not finite are added one by one, in their
// places between the others: every lane still has its one sum in the order of keys.
template <int kVectors>
HWY_NOINLINE void GuardedQueryGradients(const Shape& shape, const PanelView& view, const bool* marks,
                                        const Rows& keys, const float* d_scores, float* d_queries) {
  const std::int64_t count = view.end - view.begin;
  for (std::int64_t j = 0; j < count;) {
    const std::int64_t next = std::find(marks + j, marks + count, true) - marks;
    AddQueryGradients<kVectors>({keys.at(j), keys.stride}, next - j, shape.head_dim_qk,
                                d_scores + j * kVectors * kVectorLanes, d_queries);
    if (next < count) AddGuardedKey<kVectors>(view, keys, next, shape.head_dim_qk, d_scores, d_queries);
    j = next + 1;
  }
}

template <int kVectors>
HWY_NOINLINE void AttendGradientPanel(const Shape& shape, const PanelView& view, GradientBlock& block,
                                      const GradientPanel& panel) {
  constexpr int kWidth = kVectors * kVectorLanes;
  const std::int64_t count = view.end - view.begin;
  float* const probabilities = panel.probabilities + view.begin * kWidth;
  float* const d_scores = panel.d_scores + view.begin * kWidth;
  const Rows keys{block.keys.at(view.begin), block.keys.stride};
  PanelScores<kVectors>(keys, count, shape.head_dim_qk, panel.queries, probabilities,
                        std::exchange(block.values_ahead, {}));
  PanelScores<kVectors>({block.values.at(view.begin), block.values.stride}, count, shape.head_dim_v,
                        panel.d_outputs, d_scores, std::exchange(block.keys_ahead, {}));
  PanelScoreGradients<kVectors>(panel.lse, panel.delta, count, probabilities, d_scores);
  if (!view.full) {
    ReplaceUnseen<kVectors>(view, 0.0f, probabilities);
    ReplaceUnseen<kVectors>(view, 0.0f, d_scores);
    for (float* const weights : {panel.probabilities, panel.d_scores}) {
      std::fill_n(weights, view.begin * kWidth, 0.0f);
      std::fill_n(weights + view.end * kWidth, (block.count - view.end) * kWidth, 0.0f);
    }
  }
  if (!view.full && HasNonFiniteKey(shape, view, block)) {
    GuardedQueryGradients<kVectors>(shape, view, block.marks + view.begin, keys, d_scores, panel.d_queries);
  } else {
    AddQueryGradients<kVectors>(keys, count, shape.head_dim_qk, d_scores, panel.d_queries);
  }
}

inline void AttendGradientPanelOfWidth(int vectors, const Shape& shape, const PanelView& view,
                                       GradientBlock& block, const GradientPanel& panel) {
  switch (vectors) {
    case 1:
      return AttendGradientPanel<1>(shape, view, block, panel);
    case 2:
      return AttendGradientPanel<2>(shape, view, block, panel);
#if HWY_TARGET != HWY_AVX2 && HWY_TARGET != HWY_SSE4
    case 3:
      return AttendGradientPanel<3>(shape, view, block, panel);
    case 4:
      return AttendGradientPanel<4>(shape, view, block, panel);
#endif
    default:
      return;
  }
}

inline void AddScaledRow(float weight, const float* HWY_RESTRICT row, std::int64_t dim,
                         float* HWY_RESTRICT sums) {
  for (std::int64_t c = 0; c < dim; ++c) sums[c] += weight * row[c];
}

// The lanes that PackTile left out of the key products, because a hidden pair's 0 * NaN is NaN: only their
// visible pairs.
inline void AddNonFiniteLanes(const Shape& shape, const GradientTile& tile, const Sight& sight,
                              const GradientBlock& block, const KeyGradients& gradients,
                              const BackwardScratch& scratch) {
  const auto add = [&](int lane, const GradientTile::Rows& rows, DType dtype, std::int64_t dim,
                       const float* weights, float* sums) {
    const int first = lane / kPanelLanes * kPanelLanes;
    const int width = PanelVectors(tile.lanes, first) * kVectorLanes;
    weights += first * kKeyBlock + (lane - first);
    WidenLane(shape, tile, rows, lane, dtype, dim, scratch.row);
    for (std::int64_t j = 0; j < block.count; ++j) {
      if (sight.Sees(lane, block.first + j))
        AddScaledRow(weights[j * width], scratch.row, dim, sums + (block.first + j) * dim);
    }
  };
  for (int lane = 0; lane < tile.lanes; ++lane) {
    if (scratch.non_finite[lane] == 0.0f) continue;
    add(lane, tile.d_o, shape.dtype_out, shape.head_dim_v, scratch.probabilities, gradients.d_v);
    add(lane, tile.q, shape.dtype, shape.head_dim_qk, scratch.d_scores, gradients.d_k);
  }
}

// Everything of one block: dQ panel by panel, then dK and dV of all panels at once.
inline void AttendGradientBlock(const Shape& shape, const GradientTile& tile, const KeyRange& keys,
                                const Sight& sight, const KeyGradients& gradients, const BackwardState& state,
                                const BackwardScratch& scratch, GradientBlock& block) {
  const int panels = (tile.lanes + kPanelLanes - 1) / kPanelLanes;
  ActivePanels active;
  PanelView view;
  std::int64_t begin = block.count, end = 0;
  for (int lane = 0; lane < tile.lanes; lane += kPanelLanes) {
    const int lanes = std::min(tile.lanes - lane, kPanelLanes);
    if (sight.full) {
      LookFull(block.count, view);
    } else {
      Look(block.first, block.count, sight.lo + lane, sight.hi + lane, lanes, view);
    }
    if (view.begin >= view.end) continue;
    if (active.count == 0) OpenGradientBlock(shape, keys, panels, scratch, block);
    const int vectors = PanelVectors(tile.lanes, lane);
    active.panels[active.count++] = {lane, lanes, vectors * kVectorLanes, view.begin, view.end};
    begin = std::min(begin, view.begin);
    end = std::max(end, view.end);
    AttendGradientPanelOfWidth(
        vectors, shape, view, block,
        {scratch.queries + lane * shape.head_dim_qk, scratch.d_outputs + lane * shape.head_dim_v,
         state.lse + lane, state.delta + lane, scratch.probabilities + lane * kKeyBlock,
         scratch.d_scores + lane * kKeyBlock, state.d_queries + lane * shape.head_dim_qk});
  }
  if (active.count == 0) return;
  KeyProducts(active, scratch.probabilities, begin, end, shape.head_dim_v, scratch.d_output_rows,
              gradients.d_v + block.first * shape.head_dim_v);
  KeyProducts(active, scratch.d_scores, begin, end, shape.head_dim_qk, scratch.query_rows,
              gradients.d_k + block.first * shape.head_dim_qk);
  AddNonFiniteLanes(shape, tile, sight, block, gradients, scratch);
}

inline void BackwardAttend(const Shape& shape, const GradientTile& tile, const KeyRange& keys,
                           const KeyGradients& gradients, void* state_memory, void* scratch_memory) {
  const BackwardScratch scratch = view_backward_scratch(shape, scratch_memory);
  const BackwardState state = view_backward_state(state_memory);
  if (!tile.packed) PackTile(shape, tile, scratch);
  const Sight sight{keys.lo, keys.hi, keys.full};
  GradientBlock block;
  for (std::int64_t at = keys.begin; at < keys.end; at += block.count) {
    block.first = at;
    block.count = std::min((at / kKeyBlock + 1) * kKeyBlock, keys.end) - at;
    AttendGradientBlock(shape, tile, keys, sight, gradients, state, scratch, block);
  }
}

}  // namespace ringattn::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
