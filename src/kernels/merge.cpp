// The merge of two partial results of one row (ringattn_merge).
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/float_convert.h"
#include "kernels/kernel.h"

namespace ringattn::kernels {
namespace {

constexpr float kEmpty = -std::numeric_limits<float>::infinity();

struct Weights {
  float a, b;
  float lse;
};

// exp of differences to the larger one only: nothing overflows, and an empty side (-inf) never meets another -inf.
Weights weights_of(float lse_a, float lse_b) {
  if (lse_a == kEmpty && lse_b == kEmpty) return {0, 0, kEmpty};
  if (lse_a == kEmpty) return {0, 1, lse_b};
  if (lse_b == kEmpty) return {1, 0, lse_a};
  const double larger = std::max(lse_a, lse_b);
  const double a = std::exp(lse_a - larger);
  const double b = std::exp(lse_b - larger);
  return {static_cast<float>(a / (a + b)), static_cast<float>(b / (a + b)),
          static_cast<float>(larger + std::log(a + b))};
}

}  // namespace

float merge_row(const MergeRow& row, float lse_a, float lse_b) {
  const bool empty_a = row.o_a == nullptr || lse_a == kEmpty;
  const bool empty_b = row.o_b == nullptr || lse_b == kEmpty;
  const Weights weights = weights_of(empty_a ? kEmpty : lse_a, empty_b ? kEmpty : lse_b);
  constexpr std::int64_t kChunk = 64;
  float a[kChunk], b[kChunk];
  for (std::int64_t first = 0; first < row.dim; first += kChunk) {
    const std::int64_t count = std::min(kChunk, row.dim - first);
    // An empty side is not read: whatever it holds, NaN included, counts for nothing.
    if (empty_a)
      std::fill_n(a, count, 0.0f);
    else
      load_floats(element_at(row.o_a, first, row.dtype_a), row.dtype_a, count, a);
    if (empty_b)
      std::fill_n(b, count, 0.0f);
    else
      load_floats(element_at(row.o_b, first, row.dtype_b), row.dtype_b, count, b);
    for (std::int64_t i = 0; i < count; ++i) a[i] = weights.a * a[i] + weights.b * b[i];
    store_floats(a, count, element_at(row.o, first, row.dtype), row.dtype);
  }
  return weights.lse;
}

}  // namespace ringattn::kernels
