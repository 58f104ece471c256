// Elements of the caller's tensors as Reals.
#pragma once

#include <cstdint>

#include "base/float_convert.h"

namespace ringattn::kernels {

template <typename Real>
Real load_real(const void* data, DType dtype, std::int64_t index) {
  if (dtype == DType::f32) return load_bits<float>(data, index);
  const auto half = load_bits<std::uint16_t>(data, index);
  return dtype == DType::f16 ? f16_to_float(half) : bf16_to_float(half);
}

template <typename Real>
void load_reals(const void* source, DType dtype, std::int64_t count, Real* target) {
  for (std::int64_t i = 0; i < count; ++i) target[i] = load_real<Real>(source, dtype, i);
}

template <typename Real>
Real dot(const Real* a, const Real* b, std::int64_t dim) {
  Real sum = 0;
  for (std::int64_t d = 0; d < dim; ++d) sum += a[d] * b[d];
  return sum;
}

}  // namespace ringattn::kernels
