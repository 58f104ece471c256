// D22: non-finite keys and values do not reach rows that do not see them, bit for bit, and do reach those that do.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/kernels/every_kernel.h"
#include "tests/kernels/kernel_case.h"

namespace ringattn::kernels::test {
namespace {

class KernelNonFinite : public EveryKernel {};
RINGATTN_FOR_EVERY_KERNEL(KernelNonFinite);

constexpr float kInfinity = std::numeric_limits<float>::infinity();

enum class Where { key, value, both };

// Rows that do not see key `bad` against a run in which it is zero; rows that do against fp64's non-finite elements.
void expect_contained(const Kernel& kernel, Case& test, const std::vector<std::int64_t>& bad, Where where,
                      float value, const std::vector<Range>& ranges, const std::string& what) {
  for (std::int64_t j : bad) {
    for (std::int64_t d = 0; d < test.shape.head_dim_qk; ++d) test.k.set(j, 0, d, 0);
    for (std::int64_t d = 0; d < test.shape.head_dim_v; ++d) test.v.set(j, 0, d, 0);
  }
  const Result zeroed = run(kernel, test, ranges);
  for (std::int64_t j : bad) {
    if (where != Where::value) test.k.set(j, 0, j % test.shape.head_dim_qk, value);
    if (where != Where::key) test.v.set(j, 0, (j * 7) % test.shape.head_dim_v, value);
  }
  const Result result = run(kernel, test, ranges);
  const Truth truth = truth_of(test);
  EXPECT_EQ("", result.broken) << what;
  const auto dim = static_cast<std::size_t>(test.shape.head_dim_v);
  for (int lane = 0; lane < test.lanes; ++lane) {
    const auto index = static_cast<std::size_t>(lane);
    const bool sees = std::any_of(bad.begin(), bad.end(), [&](std::int64_t j) { return test.sees(lane, j); });
    if (!sees) {
      EXPECT_TRUE(same_bits(result.lse[index], zeroed.lse[index])) << what << " lane " << lane;
    } else if (!std::isfinite(truth.lse[index])) {
      EXPECT_FALSE(std::isfinite(result.lse[index])) << what << " lane " << lane;
    }
    for (std::size_t d = 0; d < dim; ++d) {
      const std::size_t element = index * dim + d;
      if (!sees) {
        ASSERT_TRUE(same_bits(result.o[element], zeroed.o[element]))
            << what << " lane " << lane << " channel " << d;
      } else if (!std::isfinite(truth.o[element])) {
        ASSERT_FALSE(std::isfinite(result.o[element])) << what << " lane " << lane << " channel " << d;
      }
    }
  }
}

TEST_P(KernelNonFinite, StaysInTheRowsThatSeeIt) {
  const std::vector<float> values = {std::nanf(""), kInfinity, -kInfinity};
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    std::mt19937_64 random(seed);
    const DType dtype = std::vector{DType::f32, DType::f16, DType::bf16}[seed % 3];
    const auto dims =
        std::vector<std::pair<std::int64_t, std::int64_t>>{{8, 8}, {17, 33}, {1, 1}, {64, 70}}[random() % 4];
    const Shape shape{dims.first, dims.second, 1 + static_cast<std::int64_t>(random() % 3),
                      dtype,      DType::f32,  0.3,
                      false,      DType::f32};
    Case test(shape, 1 + static_cast<int>(random() % static_cast<std::uint64_t>(kernel().lanes)), 250);
    test.fill(random);
    for (int lane = 0; lane < test.lanes; ++lane) {
      const auto index = static_cast<std::size_t>(lane);
      test.lo[index] = static_cast<std::int64_t>(random() % 130);
      test.hi[index] =
          std::min<std::int64_t>(250, test.lo[index] + static_cast<std::int64_t>(random() % 250));
    }
    const std::vector<std::int64_t> bad = {static_cast<std::int64_t>(random() % 250), 3, 249};
    const auto where = static_cast<Where>(random() % 3);
    const float value = values[random() % 3];
    const std::vector<Range> ranges =
        seed % 2 == 0 ? std::vector<Range>{{0, 250}} : std::vector<Range>{{100, 250}, {0, 100, true}};
    std::ostringstream what;
    what << "seed " << seed << " value " << value << " where " << static_cast<int>(where);
    expect_contained(kernel(), test, bad, where, value, ranges, what.str());
  }
}

// The key just outside a causal row, for every row of a tile.
TEST_P(KernelNonFinite, EveryCausalEdge) {
  for (std::int64_t bad = 100; bad < 100 + kernel().lanes + 2; ++bad) {
    std::mt19937_64 random(static_cast<std::uint64_t>(bad));
    Case test({5, 6, 1, DType::f32, DType::f32, 0.5, false, DType::f32}, kernel().lanes, 200);
    test.fill(random);
    for (int lane = 0; lane < test.lanes; ++lane) test.hi[static_cast<std::size_t>(lane)] = 100 + lane;
    expect_contained(kernel(), test, {bad}, Where::both, std::nanf(""), {{0, 200}}, "causal");
  }
}

// A score of -inf is a key of weight 0, wherever in the row it stands; a row of nothing else is NaN, not empty.
TEST_P(KernelNonFinite, ScoresOfMinusInfinity) {
  for (const bool first : {true, false}) {
    Case test({1, 2, 1, DType::f32, DType::f32, 1.0, false, DType::f32}, 3, 240);
    std::mt19937_64 random(7);
    test.fill(random);
    for (int lane = 0; lane < 3; ++lane) test.q.set(lane, 0, 0, 1);
    for (std::int64_t j = 0; j < 240; ++j) {
      if ((j < 120) == first) test.k.set(j, 0, 0, -kInfinity);
    }
    test.lo[1] = first ? 0 : 120;
    test.hi[1] = first ? 120 : 240;
    const Result result = run(kernel(), test);
    const Truth truth = truth_of(test);
    for (std::size_t lane : {0u, 2u}) {
      EXPECT_NEAR(result.lse[lane], truth.lse[lane], 1e-5);
      EXPECT_NEAR(result.o[2 * lane], truth.o[2 * lane], 1e-5);
    }
    EXPECT_TRUE(std::isnan(result.o[2]));
    EXPECT_FALSE(std::isfinite(result.lse[1]));
  }
}

TEST_P(KernelNonFinite, InfiniteScoreMakesItsRowNaN) {
  Case test({1, 1, 1, DType::f32, DType::f32, 1.0, false, DType::f32}, 2, 130);
  std::mt19937_64 random(8);
  test.fill(random);
  test.q.set(0, 0, 0, 1), test.q.set(1, 0, 0, 1);
  test.k.set(50, 0, 0, kInfinity);
  test.hi[1] = 50;
  const Result result = run(kernel(), test);
  EXPECT_FALSE(std::isfinite(result.o[0]));
  EXPECT_FALSE(std::isfinite(result.lse[0]));
  EXPECT_TRUE(std::isfinite(result.o[1]));
  EXPECT_TRUE(std::isfinite(result.lse[1]));
}

}  // namespace
}  // namespace ringattn::kernels::test
