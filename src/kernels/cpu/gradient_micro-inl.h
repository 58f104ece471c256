// The matrix product of the key gradients, in registers: rows are keys, vectors lie along channels.
#if defined(RINGATTN_KERNELS_CPU_GRADIENT_MICRO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGATTN_KERNELS_CPU_GRADIENT_MICRO_INL_H_
#undef RINGATTN_KERNELS_CPU_GRADIENT_MICRO_INL_H_
#else
#define RINGATTN_KERNELS_CPU_GRADIENT_MICRO_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "kernels/cpu/micro-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringattn::kernels::cpu::HWY_NAMESPACE {

// The panels of a tile that see some key of a block, in the order of their lanes.
struct ActivePanels {
  struct Panel {
    int first;  // lane
    int lanes;
    int width;                // of a row of weights
    std::int64_t begin, end;  // the keys that it sees; the weights of the others are zero
  };
  Panel panels[kMaxBackwardLanes / kPanelLanes];
  int count = 0;
};

// dX[r][c] += sum over lanes of W^T[r][lane] X[lane][c], for kRows keys and kVectors of channels: one sum per
// element in the order of the lanes. `weights` are panels [key][lane], each of kKeyBlock keys; `key` is the
// first row's place in them.
template <int kRows, int kVectors>
HWY_INLINE void GradientProduct(const ActivePanels& active, const float* HWY_RESTRICT weights,
                                std::int64_t key, const float* HWY_RESTRICT rows, char* sums_memory,
                                std::int64_t stride) {
  const Floats d;
  Vector sums[kRows][kVectors];
  const auto place = [&](int r, int v) {
    return reinterpret_cast<float*>(sums_memory + r * stride) + v * kVectorLanes;
  };
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::LoadU(d, place(r, v));
  }
  for (int p = 0; p < active.count; ++p) {
    const ActivePanels::Panel& panel = active.panels[p];
    if (panel.begin >= key + kRows || panel.end <= key) continue;
    const std::int64_t step = panel.width * static_cast<std::int64_t>(sizeof(float));
    const char* lower = reinterpret_cast<const char*>(weights + panel.first * kKeyBlock + key * panel.width);
    const char* upper = kRows > 3 ? lower + 3 * step : lower;
    const float* HWY_RESTRICT row = rows + panel.first * kVectors * kVectorLanes;
    HWY_UNROLL(4)
    for (int lane = 0; lane < panel.lanes; ++lane) {
      Vector channels[kVectors];
      for (int v = 0; v < kVectors; ++v) channels[v] = hn::Load(d, row + v * kVectorLanes);
      for (int r = 0; r < kRows; ++r) {
        const Vector weight = Broadcast(r < 3 ? lower + r * step : upper + (r - 3) * step);
        for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(weight, channels[v], sums[r][v]);
      }
      lower += sizeof(float);
      upper += sizeof(float);
      row += kVectors * kVectorLanes;
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], d, place(r, v));
  }
}

template <int kVectors>
HWY_INLINE void GradientProductOfRows(int count, const ActivePanels& active, const float* weights,
                                      std::int64_t key, const float* rows, char* sums, std::int64_t stride) {
  switch (count) {
    case 6:
      return GradientProduct<6, kVectors>(active, weights, key, rows, sums, stride);
    case 5:
      return GradientProduct<5, kVectors>(active, weights, key, rows, sums, stride);
    case 4:
      return GradientProduct<4, kVectors>(active, weights, key, rows, sums, stride);
    case 3:
      return GradientProduct<3, kVectors>(active, weights, key, rows, sums, stride);
    case 2:
      return GradientProduct<2, kVectors>(active, weights, key, rows, sums, stride);
    default:
      return GradientProduct<1, kVectors>(active, weights, key, rows, sums, stride);
  }
}

// The sums of the next tile: it would begin by waiting for them.
HWY_INLINE void AskForRows(const char* sums, std::int64_t count, std::int64_t bytes, std::int64_t stride) {
  for (std::int64_t r = 0; r < count; ++r) {
    __builtin_prefetch(sums + r * stride, 1);
    __builtin_prefetch(sums + r * stride + bytes - 1, 1);
  }
}

// Keys [begin, end) of a block and `channels` channels. Rows of channels that do not fill the vectors are
// copied, so that nothing beyond them is touched.
template <int kVectors>
HWY_NOINLINE void PanelGradients(const ActivePanels& active, const float* weights, std::int64_t begin,
                                 std::int64_t end, std::int64_t channels, const float* rows, char* sums,
                                 std::int64_t stride) {
  constexpr std::int64_t kBytes = kVectors * kVectorLanes * static_cast<std::int64_t>(sizeof(float));
  HWY_ALIGN char copy[kTileRows * kBytes] = {};
  const std::int64_t bytes = channels * static_cast<std::int64_t>(sizeof(float));
  for (std::int64_t j = begin; j < end;) {
    const int count = NextTileRows(end - j);
    char* const target = sums + j * stride;
    AskForRows(target + count * stride, std::min<std::int64_t>(kTileRows, end - j - count), bytes, stride);
    if (bytes == kBytes) {
      GradientProductOfRows<kVectors>(count, active, weights, j, rows, target, stride);
    } else {
      for (int r = 0; r < count; ++r)
        std::memcpy(copy + r * kBytes, target + r * stride, static_cast<std::size_t>(bytes));
      GradientProductOfRows<kVectors>(count, active, weights, j, rows, copy, kBytes);
      for (int r = 0; r < count; ++r)
        std::memcpy(target + r * stride, copy + r * kBytes, static_cast<std::size_t>(bytes));
    }
    j += count;
  }
}

inline void PanelGradientsOfWidth(int vectors, const ActivePanels& active, const float* weights,
                                  std::int64_t begin, std::int64_t end, std::int64_t channels,
                                  const float* rows, char* sums, std::int64_t stride) {
  switch (vectors) {
    case 1:
      return PanelGradients<1>(active, weights, begin, end, channels, rows, sums, stride);
    case 2:
      return PanelGradients<2>(active, weights, begin, end, channels, rows, sums, stride);
#if HWY_TARGET != HWY_AVX2 && HWY_TARGET != HWY_SSE4
    case 3:
      return PanelGradients<3>(active, weights, begin, end, channels, rows, sums, stride);
    case 4:
      return PanelGradients<4>(active, weights, begin, end, channels, rows, sums, stride);
#endif
    default:
      return;
  }
}

// Adds the products of keys [begin, end) of a block with all active panels. `sums` is the row of the block's
// first key; `rows` are panels [lane][channel] of kMaxBackwardLanes lanes.
inline void KeyProducts(const ActivePanels& active, const float* weights, std::int64_t begin,
                        std::int64_t end, std::int64_t dim, const float* rows, float* sums) {
  for (std::int64_t c = 0; c < dim; c += kPanelLanes) {
    PanelGradientsOfWidth(PanelVectors(static_cast<int>(dim), static_cast<int>(c)), active, weights, begin,
                          end, std::min<std::int64_t>(kPanelLanes, dim - c), rows + c * kMaxBackwardLanes,
                          reinterpret_cast<char*>(sums + c), dim * static_cast<std::int64_t>(sizeof(float)));
  }
}

}  // namespace ringattn::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
