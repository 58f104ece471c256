// Exact scalar conversions between float and the 16-bit formats, written for the tests alone: bit by bit, round to
// nearest even, so that nothing is shared with the library's vector code.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "ringattn.h"

namespace ringattn::support {

inline std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline float bf16_to_float(std::uint16_t half) { return float_of(static_cast<std::uint32_t>(half) << 16); }

inline std::uint16_t float_to_bf16(float value) {
  const std::uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return static_cast<std::uint16_t>((bits >> 16) | 0x40u);  // stays a NaN
  const std::uint32_t round = 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<std::uint16_t>((bits + round) >> 16);
}

inline float f16_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fu;
  const std::uint32_t fraction = half & 0x3ffu;
  if (exponent == 0x1f) return float_of(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0) return float_of(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // subnormal or zero
  return float_of(sign | bits_of(magnitude));
}

inline std::uint16_t float_to_f16(float value) {
  const std::uint32_t bits = bits_of(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {  // NaN: keep the upper payload, stay a NaN
    return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u)
    return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 and above: infinity
  if (magnitude < 0x38800000u) {                        // below 2^-14: subnormal
    // Adding 0.5 puts the last bit of the sum at 2^-24, so the hardware rounds to nearest even for us.
    const float shifted = float_of(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (bits_of(shifted) - bits_of(0.5f)));
  }
  const std::uint32_t rebased = magnitude - (112u << 23);
  const std::uint32_t rounded = rebased + 0xfffu + ((rebased >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | (rounded >> 13));
}

// `value` rounded to the dtype and back.
inline float round_to(ringattn_dtype dtype, float value) {
  if (dtype == RINGATTN_DTYPE_BF16) return bf16_to_float(float_to_bf16(value));
  if (dtype == RINGATTN_DTYPE_F16) return f16_to_float(float_to_f16(value));
  return value;
}

// Distance from |value| to the next larger number of the dtype: one unit in the last place.
inline double ulp(ringattn_dtype dtype, double value) {
  const int digits = dtype == RINGATTN_DTYPE_BF16 ? 8 : dtype == RINGATTN_DTYPE_F16 ? 11 : 24;
  const int least = dtype == RINGATTN_DTYPE_BF16 ? -133 : dtype == RINGATTN_DTYPE_F16 ? -24 : -149;
  if (value == 0 || !std::isfinite(value)) return std::ldexp(1.0, least);
  return std::ldexp(1.0, std::max(std::ilogb(value) - (digits - 1), least));
}

}  // namespace ringattn::support
