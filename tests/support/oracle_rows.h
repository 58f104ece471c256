// Tensors in double, and dot products of their rows, for the fp64 oracles.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/support/host_tensor.h"

namespace ringattn::support {

inline constexpr std::int64_t kLanes = 8;  // independent sums, so that the compiler can use vectors
using Lanes = std::array<double, kLanes>;

// Rows of [batch, head, seq] in double, each padded with zeros to a multiple of kLanes.
class Rows {
 public:
  explicit Rows(const HostTensor& tensor)
      : seq_(tensor.shape(1)),
        heads_(tensor.shape(2)),
        width_((tensor.shape(3) + kLanes - 1) / kLanes * kLanes),
        values_(static_cast<std::size_t>(tensor.shape(0) * seq_ * heads_ * width_), 0.0) {
    for (std::int64_t b = 0; b < tensor.shape(0); ++b) {
      for (std::int64_t h = 0; h < heads_; ++h) {
        for (std::int64_t s = 0; s < seq_; ++s) {
          double* row = values_.data() + ((b * heads_ + h) * seq_ + s) * width_;
          for (std::int64_t d = 0; d < tensor.shape(3); ++d) row[d] = tensor.get(b, s, h, d);
        }
      }
    }
  }
  const double* row(std::int64_t b, std::int64_t h, std::int64_t s) const {
    return values_.data() + ((b * heads_ + h) * seq_ + s) * width_;
  }
  std::int64_t width() const { return width_; }

 private:
  std::int64_t seq_, heads_, width_;
  std::vector<double> values_;
};

inline double total(const Lanes& lanes) {
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// Dot product and the sum of the products' absolute values.
inline void dot(const double* a, const double* b, std::int64_t width, double& sum, double& absolute) {
  Lanes sums{}, absolutes{};
  for (std::int64_t d = 0; d < width; d += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const double product = a[d + lane] * b[d + lane];
      sums[static_cast<std::size_t>(lane)] += product;
      absolutes[static_cast<std::size_t>(lane)] += std::fabs(product);
    }
  }
  sum = total(sums);
  absolute = total(absolutes);
}

}  // namespace ringattn::support
