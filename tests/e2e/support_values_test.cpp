// Half-precision conversions, tensors, random numbers, threads: the parts that every other test leans on.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "tests/support/half.h"
#include "tests/support/host_pool.h"
#include "tests/support/host_tensor.h"
#include "tests/support/oracle.h"
#include "tests/support/random_data.h"
#include "tests/support/spawn.h"

namespace ringattn::support {
namespace {

// The value of a binary16 pattern by its definition.
double f16_by_definition(int pattern) {
  const int exponent = (pattern >> 10) & 31;
  const int fraction = pattern & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (pattern & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Half, EveryF16PatternIsItsDefinitionAndComesBack) {
  for (int pattern = 0; pattern < 65536; ++pattern) {
    const auto half = static_cast<std::uint16_t>(pattern);
    const float value = f16_to_float(half);
    if ((pattern & 0x7c00) == 0x7c00) {
      if ((pattern & 0x3ff) == 0) {
        EXPECT_TRUE(std::isinf(value)) << pattern;
        EXPECT_EQ(float_to_f16(value), half);
      } else {
        EXPECT_TRUE(std::isnan(value)) << pattern;
        EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(value)))) << pattern;
      }
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), f16_by_definition(pattern)) << pattern;
    ASSERT_EQ(float_to_f16(value), half) << pattern;
  }
}

TEST(Half, EveryBf16PatternIsTheUpperHalfAndComesBack) {
  for (int pattern = 0; pattern < 65536; ++pattern) {
    const auto half = static_cast<std::uint16_t>(pattern);
    const float value = bf16_to_float(half);
    ASSERT_EQ(bits_of(value), static_cast<std::uint32_t>(pattern) << 16);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(bf16_to_float(float_to_bf16(value)))) << pattern;
    } else {
      ASSERT_EQ(float_to_bf16(value), half) << pattern;
    }
  }
}

// Between each two neighbours: the middle goes to the even one, a hair beside it to the nearer one.
template <typename ToFloat, typename FromFloat>
void check_rounding(int last_finite, ToFloat to_float, FromFloat from_float) {
  for (int pattern = 0; pattern < last_finite; ++pattern) {
    const auto lower = static_cast<std::uint16_t>(pattern);
    const auto upper = static_cast<std::uint16_t>(pattern + 1);
    const double middle = (static_cast<double>(to_float(lower)) + static_cast<double>(to_float(upper))) / 2;
    const auto exact = static_cast<float>(middle);
    if (static_cast<double>(exact) != middle) continue;  // below float's own resolution
    const std::uint16_t even = pattern % 2 == 0 ? lower : upper;
    ASSERT_EQ(from_float(exact), even) << pattern;
    ASSERT_EQ(from_float(-exact), even | 0x8000) << pattern;
    ASSERT_EQ(from_float(std::nextafter(exact, 0.0f)), lower) << pattern;
    ASSERT_EQ(from_float(std::nextafter(exact, std::numeric_limits<float>::infinity())), upper) << pattern;
  }
}

TEST(Half, RoundsToNearestEvenEverywhere) {
  check_rounding(0x7bff, f16_to_float, float_to_f16);
  check_rounding(0x7f7f, bf16_to_float, float_to_bf16);
  EXPECT_EQ(float_to_f16(65519.99f), 0x7bff);
  EXPECT_EQ(float_to_f16(65520.0f), 0x7c00);  // the tie goes to the even side, which is infinity
  EXPECT_EQ(float_to_f16(1e30f), 0x7c00);
  EXPECT_EQ(float_to_f16(1e-30f), 0);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
}

TEST(Half, UlpIsTheDistanceToTheNextNumber) {
  for (const double value : {1.0, 1.5, 3.75, 0.01, 1e-30, 65000.0}) {
    const auto f = static_cast<float>(value);
    EXPECT_EQ(ulp(RINGATTN_DTYPE_F32, f), std::nextafter(f, INFINITY) - f) << value;
    const std::uint16_t b = float_to_bf16(f);
    EXPECT_EQ(ulp(RINGATTN_DTYPE_BF16, bf16_to_float(b)),
              static_cast<double>(bf16_to_float(static_cast<std::uint16_t>(b + 1))) - bf16_to_float(b));
    const std::uint16_t h = float_to_f16(f);
    if (h != 0) {
      EXPECT_EQ(ulp(RINGATTN_DTYPE_F16, f16_to_float(h)),
                static_cast<double>(f16_to_float(static_cast<std::uint16_t>(h + 1))) - f16_to_float(h))
          << value;
    }
  }
  EXPECT_EQ(ulp(RINGATTN_DTYPE_F16, 0), 0x1p-24);
}

TEST(HostTensor, LayoutsHoldTheSameElements) {
  std::set<std::uint64_t> hashes;
  for (const Layout layout : {Layout::kBshd, Layout::kBhsd, Layout::kSbhd, Layout::kSliced}) {
    for (const ringattn_dtype dtype : {RINGATTN_DTYPE_F32, RINGATTN_DTYPE_F16, RINGATTN_DTYPE_I64}) {
      HostTensor tensor(dtype, {2, 3, 4, 5}, layout);
      double value = 0;
      for (int b = 0; b < 2; ++b) {
        for (int s = 0; s < 3; ++s) {
          for (int h = 0; h < 4; ++h) {
            for (int d = 0; d < 5; ++d) tensor.set(b, s, h, d, value++);
          }
        }
      }
      EXPECT_TRUE(tensor.guards_intact());
      const std::vector<float> values = tensor.to_floats();
      for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<float>(i));
      if (dtype == RINGATTN_DTYPE_F32) hashes.insert(tensor.hash());

      const ringattn_tensor view = tensor.view();
      const std::int64_t item = dtype_size(dtype);
      tensor.set(1, 2, 3, 4, 100);
      const auto* element =
          static_cast<const std::byte*>(view.data) +
          (view.stride[0] + 2 * view.stride[1] + 3 * view.stride[2] + 4 * view.stride[3]) * item;
      EXPECT_GE(element, tensor.data());
      EXPECT_EQ(tensor.get(1, 2, 3, 4), 100);
      const ringattn_tensor tokens = tensor.token_view();
      EXPECT_EQ(tokens.shape[1], 4);
      EXPECT_EQ(tokens.stride[1], view.stride[2]);
    }
  }
  EXPECT_EQ(hashes.size(), 1u);
}

TEST(HostTensor, GuardsSeeEveryStrayByte) {
  for (const Layout layout : {Layout::kBshd, Layout::kSliced}) {
    HostTensor tensor(RINGATTN_DTYPE_BF16, {1, 2, 2, 3}, layout);
    const ringattn_tensor view = tensor.view();
    auto* bytes = static_cast<std::byte*>(view.data);
    const std::int64_t beyond = (view.stride[1] + view.stride[2] + 3) * 2;  // just behind the last element
    for (const std::int64_t at : {std::int64_t{-1}, beyond}) {
      const std::byte before = bytes[at];
      bytes[at] = std::byte{0};
      EXPECT_FALSE(tensor.guards_intact()) << at;
      bytes[at] = before;
      EXPECT_TRUE(tensor.guards_intact());
    }
  }
}

TEST(HostTensor, EmptyTensorsHaveNoMemory) {
  const HostTensor tensor(RINGATTN_DTYPE_F32, {1, 0, 4, 64});
  EXPECT_EQ(tensor.view().data, nullptr);
  EXPECT_TRUE(tensor.guards_intact());
  EXPECT_TRUE(tensor.to_floats().empty());
}

TEST(Random, NumbersAreFixedForEver) {
  Random random(0);
  EXPECT_EQ(random.bits(),
            11091344671253066420ull);  // xoshiro256** seeded by splitmix64(0), from a second program
  EXPECT_EQ(random.bits(), 13793997310169335082ull);
  EXPECT_EQ(random.bits(), 1900383378846508768ull);
}

TEST(Random, NormalHasMeanZeroAndVarianceOne) {
  Random random(7);
  double sum = 0, squares = 0, fourth = 0;
  constexpr int kCount = 200000;
  for (int i = 0; i < kCount; ++i) {
    const double x = random.normal();
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.01);
  EXPECT_NEAR(squares / kCount, 1, 0.015);
  EXPECT_NEAR(fourth / kCount, 2.9, 0.08);  // twelve summed: 3 - 6 / (5 * 12)
}

TEST(Random, InputsDoNotDependOnTheLayoutAndPoisonPadding) {
  ProblemLine problem;
  ASSERT_FALSE(parse_problem("n=9 heads=2 dim=5 docs=3,4", problem));
  const Inputs dense = random_inputs(problem, 3);
  problem.layout = Layout::kSliced;
  const Inputs sliced = random_inputs(problem, 3);
  EXPECT_EQ(dense.q.hash(), sliced.q.hash());
  EXPECT_EQ(dense.v.hash(), sliced.v.hash());
  EXPECT_NE(dense.q.hash(), random_inputs(problem, 4).q.hash());
  EXPECT_TRUE(std::isfinite(dense.k.get(0, 6, 1, 4)));
  EXPECT_TRUE(std::isnan(dense.k.get(0, 7, 0, 0)));
}

TEST(Threads, ExceptionsOfBodiesArrive) {
  std::atomic<int> ran{0};
  EXPECT_THROW(run_threads(3,
                           [&](int i) {
                             ++ran;
                             if (i == 1) throw std::runtime_error("one");
                           }),
               std::runtime_error);
  EXPECT_EQ(ran, 3);
}

TEST(ThreadsDeathTest, WatchdogEndsAHangWithAMessage) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(run_threads(
                   1, [](int) { std::this_thread::sleep_for(std::chrono::seconds(30)); }, 1, "sleepers"),
               "sleepers did not end within 1 s");
}

struct LoopCheck {
  std::mutex mutex;
  std::multiset<std::int32_t> indices;
  std::set<std::int32_t> running;
  bool overlapped = false;
  std::int32_t largest_worker = 0;
};

void count_body(void* arg, std::int32_t i, std::int32_t worker) {
  auto& check = *static_cast<LoopCheck*>(arg);
  {
    const std::lock_guard lock(check.mutex);
    check.indices.insert(i);
    check.overlapped |= !check.running.insert(worker).second;
    check.largest_worker = std::max(check.largest_worker, worker);
  }
  std::this_thread::yield();
  const std::lock_guard lock(check.mutex);
  check.running.erase(worker);
}

TEST(HostPool, KeepsThePromisesOfTheHeaderEvenForSeveralCallers) {
  constexpr int kWorkers = 3, kCallers = 4, kLoops = 50;
  HostPool pool(kWorkers);
  ringattn_context_desc desc = RINGATTN_STRUCT(ringattn_context_desc);
  pool.attach(desc);
  ASSERT_EQ(desc.max_workers, kWorkers);
  LoopCheck check;
  run_threads(kCallers, [&](int) {
    for (int loop = 0; loop < kLoops; ++loop)
      desc.parallel_for(desc.parallel_user, loop % 8, count_body, &check);
  });
  std::size_t expected = 0;
  for (int loop = 0; loop < kLoops; ++loop) expected += static_cast<std::size_t>(kCallers * (loop % 8));
  EXPECT_EQ(check.indices.size(), expected);
  EXPECT_FALSE(check.overlapped);
  EXPECT_LT(check.largest_worker, kWorkers);
  EXPECT_EQ(pool.distinct_threads(), kCallers + kWorkers - 1);
}

}  // namespace
}  // namespace ringattn::support
