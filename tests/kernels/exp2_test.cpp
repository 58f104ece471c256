// The vector kernels' own 2^x, against the exact value over its whole range.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/vector_kernel.h"
#include "tests/support/half.h"

namespace ringattn::kernels::test {
namespace {

struct alignas(64) Chunk {
  float numbers[16];
};

// 2^x of consecutive floats, from `first` downwards, `chunks` times sixteen of them, `step` apart in bits.
template <typename Check>
void sweep(const cpu::VectorKernel& vector, float first, std::int64_t chunks, std::uint32_t step,
           const Check& check) {
  std::uint32_t bits = support::bits_of(first);
  for (std::int64_t i = 0; i < chunks; ++i) {
    Chunk x, y;
    for (float& number : x.numbers) number = support::float_of(bits), bits += step;
    vector.exp2(x.numbers, 16, y.numbers);
    for (int lane = 0; lane < 16; ++lane) check(x.numbers[lane], y.numbers[lane]);
  }
}

TEST(Exp2, RelativeErrorIsBelowTwoUlp) {
  ASSERT_FALSE(cpu::vector_kernels().empty()) << "no vector kernel for this CPU";
  for (const cpu::VectorKernel* vector : cpu::vector_kernels()) {
    double worst = 0;
    // Every 37th float from -2^-30 to -126.
    sweep(*vector, -0x1p-30f, (support::bits_of(-126.0f) - support::bits_of(-0x1p-30f)) / 37 / 16, 37,
          [&](float x, float y) {
            const double exact = std::exp2(static_cast<double>(x));
            worst = std::max(worst, std::abs(y - exact) / exact);
          });
    EXPECT_LT(worst, 1.3e-7) << vector->kernel.name;
    RecordProperty(vector->kernel.name, std::to_string(worst * 1e9) + "e-9");
  }
}

TEST(Exp2, ExactAtPowersOfTwoAndNeverAboveOne) {
  for (const cpu::VectorKernel* vector : cpu::vector_kernels()) {
    for (int n = 0; n >= -126; --n) {
      Chunk x{}, y{};
      x.numbers[3] = static_cast<float>(n);
      vector->exp2(x.numbers, 16, y.numbers);
      EXPECT_EQ(y.numbers[3], std::ldexp(1.0f, n)) << vector->kernel.name;
      EXPECT_EQ(y.numbers[0], 1.0f);
    }
    sweep(*vector, -0x1p-40f, 100000, 100,
          [&](float x, float y) { ASSERT_LE(y, 1.0f) << vector->kernel.name << " " << x; });
  }
}

TEST(Exp2, ZeroFarBelowAndNaNAtNaN) {
  for (const cpu::VectorKernel* vector : cpu::vector_kernels()) {
    Chunk x{}, y{};
    const float infinity = std::numeric_limits<float>::infinity();
    const float low[] = {-126.6f,  -127.0f, -149.0f, -1000.0f, -1e30f, std::numeric_limits<float>::lowest(),
                         -infinity};
    std::copy(std::begin(low), std::end(low), x.numbers);
    x.numbers[15] = std::nanf("");
    vector->exp2(x.numbers, 16, y.numbers);
    for (std::size_t i = 0; i < std::size(low); ++i) {
      EXPECT_EQ(support::bits_of(y.numbers[i]), 0u) << vector->kernel.name << " " << low[i];
    }
    EXPECT_TRUE(std::isnan(y.numbers[15])) << vector->kernel.name;
  }
}

}  // namespace
}  // namespace ringattn::kernels::test
