// Bringing the queries of a backward tile and their output gradients into the forms that the micro kernels
// read.
#if defined(RINGATTN_KERNELS_CPU_BACKWARD_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGATTN_KERNELS_CPU_BACKWARD_PACK_INL_H_
#undef RINGATTN_KERNELS_CPU_BACKWARD_PACK_INL_H_
#else
#define RINGATTN_KERNELS_CPU_BACKWARD_PACK_INL_H_
#endif

#include <algorithm>

#include "kernels/cpu/backward_layout.h"
#include "kernels/cpu/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringattn::kernels::cpu::HWY_NAMESPACE {

inline void WidenLane(const Shape& shape, const GradientTile& tile, const GradientTile::Rows& rows, int lane,
                      DType dtype, std::int64_t dim, float* row) {
  const std::int64_t offset = lane_offset(shape, tile.first + lane, rows.row_stride, rows.head_stride);
  WidenRow(element_at(static_cast<const char*>(rows.data), offset, dtype), dtype, dim, row);
}

// A row of a matrix into its panels [lane][channel]. Channels that only fill the last vector are zero.
inline void PackRow(const float* row, std::int64_t dim, int lane, float* panels) {
  for (std::int64_t c = 0; c < dim; c += kPanelLanes) {
    const int width = PanelVectors(static_cast<int>(dim), static_cast<int>(c)) * kVectorLanes;
    const std::int64_t count = std::min<std::int64_t>(width, dim - c);
    float* const target = panels + c * kMaxBackwardLanes + lane * width;
    std::copy_n(row + c, count, target);
    std::fill_n(target + count, width - count, 0.0f);
  }
}

// One matrix of the tile: `turned` gets panels [channel][lane] times `factor`, with zeros in the lanes that
// only fill the last vector; `natural` gets panels [lane][channel]. Marks the lanes with a number that is not
// finite.
inline void PackMatrix(const Shape& shape, const GradientTile& tile, const GradientTile::Rows& rows,
                       DType dtype, std::int64_t dim, float factor, float* row, float* turned, float* natural,
                       float* non_finite) {
  for (int first = 0; first < tile.lanes; first += kPanelLanes) {
    const int width = PanelVectors(tile.lanes, first) * kVectorLanes;
    float* const panel = turned + first * dim;
    for (int lane = 0; lane < width; ++lane) {
      if (first + lane >= tile.lanes) {
        for (std::int64_t c = 0; c < dim; ++c) panel[c * width + lane] = 0.0f;
        continue;
      }
      WidenLane(shape, tile, rows, first + lane, dtype, dim, row);
      for (std::int64_t c = 0; c < dim; ++c) panel[c * width + lane] = row[c] * factor;
      PackRow(row, dim, first + lane, natural);
      bool marked;
      if (MarkNonFinite({reinterpret_cast<const char*>(row), 0}, 1, dim, &marked))
        non_finite[first + lane] = 1.0f;
    }
  }
}

inline void PackTile(const Shape& shape, const GradientTile& tile, const BackwardScratch& scratch) {
  const std::int64_t dim_qk = shape.head_dim_qk, dim_v = shape.head_dim_v;
  std::fill_n(scratch.non_finite, kMaxBackwardLanes, 0.0f);
  PackMatrix(shape, tile, tile.q, shape.dtype, dim_qk, static_cast<float>(shape.scale * 1.4426950408889634),
             scratch.row, scratch.queries, scratch.query_rows, scratch.non_finite);
  PackMatrix(shape, tile, tile.d_o, shape.dtype_out, dim_v, static_cast<float>(shape.scale), scratch.row,
             scratch.d_outputs, scratch.d_output_rows, scratch.non_finite);
  for (int lane = 0; lane < tile.lanes; ++lane) {
    if (scratch.non_finite[lane] == 0.0f) continue;
    std::fill_n(scratch.row, std::max(dim_qk, dim_v), 0.0f);
    PackRow(scratch.row, dim_qk, lane, scratch.query_rows);
    PackRow(scratch.row, dim_v, lane, scratch.d_output_rows);
  }
}

}  // namespace ringattn::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
