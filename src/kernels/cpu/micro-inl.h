// The two matrix products in the transposed form, in registers. Vectors lie along query lanes, so K and V are read in
// place, one broadcast number at a time, and nothing is ever summed across a vector.
#if defined(RINGATTN_KERNELS_CPU_MICRO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGATTN_KERNELS_CPU_MICRO_INL_H_
#undef RINGATTN_KERNELS_CPU_MICRO_INL_H_
#else
#define RINGATTN_KERNELS_CPU_MICRO_INL_H_
#endif

#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringattn::kernels::cpu::HWY_NAMESPACE {

inline constexpr int kTileRows = 6;

// Rows of the next register tile: six, and the last ten or fewer in two halves rather than six and a thin rest.
inline int NextTileRows(std::int64_t remaining) {
  if (remaining >= 10 || remaining == kTileRows) return kTileRows;
  return static_cast<int>(remaining > kTileRows ? (remaining + 1) / 2 : remaining);
}

// S^T[r][lane] = sum over d of K[r][d] Q^T[d][lane], for kRows keys. One sum per element in the order of d, whatever the
// tile's shape: results do not depend on how keys and lanes were cut into tiles.
template <int kRows, int kVectors>
HWY_INLINE void ScoreProduct(const Rows& keys, std::int64_t dim, const float* HWY_RESTRICT queries,
                             float* HWY_RESTRICT scores) {
  const Floats d;
  Vector sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  // Two pointers reach six rows by the CPU's address modes (0, 1 and 2 strides from each).
  const char* lower = keys.data;
  const char* upper = kRows > 3 ? keys.at(3) : keys.data;
  HWY_UNROLL(4)
  for (std::int64_t channel = 0; channel < dim; ++channel) {
    Vector query[kVectors];
    for (int v = 0; v < kVectors; ++v) query[v] = hn::Load(d, queries + v * kVectorLanes);
    for (int r = 0; r < kRows; ++r) {
      const Vector key = Broadcast(r < 3 ? lower + r * keys.stride : upper + (r - 3) * keys.stride);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(key, query[v], sums[r][v]);
    }
    lower += sizeof(float);
    upper += sizeof(float);
    queries += kVectors * kVectorLanes;
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::Store(sums[r][v], d, scores + (r * kVectors + v) * kVectorLanes);
  }
}

// O^T[c][lane] = correction[lane] O^T[c][lane] + sum over j of V[j][c] P^T[j][lane], for kRows channels, in the order of j.
template <int kRows, int kVectors>
HWY_INLINE void OutputProduct(const Rows& values, std::int64_t count, const float* HWY_RESTRICT probabilities,
                              const float* HWY_RESTRICT correction, float* HWY_RESTRICT outputs) {
  const Floats d;
  Vector sums[kRows][kVectors];
  for (int v = 0; v < kVectors; ++v) {
    const Vector factor = hn::Load(d, correction + v * kVectorLanes);
    for (int r = 0; r < kRows; ++r) {
      sums[r][v] = hn::Mul(factor, hn::Load(d, outputs + (r * kVectors + v) * kVectorLanes));
    }
  }
  const char* value = values.data;
  HWY_UNROLL(4)
  for (std::int64_t j = 0; j < count; ++j) {
    Vector probability[kVectors];
    for (int v = 0; v < kVectors; ++v) probability[v] = hn::Load(d, probabilities + v * kVectorLanes);
    for (int r = 0; r < kRows; ++r) {
      const Vector channel = Broadcast(value + r * static_cast<std::int64_t>(sizeof(float)));
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(channel, probability[v], sums[r][v]);
    }
    value += values.stride;
    probabilities += kVectors * kVectorLanes;
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::Store(sums[r][v], d, outputs + (r * kVectors + v) * kVectorLanes);
  }
}

// Scores of a panel with `count` keys.
template <int kVectors>
HWY_NOINLINE void PanelScores(const Rows& keys, std::int64_t count, std::int64_t dim, const float* queries,
                              float* scores, const Ahead& ahead) {
  for (std::int64_t j = 0; j < count;) {
    const int rows = NextTileRows(count - j);
    ahead.Ask(j, j + rows);
    const Rows tile{keys.at(j), keys.stride};
    float* const target = scores + j * kVectors * kVectorLanes;
    switch (rows) {
      case 6:
        ScoreProduct<6, kVectors>(tile, dim, queries, target);
        break;
      case 5:
        ScoreProduct<5, kVectors>(tile, dim, queries, target);
        break;
      case 4:
        ScoreProduct<4, kVectors>(tile, dim, queries, target);
        break;
      case 3:
        ScoreProduct<3, kVectors>(tile, dim, queries, target);
        break;
      case 2:
        ScoreProduct<2, kVectors>(tile, dim, queries, target);
        break;
      default:
        ScoreProduct<1, kVectors>(tile, dim, queries, target);
        break;
    }
    j += rows;
  }
}

// Folds `count` values, weighed by their probabilities, into the outputs of a panel.
template <int kVectors>
HWY_NOINLINE void PanelOutputs(const Rows& values, std::int64_t count, std::int64_t dim,
                               const float* probabilities, const float* correction, float* outputs,
                               const Ahead& ahead) {
  for (std::int64_t c = 0; c < dim;) {
    const int rows = NextTileRows(dim - c);
    ahead.Ask(ahead.count * c / dim, ahead.count * (c + rows) / dim);
    const Rows tile{values.data + c * static_cast<std::int64_t>(sizeof(float)), values.stride};
    float* const target = outputs + c * kVectors * kVectorLanes;
    switch (rows) {
      case 6:
        OutputProduct<6, kVectors>(tile, count, probabilities, correction, target);
        break;
      case 5:
        OutputProduct<5, kVectors>(tile, count, probabilities, correction, target);
        break;
      case 4:
        OutputProduct<4, kVectors>(tile, count, probabilities, correction, target);
        break;
      case 3:
        OutputProduct<3, kVectors>(tile, count, probabilities, correction, target);
        break;
      case 2:
        OutputProduct<2, kVectors>(tile, count, probabilities, correction, target);
        break;
      default:
        OutputProduct<1, kVectors>(tile, count, probabilities, correction, target);
        break;
    }
    c += rows;
  }
}

}  // namespace ringattn::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
