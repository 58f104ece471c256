// Scalar conversions between float and the 16-bit formats: round to nearest even, NaN stays NaN, any
// alignment.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/problem.h"

namespace ringattn {

inline float bf16_to_float(std::uint16_t half) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

inline std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // Rounding could carry a NaN's payload away, so a NaN is cut off and made quiet.
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x0040u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Both f16 directions avoid float denormals, so that they are exact under flush-to-zero as well.
inline float f16_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) {  // infinity, or a NaN, which becomes quiet
    const std::uint32_t quiet = magnitude > 0x7c00u ? 0x00400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | ((magnitude & 0x03ffu) << 13));
  }
  if (magnitude >= 0x0400u) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  const float denormal = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(denormal));
}

inline std::uint16_t float_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x03ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65520, half way between the largest f16 and the next power of two
    half = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // 2^-14, the smallest normal f16
    half = (magnitude - (112u << 23) + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
  } else {  // next to 0.5 the last bit of a float is 2^-24, the f16 denormals' unit: the addition rounds
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5f);
  }
  return static_cast<std::uint16_t>(sign | half);
}

// Bytes may have any alignment, hence memcpy.
template <typename T>
T load_bits(const void* data, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * static_cast<std::int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

template <typename T>
void store_bits(void* data, std::int64_t index, T value) {
  std::memcpy(static_cast<char*>(data) + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

// Elements [0, count) at `source` as floats.
inline void load_floats(const void* source, DType dtype, std::int64_t count, float* target) {
  switch (dtype) {
    case DType::f32:
      std::memcpy(target, source, static_cast<std::size_t>(count) * sizeof(float));
      break;
    case DType::f16:
      for (std::int64_t i = 0; i < count; ++i) target[i] = f16_to_float(load_bits<std::uint16_t>(source, i));
      break;
    case DType::bf16:
      for (std::int64_t i = 0; i < count; ++i) target[i] = bf16_to_float(load_bits<std::uint16_t>(source, i));
      break;
  }
}

inline void store_floats(const float* source, std::int64_t count, void* target, DType dtype) {
  switch (dtype) {
    case DType::f32:
      std::memcpy(target, source, static_cast<std::size_t>(count) * sizeof(float));
      break;
    case DType::f16:
      for (std::int64_t i = 0; i < count; ++i) store_bits(target, i, float_to_f16(source[i]));
      break;
    case DType::bf16:
      for (std::int64_t i = 0; i < count; ++i) store_bits(target, i, float_to_bf16(source[i]));
      break;
  }
}

// Address of element `index`; the address of a tensor's row 0, moved by whole elements.
inline const char* element_at(const void* data, std::int64_t index, DType dtype) {
  return static_cast<const char*>(data) + index * size_of(dtype);
}
inline char* element_at(void* data, std::int64_t index, DType dtype) {
  return static_cast<char*>(data) + index * size_of(dtype);
}

}  // namespace ringattn
