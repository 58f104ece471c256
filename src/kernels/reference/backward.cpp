#include "kernels/reference/backward.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/load.h"
#include "kernels/shape.h"

namespace ringattn::kernels {
namespace {

constexpr int kLanes = 16;
constexpr std::int64_t kKeysPerTask = 512;

template <typename Real>
struct Row {
  Real* lse;
  Real* delta;
  Real* d_q;
};

template <typename Real>
Row<Real> row_of(const Shape& shape, void* state, int lane) {
  auto* reals = static_cast<Real*>(state);
  return {reals + lane, reals + kLanes + lane, reals + 2 * kLanes + lane * shape.head_dim_qk};
}

template <typename Real>
std::size_t state_bytes(const Shape& shape) {
  return round_up(static_cast<std::int64_t>(sizeof(Real)) * kLanes * (2 + shape.head_dim_qk), 64);
}

// Scratch: queries and output gradients of the tile; a key, a value, and what the tile adds to their
// gradients.
template <typename Real>
struct Scratch {
  Real *q, *d_o, *key, *value, *d_key, *d_value;
};

template <typename Real>
Scratch<Real> view_scratch(const Shape& shape, void* scratch) {
  Scratch<Real> view{};
  view.q = static_cast<Real*>(scratch);
  view.d_o = view.q + kLanes * shape.head_dim_qk;
  view.key = view.d_o + kLanes * shape.head_dim_v;
  view.value = view.key + shape.head_dim_qk;
  view.d_key = view.value + shape.head_dim_v;
  view.d_value = view.d_key + shape.head_dim_qk;
  return view;
}

template <typename Real>
std::size_t scratch_bytes(const Shape& shape) {
  const std::int64_t reals = (kLanes + 2) * (shape.head_dim_qk + shape.head_dim_v);
  return round_up(static_cast<std::int64_t>(sizeof(Real)) * reals, 64);
}

std::int64_t offset_of(const Shape& shape, const GradientTile& tile, const GradientTile::Rows& rows,
                       int lane) {
  return lane_offset(shape, tile.first + lane, rows.row_stride, rows.head_stride);
}

template <typename Real>
void load_lane(const Shape& shape, const GradientTile& tile, const GradientTile::Rows& rows, int lane,
               DType dtype, std::int64_t dim, Real* target) {
  load_reals(element_at(rows.data, offset_of(shape, tile, rows, lane), dtype), dtype, dim, target);
}

template <typename Real>
void begin(const Shape& shape, const GradientTile& tile, void* state) {
  for (int lane = 0; lane < tile.lanes; ++lane) {
    const Row<Real> row = row_of<Real>(shape, state, lane);
    *row.lse = load_bits<float>(tile.lse.data, offset_of(shape, tile, tile.lse, lane));
    // Of a row that sees keys all the same: its sum was 0 / 0, and so are its probabilities.
    if (*row.lse == -std::numeric_limits<Real>::infinity()) *row.lse = std::numeric_limits<Real>::quiet_NaN();
    const std::int64_t o = offset_of(shape, tile, tile.o, lane);
    const std::int64_t d_o = offset_of(shape, tile, tile.d_o, lane);
    Real delta = 0;
    for (std::int64_t d = 0; d < shape.head_dim_v; ++d) {
      delta += load_real<Real>(tile.o.data, shape.dtype_out, o + d) *
               load_real<Real>(tile.d_o.data, shape.dtype_out, d_o + d);
    }
    if (tile.d_lse.data != nullptr)
      delta -= load_bits<float>(tile.d_lse.data, offset_of(shape, tile, tile.d_lse, lane));
    *row.delta = delta;
    std::fill_n(row.d_q, shape.head_dim_qk, Real{0});
  }
}

template <typename Real>
void attend_pair(const Shape& shape, const Row<Real>& row, const Scratch<Real>& scratch, int lane) {
  const Real* const q = scratch.q + lane * shape.head_dim_qk;
  const Real* const d_o = scratch.d_o + lane * shape.head_dim_v;
  const auto scale = static_cast<Real>(shape.scale);
  const Real probability = std::exp(scale * dot(q, scratch.key, shape.head_dim_qk) - *row.lse);
  const Real d_probability = dot(d_o, scratch.value, shape.head_dim_v);
  const Real d_score = scale * (probability * (d_probability - *row.delta));
  for (std::int64_t d = 0; d < shape.head_dim_qk; ++d) {
    row.d_q[d] += d_score * scratch.key[d];
    scratch.d_key[d] += d_score * q[d];
  }
  for (std::int64_t d = 0; d < shape.head_dim_v; ++d) scratch.d_value[d] += probability * d_o[d];
}

template <typename Real>
void add_to(float* sums, const Real* terms, std::int64_t dim) {
  for (std::int64_t d = 0; d < dim; ++d) sums[d] = static_cast<float>(sums[d] + terms[d]);
}

template <typename Real>
void attend(const Shape& shape, const GradientTile& tile, const KeyRange& keys, const KeyGradients& gradients,
            void* state, void* scratch_memory) {
  const Scratch<Real> scratch = view_scratch<Real>(shape, scratch_memory);
  const std::int64_t dim_qk = shape.head_dim_qk, dim_v = shape.head_dim_v;
  for (int lane = 0; lane < tile.lanes && !tile.packed; ++lane) {
    load_lane(shape, tile, tile.q, lane, shape.dtype, dim_qk, scratch.q + lane * dim_qk);
    load_lane(shape, tile, tile.d_o, lane, shape.dtype_out, dim_v, scratch.d_o + lane * dim_v);
  }
  for (std::int64_t j = keys.begin; j < keys.end; ++j) {
    load_reals(element_at(keys.k, j * keys.k_stride, shape.dtype), shape.dtype, dim_qk, scratch.key);
    load_reals(element_at(keys.v, j * keys.v_stride, shape.dtype), shape.dtype, dim_v, scratch.value);
    std::fill_n(scratch.d_key, dim_qk, Real{0});
    std::fill_n(scratch.d_value, dim_v, Real{0});
    for (int lane = 0; lane < tile.lanes; ++lane) {
      if (!keys.full && (j < keys.lo[lane] || j >= keys.hi[lane])) continue;
      const Row<Real> row = row_of<Real>(shape, state, lane);
      attend_pair(shape, row, scratch, lane);
    }
    add_to(gradients.d_k + j * dim_qk, scratch.d_key, dim_qk);
    add_to(gradients.d_v + j * dim_v, scratch.d_value, dim_v);
  }
}

template <typename Real>
void finalize(const Shape& shape, const QueryGradients& out, const void* state) {
  for (int lane = 0; lane < out.lanes; ++lane) {
    const std::int64_t first = lane_offset(shape, out.first + lane, out.row_stride, out.head_stride);
    char* const target = element_at(out.d_q, first, shape.dtype_grad);
    for (std::int64_t d = 0; d < shape.head_dim_qk; ++d) {
      float value = 0;
      if (lane < out.real_lanes)
        value = static_cast<float>(row_of<Real>(shape, const_cast<void*>(state), lane).d_q[d]);
      store_floats(&value, 1, element_at(target, d, shape.dtype_grad), shape.dtype_grad);
    }
  }
}

template <typename Real>
constexpr Backward kBackward = {kLanes,       kKeysPerTask,  &state_bytes<Real>, &scratch_bytes<Real>,
                                &begin<Real>, &attend<Real>, &finalize<Real>};

}  // namespace

template <>
Backward reference_backward<float>() {
  return kBackward<float>;
}
template <>
Backward reference_backward<double>() {
  return kBackward<double>;
}

}  // namespace ringattn::kernels
