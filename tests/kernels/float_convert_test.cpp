// Conversions between float and the 16-bit formats: every half, and every float that could round wrongly.
#include "base/float_convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/denormals.h"

namespace ringattn::test {
namespace {

// The value of a half by its definition, in double.
double f16_value(std::uint32_t half) {
  const double sign = (half & 0x8000u) != 0 ? -1 : 1;
  const int exponent = static_cast<int>((half >> 10) & 31u);
  const double fraction = half & 0x3ffu;
  if (exponent == 31) return fraction == 0 ? sign * HUGE_VAL : std::nan("");
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

double bf16_value(std::uint32_t half) {
  const double sign = (half & 0x8000u) != 0 ? -1 : 1;
  const int exponent = static_cast<int>((half >> 7) & 255u);
  const double fraction = half & 0x7fu;
  if (exponent == 255) return fraction == 0 ? sign * HUGE_VAL : std::nan("");
  return sign * (exponent == 0 ? std::ldexp(fraction, -133) : std::ldexp(128 + fraction, exponent - 134));
}

struct Format {
  const char* name;
  double (*value)(std::uint32_t);
  float (*widen)(std::uint16_t);
  std::uint16_t (*round)(float);
  std::uint32_t infinity;
};

const Format kFormats[] = {{"f16", f16_value, f16_to_float, float_to_f16, 0x7c00u},
                           {"bf16", bf16_value, bf16_to_float, float_to_bf16, 0x7f80u}};

TEST(FloatConvert, EveryHalfWidensExactlyAndComesBack) {
  for (const Format& format : kFormats) {
    for (std::uint32_t half = 0; half < 0x10000u; ++half) {
      const auto bits = static_cast<std::uint16_t>(half);
      const double expected = format.value(half);
      const float wide = format.widen(bits);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(wide)) << format.name << " " << half;
        ASSERT_TRUE(std::isnan(format.value(format.round(wide)))) << format.name << " " << half;
        continue;
      }
      ASSERT_EQ(static_cast<double>(wide), expected) << format.name << " " << half;
      ASSERT_EQ(std::signbit(wide), (half & 0x8000u) != 0);
      ASSERT_EQ(format.round(wide), bits) << format.name << " " << half;
    }
  }
}

// Between each two neighbouring halves: the middle goes to the even one, its neighbours to their own side.
TEST(FloatConvert, EveryTieGoesToEven) {
  for (const Format& format : kFormats) {
    for (std::uint32_t half = 0; half < format.infinity; ++half) {
      // Beyond the largest number the next "half" would be twice its last step away.
      const double low = format.value(half);
      const double high =
          half + 1 < format.infinity ? format.value(half + 1) : 2 * low - format.value(half - 1);
      const auto middle = static_cast<float>((low + high) / 2);
      ASSERT_EQ(static_cast<double>(middle), (low + high) / 2);
      const std::uint32_t even = half + (half & 1u);
      for (const float sign : {1.0f, -1.0f}) {
        const std::uint32_t mark = sign < 0 ? 0x8000u : 0u;
        ASSERT_EQ(format.round(sign * middle), even | mark) << format.name << " " << half;
        ASSERT_EQ(format.round(sign * std::nextafterf(middle, 0.0f)), half | mark)
            << format.name << " " << half;
        ASSERT_EQ(format.round(sign * std::nextafterf(middle, HUGE_VALF)), (half + 1) | mark)
            << format.name << " " << half;
      }
    }
  }
}

TEST(FloatConvert, InfinityOverflowAndNaN) {
  for (const Format& format : kFormats) {
    EXPECT_EQ(format.round(HUGE_VALF), format.infinity);
    EXPECT_EQ(format.round(-HUGE_VALF), format.infinity | 0x8000u);
    EXPECT_EQ(format.round(std::numeric_limits<float>::max()), format.infinity);
    for (const std::uint32_t bits : {0x7f800001u, 0x7fc00000u, 0xffffffffu, 0x7f80ffffu, 0x7fffffffu}) {
      EXPECT_TRUE(std::isnan(format.value(format.round(std::bit_cast<float>(bits)))))
          << format.name << " " << bits;
    }
  }
  EXPECT_EQ(float_to_f16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(float_to_f16(-0.0f), 0x8000);
}

// f16 denormals are ordinary floats and must survive a thread that flushes denormals.
TEST(FloatConvert, F16DenormalsSurviveFlushing) {
  const DenormalsAreZero guard;
  for (std::uint16_t half = 0; half < 0x0400; ++half) {
    ASSERT_EQ(std::ldexp(static_cast<double>(f16_to_float(half)), 24), half);
    ASSERT_EQ(float_to_f16(f16_to_float(half)), half);
  }
}

TEST(FloatConvert, ArraysAtAnyAlignment) {
  const std::vector<float> numbers = {1.5f, -2.25f, 0.0f, 1024.0f, -0.125f};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    std::vector<char> bytes(1 + 5 * 4, 'x');
    store_floats(numbers.data(), 5, bytes.data() + 1, dtype);
    EXPECT_EQ(bytes[0], 'x');
    std::vector<float> back(5);
    load_floats(bytes.data() + 1, dtype, 5, back.data());
    EXPECT_EQ(back, numbers);
    load_floats(element_at(static_cast<const void*>(bytes.data() + 1), 3, dtype), dtype, 1, back.data());
    EXPECT_EQ(back[0], 1024.0f);
  }
}

}  // namespace
}  // namespace ringattn::test
