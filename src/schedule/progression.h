// Arithmetic on progressions first, first + stride, ...: everything a run can be asked without listing its
// positions.
#pragma once
#include <algorithm>
#include <cstdint>

namespace ringattn::schedule {

__extension__ typedef __int128 Wide;  // sums over 2^40 rows of 2^40 keys each

// For denominator > 0, any sign of the numerator.
constexpr std::int64_t floor_div(std::int64_t numerator, std::int64_t denominator) {
  return numerator / denominator - (numerator % denominator < 0 ? 1 : 0);
}
constexpr std::int64_t ceil_div(std::int64_t numerator, std::int64_t denominator) {
  return numerator / denominator + (numerator % denominator > 0 ? 1 : 0);
}

struct Progression {
  std::int64_t first, length, stride;

  std::int64_t last() const { return first + (length - 1) * stride; }
  // How many elements lie below `bound`.
  std::int64_t count_below(std::int64_t bound) const {
    return bound <= first ? 0 : std::min(length, ceil_div(bound - first, stride));
  }
};

// Sum of floor((numerator + i * step) / divisor) for 0 <= i < count; divisor >= 1, the others >= 0. O(log
// divisor).
Wide floor_sum(std::int64_t count, std::int64_t divisor, std::int64_t step, std::int64_t numerator);

// Smallest element of both, or -1. The elements of both must not be negative.
std::int64_t first_common(const Progression& a, const Progression& b);

}  // namespace ringattn::schedule
