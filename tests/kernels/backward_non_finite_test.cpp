// D22 for backward: numbers that are not finite do not reach what does not see them, bit for bit, and do reach
// the rest.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/kernels/backward_case.h"
#include "tests/kernels/every_kernel.h"

namespace ringattn::kernels::test {
namespace {

class BackwardNonFinite : public EveryKernel {};
RINGATTN_FOR_EVERY_KERNEL(BackwardNonFinite);

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kBad = 3;  // keys, or lanes, that are not finite in a test
constexpr unsigned kSubsets = 1u << kBad;

void set_row(Array& array, std::int64_t row, std::int64_t head, float value) {
  for (std::int64_t d = 0; d < array.dim; ++d) array.set(row, head, d, value);
}

bool row_is_same(const std::vector<float>& a, const std::vector<float>& b, std::int64_t row,
                 std::int64_t dim) {
  const auto first = static_cast<std::ptrdiff_t>(row * dim), last = first + static_cast<std::ptrdiff_t>(dim);
  return std::equal(a.begin() + first, a.begin() + last, b.begin() + first,
                    [](float x, float y) { return same_bits(x, y); });
}

std::string finite_where_truth_is_not(const char* what, const std::vector<float>& result,
                                      const std::vector<double>& truth) {
  for (std::size_t i = 0; i < truth.size(); ++i) {
    if (!std::isfinite(truth[i]) && std::isfinite(result[i])) return what + (" " + std::to_string(i));
  }
  return "";
}

void expect_non_finite_where_truth_is(const BackwardCase& test, const Gradients& result,
                                      const std::string& what) {
  const BackwardTruth truth = backward_truth_of(test);
  EXPECT_EQ("", result.broken) << what;
  EXPECT_EQ("", finite_where_truth_is_not("d_q", result.d_q, truth.d_q)) << what;
  EXPECT_EQ("", finite_where_truth_is_not("d_k", result.d_k, truth.d_k)) << what;
  EXPECT_EQ("", finite_where_truth_is_not("d_v", result.d_v, truth.d_v)) << what;
}

struct Scene {
  explicit Scene(const Kernel& kernel, std::uint64_t seed) : random(seed) {
    const DType dtype = std::vector{DType::f32, DType::f16, DType::bf16}[seed % 3];
    const auto dims =
        std::vector<std::pair<std::int64_t, std::int64_t>>{{8, 8}, {17, 33}, {1, 1}, {64, 70}}[random() % 4];
    const Shape shape{dims.first, dims.second, 1 + static_cast<std::int64_t>(random() % 3), dtype, dtype, 0.3,
                      false,      DType::f32};
    const auto most = static_cast<std::uint64_t>(kernel.backward.lanes);
    test = std::make_unique<BackwardCase>(shape, kBad + static_cast<int>(random() % (most + 10)), 250);
    for (int lane = 0; lane < test->lanes; ++lane) {
      const auto index = static_cast<std::size_t>(lane);
      test->lo[index] = static_cast<std::int64_t>(random() % 130);
      test->hi[index] =
          std::min<std::int64_t>(250, test->lo[index] + static_cast<std::int64_t>(random() % 250));
    }
    test->fill_backward(random);
    value = std::vector{std::nanf(""), kInfinity, -kInfinity}[random() % 3];
    if (seed % 2 == 0) {
      how.ranges = {{0, 250}};
    } else {
      how.ranges = {{100, 250}, {0, 100, true}};
    }
  }
  std::mt19937_64 random;
  std::unique_ptr<BackwardCase> test;
  float value;
  BackwardRun how;
};

// Each lane's dQ against the run in which the bad keys that it does not see are zero.
TEST_P(BackwardNonFinite, KeysStayInTheLanesThatSeeThem) {
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    Scene scene(kernel(), seed);
    BackwardCase& test = *scene.test;
    const std::int64_t bad[kBad] = {static_cast<std::int64_t>(scene.random() % 250), 3, 249};
    const unsigned where = scene.random() % 3;  // 0: keys, 1: values, 2: both
    std::vector<Gradients> zeroed(kSubsets);
    for (unsigned subset = kSubsets; subset-- > 0;) {
      for (unsigned i = 0; i < kBad; ++i) {
        set_row(test.k, bad[i], 0, 0);
        set_row(test.v, bad[i], 0, 0);
        if ((subset >> i & 1u) != 0) continue;
        if (where != 1) test.k.set(bad[i], 0, bad[i] % test.shape.head_dim_qk, scene.value);
        if (where != 0) test.v.set(bad[i], 0, (7 + bad[i]) % test.shape.head_dim_v, scene.value);
      }
      zeroed[subset] = run_backward(kernel(), test, scene.how);
    }
    std::ostringstream what;
    what << "seed " << seed << " value " << scene.value << " where " << where;
    for (int lane = 0; lane < test.lanes; ++lane) {
      unsigned hidden = 0;
      for (unsigned i = 0; i < kBad; ++i) hidden |= test.sees(lane, bad[i]) ? 0u : 1u << i;
      ASSERT_TRUE(row_is_same(zeroed[0].d_q, zeroed[hidden].d_q, lane, test.shape.head_dim_qk))
          << what.str() << " lane " << lane;
    }
    expect_non_finite_where_truth_is(test, zeroed[0], what.str());
  }
}

// Each key's dK and dV against the run in which the bad lanes that do not see it are zero.
TEST_P(BackwardNonFinite, LanesStayInTheKeysThatTheySee) {
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    Scene scene(kernel(), seed + 100);
    BackwardCase& test = *scene.test;
    const int bad[kBad] = {static_cast<int>(scene.random() % static_cast<unsigned>(test.lanes)), 0,
                           test.lanes - 1};
    const unsigned where = scene.random() % 3;  // 0: queries, 1: output gradients, 2: both
    std::vector<Gradients> zeroed(kSubsets);
    for (unsigned subset = kSubsets; subset-- > 0;) {
      for (unsigned i = 0; i < kBad; ++i) {
        const std::int64_t row = test.row_of(bad[i]), head = test.head_of(bad[i]);
        set_row(test.q, row, head, 0);
        set_row(test.d_o, row, head, 0);
        if ((subset >> i & 1u) != 0) continue;
        if (where != 1) test.q.set(row, head, bad[i] % test.shape.head_dim_qk, scene.value);
        if (where != 0) test.d_o.set(row, head, (7 + bad[i]) % test.shape.head_dim_v, scene.value);
      }
      zeroed[subset] = run_backward(kernel(), test, scene.how);
    }
    std::ostringstream what;
    what << "seed " << seed << " value " << scene.value << " where " << where;
    for (std::int64_t j = 0; j < test.keys; ++j) {
      unsigned hidden = 0;
      for (unsigned i = 0; i < kBad; ++i) hidden |= test.sees(bad[i], j) ? 0u : 1u << i;
      ASSERT_TRUE(row_is_same(zeroed[0].d_k, zeroed[hidden].d_k, j, test.shape.head_dim_qk))
          << what.str() << " key " << j;
      ASSERT_TRUE(row_is_same(zeroed[0].d_v, zeroed[hidden].d_v, j, test.shape.head_dim_v))
          << what.str() << " key " << j;
    }
    expect_non_finite_where_truth_is(test, zeroed[0], what.str());
  }
}

// O, lse and dlse of a lane reach only the keys that it sees and its own dQ.
TEST_P(BackwardNonFinite, SumsOfALaneStayInWhatItSees) {
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    Scene scene(kernel(), seed + 200);
    BackwardCase& test = *scene.test;
    const int bad = static_cast<int>(scene.random() % static_cast<unsigned>(test.lanes));
    const Gradients before = run_backward(kernel(), test, scene.how);
    Array& target = *std::vector{&test.o, &test.lse, &test.d_lse}[seed % 3];
    const float value = seed % 3 == 1 ? std::nanf("") : scene.value;  // an lse of -inf is something else
    target.set(test.row_of(bad), test.head_of(bad), 0, value);
    const Gradients after = run_backward(kernel(), test, scene.how);
    bool any = false;
    for (std::int64_t j = 0; j < test.keys; ++j) {
      if (test.sees(bad, j)) {
        const auto d_k = static_cast<std::size_t>(j * test.shape.head_dim_qk);
        EXPECT_FALSE(std::isfinite(after.d_k[d_k])) << seed << " key " << j;
        any = true;
        continue;
      }
      ASSERT_TRUE(row_is_same(before.d_k, after.d_k, j, test.shape.head_dim_qk)) << seed << " key " << j;
      ASSERT_TRUE(row_is_same(before.d_v, after.d_v, j, test.shape.head_dim_v)) << seed << " key " << j;
    }
    for (int lane = 0; lane < test.lanes; ++lane) {
      if (lane == bad) continue;
      ASSERT_TRUE(row_is_same(before.d_q, after.d_q, lane, test.shape.head_dim_qk)) << seed;
    }
    const auto own = static_cast<std::size_t>(bad * test.shape.head_dim_qk);
    EXPECT_EQ(any, !std::isfinite(after.d_q[own])) << seed;
  }
}

// The key just outside a causal row, and the lane just above it, at many rows of a tile.
TEST_P(BackwardNonFinite, CausalEdges) {
  const int lanes = kernel().backward.lanes;
  for (std::int64_t bad = 100; bad<100 + lanes; bad += lanes> 64 ? 3 : 1) {
    std::mt19937_64 random(static_cast<std::uint64_t>(bad));
    BackwardCase test({5, 6, 1, DType::f32, DType::f32, 0.5, false, DType::f32}, lanes, 250);
    for (int lane = 0; lane < lanes; ++lane) test.hi[static_cast<std::size_t>(lane)] = 100 + lane;
    test.fill_backward(random);
    test.k.set(bad, 0, 1, std::nanf(""));
    test.v.set(bad, 0, 2, kInfinity);
    const Gradients keys = run_backward(kernel(), test);
    test.k.set(bad, 0, 1, 1);
    test.v.set(bad, 0, 2, 1);
    for (int lane = 0; lane < lanes; ++lane)
      ASSERT_EQ(std::isfinite(keys.d_q[static_cast<std::size_t>(5 * lane)]), 100 + lane <= bad) << lane;
    test.q.set(bad - 100, 0, 0, kInfinity);
    test.d_o.set(bad - 100, 0, 0, std::nanf(""));
    const Gradients queries = run_backward(kernel(), test);
    for (std::int64_t j = 0; j < test.keys; ++j)
      ASSERT_EQ(std::isfinite(queries.d_k[static_cast<std::size_t>(5 * j)]), j >= bad) << j;
  }
}

}  // namespace
}  // namespace ringattn::kernels::test
