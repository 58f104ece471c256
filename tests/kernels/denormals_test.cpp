// The guard around tile work, and the words about the CPU.
#include "base/denormals.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <latch>
#include <limits>
#include <string>
#include <thread>

#include "base/cpu_features.h"

namespace ringattn::test {
namespace {

float halved_smallest_normal() {
  volatile float smallest = std::numeric_limits<float>::min();
  volatile float half = smallest * 0.5f;
  return half;
}

float denormal_times(float factor) {
  volatile float denormal = std::numeric_limits<float>::denorm_min();
  volatile float product = denormal * factor;
  return product;
}

TEST(DenormalsAreZero, FlushesResultsAndOperandsWhileItLives) {
  EXPECT_GT(halved_smallest_normal(), 0.0f);
  {
    const DenormalsAreZero guard;
    EXPECT_EQ(halved_smallest_normal(), 0.0f);
    EXPECT_EQ(denormal_times(0x1p100f), 0.0f);
    {
      const DenormalsAreZero nested;
      EXPECT_EQ(halved_smallest_normal(), 0.0f);
    }
    EXPECT_EQ(halved_smallest_normal(), 0.0f);
  }
  EXPECT_GT(halved_smallest_normal(), 0.0f);
  EXPECT_GT(denormal_times(0x1p100f), 0.0f);
}

TEST(DenormalsAreZero, KeepsTheCallersRounding) {
  std::fesetround(FE_UPWARD);
  {
    const DenormalsAreZero guard;
    EXPECT_EQ(std::fegetround(), FE_UPWARD);
  }
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  std::fesetround(FE_TONEAREST);
}

TEST(DenormalsAreZero, IsOfItsThreadOnly) {
  std::latch guarded(1);
  float elsewhere = 0;
  std::thread other([&] {
    guarded.wait();
    elsewhere = halved_smallest_normal();
  });
  {
    const DenormalsAreZero guard;
    guarded.count_down();
    other.join();
    EXPECT_EQ(halved_smallest_normal(), 0.0f);
  }
  EXPECT_GT(elsewhere, 0.0f);
}

TEST(CpuFeatures, IsAListOfWords) {
  const std::string features = cpu_features();
  EXPECT_EQ(features.find("  "), std::string::npos);
  EXPECT_TRUE(features.empty() || (features.front() != ' ' && features.back() != ' '));
#if defined(__x86_64__)
  const bool avx2 = (" " + features + " ").find(" avx2 ") != std::string::npos;
  EXPECT_EQ(avx2, static_cast<bool>(__builtin_cpu_supports("avx2"))) << features;
#endif
}

}  // namespace
}  // namespace ringattn::test
