// Arithmetic on shapes that every kernel needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/kernel.h"

namespace ringattn::kernels {

// Elements from row 0, first head of the group, to the row and head of lane index f.
inline std::int64_t lane_offset(const Shape& shape, std::int64_t f, std::int64_t row_stride,
                                std::int64_t head_stride) {
  return f / shape.group * row_stride + f % shape.group * head_stride;
}

inline std::size_t round_up(std::int64_t bytes, std::int64_t multiple) {
  return static_cast<std::size_t>((bytes + multiple - 1) / multiple * multiple);
}

// Kernel::refuse of a kernel without limits of its own.
inline std::string refuse_nothing_legal(const Problem& problem) {
  const auto legal = [](std::int64_t dim) { return dim >= 1 && dim <= kMaxHeadDim; };
  if (legal(problem.head_dim_qk) && legal(problem.head_dim_v)) return "";
  return "head dims " + std::to_string(problem.head_dim_qk) + " and " + std::to_string(problem.head_dim_v) +
         ": each must be 1.." + std::to_string(kMaxHeadDim);
}

}  // namespace ringattn::kernels
