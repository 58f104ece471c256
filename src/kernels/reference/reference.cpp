#include "kernels/reference/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/float_convert.h"
#include "kernels/reference/backward.h"
#include "kernels/reference/load.h"
#include "kernels/shape.h"

namespace ringattn::kernels {
namespace {

constexpr int kLanes = 16;
constexpr std::int64_t kKeysPerTask = 2048;

// State of a tile: per lane m, l and O. m is -inf only for a row that saw no key: see update().
template <typename Real>
struct Row {
  Real* maximum;
  Real* sum;
  Real* o;
};

template <typename Real>
Row<Real> row_of(const Shape& shape, void* state, int lane) {
  auto* reals = static_cast<Real*>(state);
  return {reals + lane, reals + kLanes + lane, reals + 2 * kLanes + lane * shape.head_dim_v};
}

template <typename Real>
std::size_t state_bytes(const Shape& shape) {
  return round_up(static_cast<std::int64_t>(sizeof(Real)) * kLanes * (2 + shape.head_dim_v), 64);
}

// Scratch: the tile's queries, one key, one value.
template <typename Real>
std::size_t scratch_bytes(const Shape& shape) {
  const std::int64_t reals = (kLanes + 1) * shape.head_dim_qk + shape.head_dim_v;
  return round_up(static_cast<std::int64_t>(sizeof(Real)) * reals, 64);
}

template <typename Real>
void begin(const Shape& shape, void* state) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const Row<Real> row = row_of<Real>(shape, state, lane);
    *row.maximum = -std::numeric_limits<Real>::infinity();
    *row.sum = 0;
    std::fill_n(row.o, shape.head_dim_v, Real{0});
  }
}

// One step of the online softmax. A maximum that was raised to the lowest finite number makes exp(score - maximum) of a
// score -inf zero, not NaN, so that a later finite score of the same row is still right.
template <typename Real>
void update(const Row<Real>& row, Real score, const Real* value, std::int64_t dim) {
  const Real before = std::max(*row.maximum, std::numeric_limits<Real>::lowest());
  const Real maximum = score > before ? score : before;
  const Real correction = std::exp(before - maximum);
  const Real probability = std::exp(score - maximum);
  *row.maximum = maximum;
  *row.sum = *row.sum * correction + probability;
  for (std::int64_t d = 0; d < dim; ++d) row.o[d] = row.o[d] * correction + probability * value[d];
}

template <typename Real>
void attend(const Shape& shape, const QueryTile& queries, const KeyRange& keys, void* state, void* scratch) {
  auto* const q = static_cast<Real*>(scratch);
  Real* const key = q + kLanes * shape.head_dim_qk;
  Real* const value = key + shape.head_dim_qk;
  for (int lane = 0; lane < queries.lanes && !queries.packed; ++lane) {
    const std::int64_t element =
        lane_offset(shape, queries.first + lane, queries.row_stride, queries.head_stride);
    load_reals(element_at(queries.q, element, shape.dtype), shape.dtype, shape.head_dim_qk,
               q + lane * shape.head_dim_qk);
  }
  const auto scale = static_cast<Real>(shape.scale);
  for (std::int64_t j = keys.begin; j < keys.end; ++j) {
    load_reals(element_at(keys.k, j * keys.k_stride, shape.dtype), shape.dtype, shape.head_dim_qk, key);
    load_reals(element_at(keys.v, j * keys.v_stride, shape.dtype), shape.dtype, shape.head_dim_v, value);
    for (int lane = 0; lane < queries.lanes; ++lane) {
      if (!keys.full && (j < keys.lo[lane] || j >= keys.hi[lane])) continue;
      const Real score = scale * dot(q + lane * shape.head_dim_qk, key, shape.head_dim_qk);
      update(row_of<Real>(shape, state, lane), score, value, shape.head_dim_v);
    }
  }
}

template <typename Real>
void finalize(const Shape& shape, const OutputTile& out, const void* state) {
  const bool to_float = shape.dtype_out == DType::f32;
  for (int lane = 0; lane < out.lanes; ++lane) {
    const Row<Real> row = row_of<Real>(shape, const_cast<void*>(state), lane);
    const bool empty = *row.maximum == -std::numeric_limits<Real>::infinity();
    const std::int64_t first = lane_offset(shape, out.first + lane, out.o_row_stride, out.o_head_stride);
    for (std::int64_t d = 0; d < shape.head_dim_v; ++d) {
      const auto o = empty ? 0.0f : static_cast<float>(row.o[d] / *row.sum);
      if (to_float) {
        store_bits(out.o, first + d, o);
      } else {
        store_bits(out.o, first + d, shape.dtype_out == DType::f16 ? float_to_f16(o) : float_to_bf16(o));
      }
    }
    if (out.lse == nullptr) continue;
    const std::int64_t place = lane_offset(shape, out.first + lane, out.lse_row_stride, out.lse_head_stride);
    const Real lse = *row.maximum + std::log(*row.sum);
    store_bits(out.lse, place, empty ? -std::numeric_limits<float>::infinity() : static_cast<float>(lse));
  }
}

template <typename Real>
Kernel make_kernel(const char* name) {
  return {name,
          kLanes,
          kKeysPerTask,
          &refuse_nothing_legal,
          &state_bytes<Real>,
          &scratch_bytes<Real>,
          &begin<Real>,
          &attend<Real>,
          &finalize<Real>,
          reference_backward<Real>()};
}

}  // namespace

const Kernel& reference_kernel() {
  static const Kernel kernel = make_kernel<float>("cpu.reference");
  return kernel;
}
const Kernel& reference_fp64_kernel() {
  static const Kernel kernel = make_kernel<double>("cpu.reference.fp64");
  return kernel;
}

}  // namespace ringattn::kernels
