// D21's limit for one tile.
#pragma once

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/kernels/kernel_case.h"

namespace ringattn::kernels::test {

// Distance from |value| to the next larger number of the dtype.
inline double unit_in_last_place(DType dtype, double value) {
  const int bits = dtype == DType::f32 ? 23 : dtype == DType::f16 ? 10 : 7;
  const int lowest = dtype == DType::f16 ? -14 : -126;
  const int exponent = value == 0 ? lowest : std::max(std::ilogb(value), lowest);
  return std::ldexp(1.0, exponent - bits);
}

// "" or the first element out of its limit: 2 x plain's largest error + slack + one ulp; the same for the rms.
inline std::string beyond_limit(const char* what, const std::vector<float>& result,
                                const std::vector<double>& truth, const std::vector<float>& plain,
                                const std::vector<double>& slack, DType dtype) {
  double plain_max = 0, plain_square = 0, square = 0, slack_square = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    if (std::isinf(truth[i])) continue;
    const double error = std::abs(plain[i] - truth[i]);
    plain_max = std::max(plain_max, error);
    plain_square += error * error;
  }
  char text[200];
  for (std::size_t i = 0; i < truth.size(); ++i) {
    if (std::isinf(truth[i]) && result[i] == static_cast<float>(truth[i])) continue;
    const double error = std::abs(result[i] - truth[i]);
    const double own = slack[i] + unit_in_last_place(dtype, truth[i]);
    square += error * error;
    slack_square += own * own;
    if (error <= 2 * plain_max + own) continue;  // false for NaN
    std::snprintf(text, sizeof text, "%s[%zu] is %.9g, not %.9g: off by %.3g, limit %.3g", what, i,
                  static_cast<double>(result[i]), truth[i], error, 2 * plain_max + own);
    return text;
  }
  if (std::sqrt(square) <= 2 * std::sqrt(plain_square) + std::sqrt(slack_square)) return "";
  std::snprintf(text, sizeof text, "%s: root of squared errors %.3g, plain's %.3g, slack %.3g", what,
                std::sqrt(square), std::sqrt(plain_square), std::sqrt(slack_square));
  return text;
}

inline std::string beyond_limit(const Case& test, const Result& result) {
  const Truth truth = truth_of(test);
  const Result plain = plain_of(test);
  const std::string o = beyond_limit("o", result.o, truth.o, plain.o, truth.o_slack, test.shape.dtype_out);
  return o.empty() ? beyond_limit("lse", result.lse, truth.lse, plain.lse, truth.lse_slack, DType::f32) : o;
}

}  // namespace ringattn::kernels::test
