// The contract of kernel.h, over every kernel: random tiles against fp64 within D21's limit, memory, order, state.
#include <gtest/gtest.h>

#include <sstream>

#include "base/denormals.h"
#include "tests/kernels/every_kernel.h"
#include "tests/kernels/kernel_case.h"
#include "tests/kernels/limits.h"

namespace ringattn::kernels::test {
namespace {

class KernelContract : public EveryKernel {};
RINGATTN_FOR_EVERY_KERNEL(KernelContract);

Shape shape_of(std::int64_t dim_qk, std::int64_t dim_v, DType dtype = DType::f32, std::int64_t group = 1) {
  return {dim_qk, dim_v, group, dtype, dtype, 1 / std::sqrt(static_cast<double>(dim_qk)), false, DType::f32};
}

template <typename T>
const T& pick(std::mt19937_64& random, const std::vector<T>& from) {
  return from[random() % from.size()];
}

enum class Intervals { full, causal, window, random, few, halves };

void set_intervals(Case& test, Intervals kind, std::mt19937_64& random) {
  const std::int64_t keys = test.keys;
  const auto below = [&](std::int64_t limit) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
  };
  const std::int64_t shift = below(keys + 1), width = 1 + below(keys + 1);
  for (int lane = 0; lane < test.lanes; ++lane) {
    std::int64_t low = 0, high = keys;
    const std::int64_t row = test.row_of(lane) - test.row_of(0);
    if (kind == Intervals::causal) high = shift + row;
    if (kind == Intervals::window) low = shift + row - width, high = shift + row + 1;
    if (kind == Intervals::random) low = below(keys + 1), high = below(keys + 1);
    if (kind == Intervals::few) low = below(keys + 1), high = random() % 2 == 0 ? low : low + 1;
    if (kind == Intervals::halves) (lane % 2 == 0 ? high : low) = keys / 2;
    low = std::clamp<std::int64_t>(low, 0, keys);
    high = std::clamp<std::int64_t>(high, low, keys);
    test.lo[static_cast<std::size_t>(lane)] = low;
    test.hi[static_cast<std::size_t>(lane)] = high;
  }
}

std::vector<Range> random_ranges(std::int64_t keys, std::mt19937_64& random) {
  std::vector<Range> ranges;
  const int cuts = static_cast<int>(random() % 4);
  std::vector<std::int64_t> at{0, keys};
  for (int i = 0; i < cuts; ++i)
    at.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(keys + 1)));
  std::sort(at.begin(), at.end());
  for (std::size_t i = 1; i < at.size(); ++i) ranges.push_back({at[i - 1], at[i], random() % 2 == 0});
  std::shuffle(ranges.begin(), ranges.end(), random);
  return ranges;
}

// A random tile: every choice from the seed.
std::string random_case_fails(const Kernel& kernel, std::uint64_t seed, std::int64_t dim_qk,
                              std::int64_t dim_v) {
  std::mt19937_64 random(seed * 7919 + 17);
  Shape shape = shape_of(dim_qk, dim_v, pick(random, std::vector{DType::f32, DType::f16, DType::bf16}),
                         pick(random, std::vector<std::int64_t>{1, 1, 2, 3, 4, 7, 8, 9}));
  if (random() % 3 == 0) shape.dtype_out = DType::f32;
  shape.exact = random() % 2 == 0;
  const int most = kernel.lanes;
  const int lanes =
      random() % 3 == 0 ? most : 1 + static_cast<int>(random() % static_cast<std::uint64_t>(most));
  const std::int64_t keys = pick(random, std::vector<std::int64_t>{1, 5, 6, 7, 64, 119, 120, 121, 240, 300});
  const Layout layout{random() % 2 == 0, pick(random, std::vector<std::int64_t>{0, 1, 3, 16}), random() % 4};
  Case test(shape, lanes, keys, static_cast<std::int64_t>(random() % 20), layout);
  test.fill(random, pick(random, std::vector<double>{0, 1, 1, 8}), 1, 1);
  const auto kind = static_cast<Intervals>(random() % 6);
  set_intervals(test, kind, random);
  std::ostringstream text;
  text << "seed " << seed << ": dims " << dim_qk << "/" << dim_v << " dtype " << static_cast<int>(shape.dtype)
       << " group " << shape.group << " lanes " << lanes << " keys " << keys << " intervals "
       << static_cast<int>(kind) << ": ";
  const Result result = run(kernel, test, random_ranges(keys, random));
  if (!result.broken.empty()) return text.str() + result.broken;
  const std::string error = beyond_limit(test, result);
  return error.empty() ? "" : text.str() + error;
}

TEST_P(KernelContract, RandomTilesAreWithinTheLimit) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    std::mt19937_64 random(seed);
    const auto dim_qk = static_cast<std::int64_t>(1 + random() % 140),
               dim_v = static_cast<std::int64_t>(1 + random() % 140);
    EXPECT_EQ("", random_case_fails(kernel(), seed, dim_qk, dim_v));
  }
}

TEST_P(KernelContract, NamedHeadDimsAreWithinTheLimit) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> dims = {
      {576, 512}, {192, 128}, {576, 576}, {575, 511}, {64, 64},
      {128, 128}, {80, 80},   {96, 96},   {112, 1},   {1, 576}};
  std::uint64_t seed = 1000;
  for (const auto& [dim_qk, dim_v] : dims) {
    for (int repeat = 0; repeat < 3; ++repeat)
      EXPECT_EQ("", random_case_fails(kernel(), ++seed, dim_qk, dim_v));
  }
}

// Register tiles take 1 to 6 rows of keys and of channels, in every width of panel.
TEST_P(KernelContract, EveryCountOfKeysChannelsAndLanes) {
  for (int count = 1; count <= 20; ++count) {
    for (int lanes = 1; lanes <= kernel().lanes; lanes += 3) {
      std::mt19937_64 random(static_cast<std::uint64_t>(100 * count + lanes));
      Case test(shape_of(3, count), lanes, count);
      test.fill(random);
      const Result result = run(kernel(), test);
      EXPECT_EQ("", result.broken);
      EXPECT_EQ("", beyond_limit(test, result)) << "count " << count << " lanes " << lanes;
    }
  }
}

// Position i sees keys 0..i of V = index, with scores 0: the mean is i / 2, exactly.
TEST_P(KernelContract, CausalMeansAreExact) {
  Case test(shape_of(2, 1), kernel().lanes, 300);
  for (int lane = 0; lane < test.lanes; ++lane) {
    test.q.set(lane, 0, 0, 0), test.q.set(lane, 0, 1, 0);
    test.hi[static_cast<std::size_t>(lane)] = 230 + lane;
  }
  for (std::int64_t j = 0; j < test.keys; ++j) {
    test.k.set(j, 0, 0, 1), test.k.set(j, 0, 1, -5);
    test.v.set(j, 0, 0, static_cast<float>(j));
  }
  const Result result = run(kernel(), test);
  for (int lane = 0; lane < test.lanes; ++lane) {
    const auto index = static_cast<std::size_t>(lane);
    EXPECT_EQ(result.o[index], (229.0f + static_cast<float>(lane)) / 2);
    EXPECT_NEAR(result.lse[index], std::log(230.0 + lane), 1e-6);
  }
}

TEST_P(KernelContract, TileWithoutAnyKeyIsEmpty) {
  for (const auto& ranges :
       {std::vector<Range>{}, std::vector<Range>{{0, 250}}, std::vector<Range>{{120, 120}}}) {
    Case test(shape_of(5, 7), kernel().lanes, 250);
    std::mt19937_64 random(3);
    test.fill(random);
    std::fill(test.hi.begin(), test.hi.end(), 0);
    const Result result = run(kernel(), test, ranges);
    for (float o : result.o) EXPECT_TRUE(same_bits(o, 0.0f));
    for (float lse : result.lse) EXPECT_EQ(lse, -std::numeric_limits<float>::infinity());
  }
}

// An empty interval may have any bounds.
TEST_P(KernelContract, EmptyIntervalsOfEveryForm) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max(),
                         kLeast = std::numeric_limits<std::int64_t>::min();
  const std::pair<std::int64_t, std::int64_t> empty[] = {
      {0, 0}, {150, 150}, {90, 10}, {kMost, kLeast}, {500, 900}};
  Case test(shape_of(4, 1), 5, 150);
  GuardedBytes state(kernel().state_bytes(test.shape), 0), scratch(kernel().scratch_bytes(test.shape), 0);
  std::mt19937_64 random(6);
  test.fill(random);
  for (const auto& [low, high] : empty) {
    const std::int64_t lo[5] = {low, 0, 130, low, low}, hi[5] = {high, 150, 140, high, high};
    float o[5], lse[5];
    kernel().begin(test.shape, state.data());
    kernel().attend(test.shape, {test.q.bytes.data(), 4, 4, 0, 5, false},
                    {test.k.bytes.data(), 4, test.v.bytes.data(), 1, 0, 150, lo, hi, false}, state.data(),
                    scratch.data());
    kernel().finalize(test.shape, {o, 1, 1, lse, 1, 1, 0, 5}, state.data());
    for (const int lane : {0, 3, 4}) {
      EXPECT_TRUE(same_bits(o[lane], 0.0f)) << low << " " << high;
      EXPECT_EQ(lse[lane], -std::numeric_limits<float>::infinity()) << low << " " << high;
    }
    test.lo = {0, 0, 130, 0, 0}, test.hi = {0, 150, 140, 0, 0};
    EXPECT_EQ("", beyond_limit(test, {{o, o + 5}, {lse, lse + 5}, ""})) << low << " " << high;
  }
}

TEST_P(KernelContract, MissingLseIsNotWritten) {
  Case test(shape_of(4, 4), 3, 10);
  std::mt19937_64 random(5);
  test.fill(random);
  GuardedBytes state(kernel().state_bytes(test.shape), 0), scratch(kernel().scratch_bytes(test.shape), 0);
  GuardedBytes o(std::size_t{3} * 4 * sizeof(float), 0);
  kernel().begin(test.shape, state.data());
  attend_range(kernel(), test, {0, 10}, false, state.data(), scratch.data());
  kernel().finalize(test.shape, {o.data(), 4, 4, nullptr, 0, 0, 0, 3}, state.data());
  const Result expected = run(kernel(), test);
  for (std::size_t i = 0; i < expected.o.size(); ++i) {
    EXPECT_TRUE(same_bits(read(o.data(), DType::f32, static_cast<std::int64_t>(i)), expected.o[i]));
  }
}

// Neither what scratch and state held before, nor a split at multiples of keys_per_task, changes a bit.
TEST_P(KernelContract, ScratchAndTaskSplitsDoNotChangeABit) {
  const std::int64_t step = kernel().keys_per_task;
  Case test(shape_of(2, 3), 3, 2 * step + 77);
  std::mt19937_64 random(11);
  test.fill(random);
  test.lo = {0, 50, step - 1};
  test.hi = {test.keys, step + 1, test.keys};
  const Result whole = run(kernel(), test, {{0, test.keys}}, 0xff);
  const Result split = run(kernel(), test, {{0, step}, {step, 2 * step}, {2 * step, test.keys}}, 0x00);
  EXPECT_EQ("", whole.broken);
  for (std::size_t i = 0; i < whole.o.size(); ++i) EXPECT_TRUE(same_bits(whole.o[i], split.o[i]));
  for (std::size_t i = 0; i < whole.lse.size(); ++i) EXPECT_TRUE(same_bits(whole.lse[i], split.lse[i]));
}

// Scores of +-10000, where exp of anything but a difference overflows.
TEST_P(KernelContract, HugeScores) {
  for (const double scale : {1.0, 1e4}) {
    Case test(shape_of(3, 5), kernel().lanes, 260);
    std::mt19937_64 random(21);
    test.fill(random, 1, 1);
    test.shape.scale = scale;
    for (int lane = 0; lane < test.lanes; ++lane)
      test.q.set(lane, 0, 0, lane % 2 == 0 ? 1e4f / static_cast<float>(scale) : -1e4f);
    for (const auto& ranges : {std::vector<Range>{{0, 260}}, std::vector<Range>{{130, 260}, {0, 130}}}) {
      EXPECT_EQ("", beyond_limit(test, run(kernel(), test, ranges)));
    }
  }
}

// Scores far below any exponent still count when they are all that a row has.
TEST_P(KernelContract, RowsOfVeryLowScores) {
  Case test(shape_of(1, 2), 2, 4);
  test.shape.scale = 1;
  for (int lane = 0; lane < 2; ++lane) test.q.set(lane, 0, 0, -1e19f);
  for (std::int64_t j = 0; j < 4; ++j) {
    test.k.set(j, 0, 0, 1e18f);
    test.v.set(j, 0, 0, static_cast<float>(j)), test.v.set(j, 0, 1, -1);
  }
  const Result result = run(kernel(), test);
  EXPECT_FLOAT_EQ(result.o[0], 1.5f);
  EXPECT_FLOAT_EQ(result.o[3], -1.0f);
  EXPECT_FLOAT_EQ(result.lse[0], -1e37f);
}

// Probabilities across the whole range of floats, denormals included, with and without flushing them.
TEST_P(KernelContract, ScoresThatSpreadIntoDenormals) {
  Case test(shape_of(1, 4), kernel().lanes, 240);
  std::mt19937_64 random(31);
  test.fill(random);
  test.shape.scale = 1;
  for (int lane = 0; lane < test.lanes; ++lane) test.q.set(lane, 0, 0, 1);
  for (std::int64_t j = 0; j < test.keys; ++j) test.k.set(j, 0, 0, -static_cast<float>(j) * 0.5f);
  EXPECT_EQ("", beyond_limit(test, run(kernel(), test)));
  const DenormalsAreZero guard;
  EXPECT_EQ("", beyond_limit(test, run(kernel(), test)));
}

// Rows of one tile do not share anything: a lane's result is the same whatever its neighbours' queries are.
TEST_P(KernelContract, NeighboursDoNotMatter) {
  std::mt19937_64 random(41);
  Case test(shape_of(20, 20), kernel().lanes, 130);
  test.fill(random);
  set_intervals(test, Intervals::random, random);
  const Result before = run(kernel(), test);
  for (int lane = 1; lane < test.lanes; lane += 2) {
    for (std::int64_t d = 0; d < 20; ++d) {
      test.q.set(lane, 0, d, lane % 4 == 1 ? std::nanf("") : std::numeric_limits<float>::infinity());
    }
  }
  const Result after = run(kernel(), test);
  for (int lane = 0; lane < test.lanes; lane += 2) {
    const auto index = static_cast<std::size_t>(lane);
    EXPECT_TRUE(same_bits(before.lse[index], after.lse[index]));
    for (std::size_t d = 0; d < 20; ++d)
      EXPECT_TRUE(same_bits(before.o[20 * index + d], after.o[20 * index + d]));
  }
}

}  // namespace
}  // namespace ringattn::kernels::test
