// ringattn_merge's arithmetic for one row: closed forms, empty sides, dtypes, in place.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/kernel.h"
#include "tests/support/half.h"

namespace ringattn::kernels::test {
namespace {

constexpr float kEmpty = -std::numeric_limits<float>::infinity();

struct Merged {
  std::vector<float> o;
  float lse;
};

Merged merge(const std::vector<float>& a, float lse_a, const std::vector<float>& b, float lse_b) {
  Merged merged{std::vector<float>(a.size(), std::nanf("")), 0};
  merged.lse = merge_row({a.data(), DType::f32, b.data(), DType::f32, merged.o.data(), DType::f32,
                          static_cast<std::int64_t>(a.size())},
                         lse_a, lse_b);
  return merged;
}

// B002: four keys of score 0 and four of score 200 (V = index). The naive log(1 + exp(b - a)) overflows.
TEST(MergeRow, B002LargeDifferencesDoNotOverflow) {
  const float ln4 = std::log(4.0f);
  const Merged right = merge({1.5f}, ln4, {5.5f}, 200 + ln4);
  EXPECT_EQ(right.o[0], 5.5f);
  EXPECT_NEAR(right.lse, 201.386294, 2e-5);
  EXPECT_EQ(merge({1.5f}, 200 + ln4, {5.5f}, ln4).o[0], 1.5f);
  EXPECT_EQ(merge({1.5f}, ln4, {5.5f}, -200 + ln4).o[0], 1.5f);
  EXPECT_EQ(merge({1.5f}, 1e4f, {5.5f}, -1e4f).o[0], 1.5f);
  EXPECT_EQ(merge({1.5f}, -1e4f, {5.5f}, -1e4f).o[0], 3.5f);
  EXPECT_NEAR(merge({1.5f}, 1e4f, {5.5f}, 1e4f).lse, 1e4 + std::log(2.0), 1e-3);
}

// B005: uneven pieces of 12 and 4 keys, natural logarithms.
TEST(MergeRow, B005UnevenPiecesWeighByTheirNaturalLse) {
  const Merged merged = merge({5.5f}, std::log(12.0f), {13.5f}, std::log(4.0f));
  EXPECT_NEAR(merged.o[0], 7.5, 1e-6);
  EXPECT_NEAR(merged.lse, 2.772589, 1e-6);
}

TEST(MergeRow, EmptySidesCountForNothingWhateverTheyHold) {
  const float nan = std::nanf("");
  const Merged left = merge({1, 2, 3}, 0.25f, {nan, nan, nan}, kEmpty);
  EXPECT_EQ(left.o, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(left.lse, 0.25f);
  const Merged right = merge({nan, nan, nan}, kEmpty, {1, 2, 3}, -7);
  EXPECT_EQ(right.o, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(right.lse, -7);
  const Merged neither = merge({nan, nan, nan}, kEmpty, {nan, nan, nan}, kEmpty);
  EXPECT_EQ(neither.o, (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(neither.lse, kEmpty);
}

TEST(MergeRow, NullStandsForAnEmptyRow) {
  const float a = 4;
  float o = 0;
  EXPECT_EQ(merge_row({&a, DType::f32, nullptr, DType::f32, &o, DType::f32, 1}, 3, 9), 3);
  EXPECT_EQ(o, 4);
  EXPECT_EQ(merge_row({nullptr, DType::f32, &a, DType::f32, &o, DType::f32, 1}, 3, 9), 9);
  EXPECT_EQ(o, 4);
  EXPECT_EQ(merge_row({nullptr, DType::f32, nullptr, DType::f32, &o, DType::f32, 1}, 3, 9), kEmpty);
  EXPECT_EQ(o, 0);
}

TEST(MergeRow, NaNIsKept) {
  EXPECT_TRUE(std::isnan(merge({1}, std::nanf(""), {2}, 0).lse));
  EXPECT_TRUE(std::isnan(merge({1}, 0, {2}, std::nanf("")).o[0]));
  EXPECT_TRUE(std::isnan(merge({std::nanf("")}, 0, {2}, 0).o[0]));
}

TEST(MergeRow, NoElementsStillMergesTheLse) {
  float o = 5;
  EXPECT_NEAR(merge_row({&o, DType::f32, &o, DType::f32, &o, DType::f32, 0}, 0, 0), std::log(2.0), 1e-7);
  EXPECT_EQ(o, 5);
}

std::vector<char> encode(const std::vector<float>& numbers, DType dtype, std::size_t misalignment) {
  const auto size = static_cast<std::size_t>(size_of(dtype));
  std::vector<char> bytes(misalignment + numbers.size() * size);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    char* const place = bytes.data() + misalignment + i * size;
    const std::uint16_t half =
        dtype == DType::bf16 ? support::float_to_bf16(numbers[i]) : support::float_to_f16(numbers[i]);
    dtype == DType::f32 ? std::memcpy(place, &numbers[i], 4) : std::memcpy(place, &half, 2);
  }
  return bytes;
}

float decode(const char* place, DType dtype) {
  float number;
  std::uint16_t half;
  std::memcpy(&half, place, 2);
  if (dtype == DType::bf16) return support::bf16_to_float(half);
  if (dtype == DType::f16) return support::f16_to_float(half);
  std::memcpy(&number, place, 4);
  return number;
}

// All 27 combinations of dtypes, 200 elements (several chunks), misaligned, in place where the dtypes allow it.
TEST(MergeRow, EveryCombinationOfDtypes) {
  const DType dtypes[] = {DType::f32, DType::f16, DType::bf16};
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (DType dtype_a : dtypes) {
    for (DType dtype_b : dtypes) {
      for (DType dtype : dtypes) {
        std::vector<float> numbers_a(200), numbers_b(200);
        for (float& number : numbers_a)
          number = support::round_to(static_cast<ringattn_dtype>(dtype_a), normal(random));
        for (float& number : numbers_b)
          number = support::round_to(static_cast<ringattn_dtype>(dtype_b), normal(random));
        std::vector<char> a = encode(numbers_a, dtype_a, 1), b = encode(numbers_b, dtype_b, 1);
        std::vector<char> separate(1 + 200 * static_cast<std::size_t>(size_of(dtype)));
        char* const o = dtype == dtype_a ? a.data() + 1 : separate.data() + 1;
        const float lse =
            merge_row({a.data() + 1, dtype_a, b.data() + 1, dtype_b, o, dtype, 200}, 1.0f, 0.5f);
        EXPECT_NEAR(lse, 1 + std::log(1 + std::exp(-0.5)), 1e-6);
        const double weight = 1 / (1 + std::exp(-0.5));
        const double unit = dtype == DType::f32 ? 1e-6 : dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
        for (std::size_t i = 0; i < 200; ++i) {
          const double expected = weight * numbers_a[i] + (1 - weight) * numbers_b[i];
          EXPECT_NEAR(decode(o + i * static_cast<std::size_t>(size_of(dtype)), dtype), expected,
                      unit * std::abs(expected) + 1e-6);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ringattn::kernels::test
