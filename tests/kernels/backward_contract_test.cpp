// The contract of kernels::Backward, over every kernel: random tiles against fp64, memory, order, state.
#include <gtest/gtest.h>

#include <sstream>

#include "base/denormals.h"
#include "tests/kernels/backward_case.h"
#include "tests/kernels/every_kernel.h"

namespace ringattn::kernels::test {
namespace {

class BackwardContract : public EveryKernel {};
RINGATTN_FOR_EVERY_KERNEL(BackwardContract);

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Shape shape_of(std::int64_t dim_qk, std::int64_t dim_v, DType dtype = DType::f32, std::int64_t group = 1) {
  return {dim_qk, dim_v, group, dtype, dtype, 1 / std::sqrt(static_cast<double>(dim_qk)), false, dtype};
}

template <typename T>
const T& pick(std::mt19937_64& random, const std::vector<T>& from) {
  return from[random() % from.size()];
}

enum class Intervals { full, causal, window, random, few, empty };

void set_intervals(BackwardCase& test, Intervals kind, std::mt19937_64& random) {
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
    if (kind == Intervals::empty) high = 0;
    low = std::clamp<std::int64_t>(low, 0, keys);
    high = std::clamp<std::int64_t>(high, low, keys);
    test.lo[static_cast<std::size_t>(lane)] = low;
    test.hi[static_cast<std::size_t>(lane)] = high;
  }
}

std::vector<Range> random_ranges(std::int64_t keys, std::mt19937_64& random) {
  std::vector<std::int64_t> at{0, keys};
  for (int cuts = static_cast<int>(random() % 4); cuts > 0; --cuts)
    at.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(keys + 1)));
  std::sort(at.begin(), at.end());
  std::vector<Range> ranges;
  for (std::size_t i = 1; i < at.size(); ++i) ranges.push_back({at[i - 1], at[i], random() % 2 == 0});
  std::shuffle(ranges.begin(), ranges.end(), random);
  return ranges;
}

// Random tiles: every choice from the seed.
std::string random_case_fails(const Kernel& kernel, std::uint64_t seed, std::int64_t dim_qk,
                              std::int64_t dim_v) {
  std::mt19937_64 random(seed * 7919 + 17);
  Shape shape = shape_of(dim_qk, dim_v, pick(random, std::vector{DType::f32, DType::f16, DType::bf16}),
                         pick(random, std::vector<std::int64_t>{1, 1, 3, 4}));
  if (random() % 2 == 0) shape.dtype_out = DType::f32;
  if (random() % 2 == 0) shape.dtype_grad = DType::f32;
  const int lanes = pick(random, std::vector{1, 7, 16, 64, 100, 128, 150});
  const std::int64_t keys = pick(random, std::vector<std::int64_t>{1, 5, 6, 7, 64, 119, 120, 121, 240, 250});
  const Layout layout{random() % 2 == 0, pick(random, std::vector<std::int64_t>{0, 1, 3, 16}), random() % 4};
  BackwardCase test(shape, lanes, keys, static_cast<std::int64_t>(random() % 20), layout);
  const auto kind = static_cast<Intervals>(random() % 6);
  set_intervals(test, kind, random);
  test.fill_backward(random, pick(random, std::vector<double>{0, 1, 1, 8}));
  test.has_d_lse = random() % 2 == 0;
  std::ostringstream text;
  text << "seed " << seed << ": dims " << dim_qk << "/" << dim_v << " dtype " << static_cast<int>(shape.dtype)
       << " group " << shape.group << " lanes " << lanes << " keys " << keys << " intervals "
       << static_cast<int>(kind) << ": ";
  const int tile_lanes = pick(random, std::vector{0, 0, 5, 64, 100});
  const Gradients result =
      run_backward(kernel, test, {random_ranges(keys, random), tile_lanes, random() % 2 == 0});
  if (!result.broken.empty()) return text.str() + result.broken;
  const std::string error = beyond_limit(test, result);
  return error.empty() ? "" : text.str() + error;
}

TEST_P(BackwardContract, RandomTilesAreWithinTheLimit) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const auto dim_qk = static_cast<std::int64_t>(1 + random() % 100),
               dim_v = static_cast<std::int64_t>(1 + random() % 100);
    EXPECT_EQ("", random_case_fails(kernel(), seed, dim_qk, dim_v));
  }
}

TEST_P(BackwardContract, NamedHeadDimsAreWithinTheLimit) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> dims = {
      {1, 1},   {3, 3},   {8, 8},     {16, 16},   {24, 24},   {40, 40}, {64, 64},
      {80, 80}, {96, 96}, {128, 128}, {192, 128}, {576, 512}, {1, 576}, {575, 1}};
  std::uint64_t seed = 1000;
  for (const auto& [dim_qk, dim_v] : dims) {
    for (int repeat = 0; repeat < 2; ++repeat)
      EXPECT_EQ("", random_case_fails(kernel(), ++seed, dim_qk, dim_v));
  }
}

// The largest tile of the largest head dims.
TEST_P(BackwardContract, LargestTile) {
  std::mt19937_64 random(5);
  BackwardCase test(shape_of(576, 576), kernel().backward.lanes, 130);
  test.fill_backward(random);
  const Gradients result = run_backward(kernel(), test);
  EXPECT_EQ("", result.broken);
  EXPECT_EQ("", beyond_limit(test, result));
}

// Register tiles take 1 to 6 rows of keys and of channels, in every width of panel.
TEST_P(BackwardContract, EveryCountOfKeysChannelsAndLanes) {
  for (int count = 1; count <= 20; ++count) {
    for (int lanes = 1; lanes <= kernel().backward.lanes; lanes += lanes < 20 ? 3 : 17) {
      std::mt19937_64 random(static_cast<std::uint64_t>(100 * count + lanes));
      BackwardCase test(shape_of(21 - count, count), lanes, count);
      test.fill_backward(random);
      const Gradients result = run_backward(kernel(), test);
      EXPECT_EQ("", result.broken);
      EXPECT_EQ("", beyond_limit(test, result)) << "count " << count << " lanes " << lanes;
    }
  }
}

// With scores 0 and n keys: P = 1/n, and O is the mean of V. All numbers are powers of two or small integers.
TEST_P(BackwardContract, UniformProbabilitiesAreExact) {
  BackwardCase test(shape_of(1, 1), 4, 64);
  std::mt19937_64 random(1);
  test.fill_backward(random);
  test.has_d_lse = false;
  for (int lane = 0; lane < 4; ++lane) {
    test.q.set(lane, 0, 0, 0);
    test.o.set(lane, 0, 0, 0);
    test.d_o.set(lane, 0, 0, static_cast<float>(lane));
    test.lse.set(lane, 0, 0, std::log(64.0f));
  }
  for (std::int64_t j = 0; j < 64; ++j) {
    test.k.set(j, 0, 0, static_cast<float>(j));
    test.v.set(j, 0, 0, j % 2 == 0 ? 1.0f : -1.0f);
  }
  const Gradients result = run_backward(kernel(), test);
  for (std::size_t j = 0; j < 64; ++j) {
    EXPECT_EQ(result.d_k[j], 0.0f);
    EXPECT_NEAR(result.d_v[j], 6.0 / 64, 1e-7);
  }
  for (std::size_t lane = 0; lane < 4; ++lane)  // the sum of j over even less that over odd keys is -32
    EXPECT_NEAR(result.d_q[lane], static_cast<double>(lane) * -32.0 / 64, 1e-5);
}

// An empty interval may have any bounds.
TEST_P(BackwardContract, EmptyIntervalsOfEveryForm) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max(),
                         kLeast = std::numeric_limits<std::int64_t>::min();
  const std::pair<std::int64_t, std::int64_t> empty[] = {
      {0, 0}, {150, 150}, {90, 10}, {kMost, kLeast}, {500, 900}};
  BackwardCase test(shape_of(4, 4), 3, 150);
  std::mt19937_64 random(6);
  test.lo = {0, 0, 130}, test.hi = {0, 150, 140};
  test.fill_backward(random);
  const Backward& backward = kernel().backward;
  GuardedBytes state(backward.state_bytes(test.shape), 0), scratch(backward.scratch_bytes(test.shape), 0);
  const auto rows = [](const Array& array) {
    return GradientTile::Rows{array.bytes.data(), array.row_stride, array.head_stride};
  };
  for (const float lse : {0.0f, -kInfinity}) {
    test.lse.set(0, 0, 0, lse);
    const GradientTile tile{
        rows(test.q), rows(test.o), rows(test.d_o), rows(test.lse), rows(test.d_lse), 0, 3, false};
    for (const auto& [low, high] : empty) {
      const std::int64_t lo[3] = {low, 0, 130}, hi[3] = {high, 150, 140};
      Gradients result{std::vector<float>(12), std::vector<float>(600), std::vector<float>(600), ""};
      backward.begin(test.shape, tile, state.data());
      backward.attend(test.shape, tile,
                      {test.k.bytes.data(), 4, test.v.bytes.data(), 4, 0, 150, lo, hi, false},
                      {result.d_k.data(), result.d_v.data()}, state.data(), scratch.data());
      backward.finalize(test.shape, {result.d_q.data(), 4, 4, 0, 3, 3}, state.data());
      EXPECT_EQ("", beyond_limit(test, result)) << low << " " << high;
    }
  }
}

// Lanes beyond the real ones are padding: zero, whatever was there, in every type.
TEST_P(BackwardContract, PaddingBecomesZero) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const int real : {0, 1, 5, 8}) {
      BackwardCase test(shape_of(5, 3, dtype, 3), 8, 20, 2);
      std::mt19937_64 random(9);
      test.fill_backward(random);
      GuardedBytes state(kernel().backward.state_bytes(test.shape), 0);
      state.fill(0xff);
      test.lanes = real;  // Case of fewer lanes, in the same memory
      const auto rows = [](const Array& array) {
        return GradientTile::Rows{array.bytes.data(), array.row_stride, array.head_stride};
      };
      const GradientTile tile{rows(test.q),     rows(test.o), rows(test.d_o), rows(test.lse),
                              rows(test.d_lse), test.first,   real,           false};
      if (real > 0) kernel().backward.begin(test.shape, tile, state.data());
      Array d_q(test.q.rows, 3, 5, dtype, true, 2, 1);
      d_q.forbid_gaps();
      kernel().backward.finalize(
          test.shape, {d_q.bytes.data(), d_q.row_stride, d_q.head_stride, test.first, 8, real}, state.data());
      d_q.bytes.allow_all();
      EXPECT_TRUE(d_q.bytes.guards_intact());
      for (int lane = 0; lane < 8; ++lane) {
        for (std::int64_t d = 0; d < 5; ++d)
          EXPECT_TRUE(same_bits(d_q.get(test.row_of(lane), test.head_of(lane), d), 0.0f))
              << real << " " << lane;
      }
    }
  }
}

// Neither what scratch and states held, nor `packed`, nor whether ranges or tiles come first changes a bit.
TEST_P(BackwardContract, ScratchAndOrderOfTasksDoNotChangeABit) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::mt19937_64 random(11);
    const std::int64_t step = kernel().backward.keys_per_task;
    BackwardCase test(shape_of(18, 9, dtype, 3), 2 * kernel().backward.lanes + 7, 2 * step + 77, 2);
    set_intervals(test, Intervals::window, random);
    test.fill_backward(random);
    const std::vector<Range> ranges{{0, step}, {step, 2 * step}, {2 * step, test.keys}};
    const Gradients first = run_backward(kernel(), test, {ranges, 0, true, 0xff});
    EXPECT_EQ("", first.broken);
    EXPECT_TRUE(same_bits(first, run_backward(kernel(), test, {ranges, 0, false, 0x00})));
    EXPECT_TRUE(same_bits(first, run_backward(kernel(), test, {ranges, 0, true, 0x3f})));
  }
}

// A range reaches the key gradients of its own keys and no others, and those as if it were alone.
TEST_P(BackwardContract, RangesAreSeparate) {
  std::mt19937_64 random(12);
  const std::int64_t step = kernel().backward.keys_per_task;
  const auto keys = static_cast<std::ptrdiff_t>(step);
  BackwardCase test(shape_of(10, 6), kernel().backward.lanes, 2 * step);
  set_intervals(test, Intervals::random, random);
  test.fill_backward(random);
  const Gradients both = run_backward(kernel(), test, {{{0, step}, {step, 2 * step}}});
  const Gradients low = run_backward(kernel(), test, {{{0, step}}});
  const Gradients high = run_backward(kernel(), test, {{{step, 2 * step, true}}});
  EXPECT_EQ("", beyond_limit(test, both));
  const auto check = [&](const std::vector<float>& all, const std::vector<float>& first,
                         const std::vector<float>& second, std::ptrdiff_t half) {
    const auto zero = [](float x) { return same_bits(x, 0.0f); };
    EXPECT_TRUE(std::equal(all.begin(), all.begin() + half, first.begin()));
    EXPECT_TRUE(std::equal(all.begin() + half, all.end(), second.begin() + half));
    EXPECT_TRUE(std::all_of(first.begin() + half, first.end(), zero));
    EXPECT_TRUE(std::all_of(second.begin(), second.begin() + half, zero));
  };
  check(both.d_k, low.d_k, high.d_k, 10 * keys);
  check(both.d_v, low.d_v, high.d_v, 6 * keys);
}

// An lse of -inf of a lane that sees keys is that of a row whose scores are all -inf: NaN in its dQ and in what it sees,
// nothing anywhere else. Of a lane that sees none it is the rule, and gives nothing.
TEST_P(BackwardContract, LanesWithoutLseAreNaNWhereTheySee) {
  std::mt19937_64 random(13);
  const int lanes = std::min(kernel().backward.lanes, 70);
  BackwardCase test(shape_of(20, 17), lanes, 250);
  set_intervals(test, Intervals::random, random);
  test.fill_backward(random);
  test.lo[0] = test.hi[0] = 0;
  test.lse.set(0, 0, 0, -kInfinity);
  const Gradients before = run_backward(kernel(), test);
  const int bad = 4;
  test.lo[bad] = 100, test.hi[bad] = 130;
  const Gradients whole = run_backward(kernel(), test);
  test.lse.set(bad, 0, 0, -kInfinity);
  const Gradients result = run_backward(kernel(), test);
  for (std::size_t d = 0; d < 20; ++d) {
    EXPECT_TRUE(same_bits(before.d_q[d], 0.0f)) << "sees no key";
    EXPECT_FALSE(std::isfinite(result.d_q[bad * 20 + d]));
  }
  for (std::size_t j = 0; j < 250; ++j) {
    const bool sees = j >= 100 && j < 130;
    EXPECT_EQ(std::isfinite(result.d_k[j * 20]), !sees) << j;
    EXPECT_EQ(std::isfinite(result.d_v[j * 17]), !sees) << j;
    if (sees) continue;
    EXPECT_TRUE(same_bits(result.d_k[j * 20], whole.d_k[j * 20])) << j;
  }
  for (int lane = 0; lane < lanes; ++lane) {
    if (lane == bad) continue;
    EXPECT_TRUE(same_bits(result.d_q[lane * 20], whole.d_q[lane * 20])) << lane;
  }
}

// Probabilities across the whole range of floats, denormals included, with and without flushing them.
TEST_P(BackwardContract, ScoresThatSpreadIntoDenormals) {
  BackwardCase test(shape_of(1, 4), kernel().backward.lanes, 240);
  std::mt19937_64 random(31);
  test.shape.scale = 20;
  test.fill_backward(random);
  EXPECT_EQ("", beyond_limit(test, run_backward(kernel(), test)));
  const DenormalsAreZero guard;
  EXPECT_EQ("", beyond_limit(test, run_backward(kernel(), test)));
}

// A caller's lse that does not belong to the scores: what overflows becomes non-finite and does not wrap.
TEST_P(BackwardContract, WrongLseOverflows) {
  for (const float lse : {-100.0f, -1000.0f, -1e30f}) {
    BackwardCase test(shape_of(3, 3), 2, 10);
    std::mt19937_64 random(32);
    test.fill_backward(random);
    test.lse.set(0, 0, 0, lse);
    test.hi[1] = 0;
    const Gradients result = run_backward(kernel(), test);
    for (const float d_v : result.d_v) EXPECT_FALSE(std::isfinite(d_v));
    for (const float d_q : {result.d_q[0], result.d_q[1], result.d_q[2]}) EXPECT_FALSE(std::isfinite(d_q));
  }
}

// Lanes of one tile do not share anything: a lane's dQ is the same whatever its neighbours are.
TEST_P(BackwardContract, NeighboursDoNotMatterToQueries) {
  std::mt19937_64 random(41);
  BackwardCase test(shape_of(20, 20), kernel().backward.lanes, 130);
  set_intervals(test, Intervals::random, random);
  test.fill_backward(random);
  const Gradients before = run_backward(kernel(), test);
  for (int lane = 1; lane < test.lanes; lane += 2) {
    for (std::int64_t d = 0; d < 20; ++d) test.q.set(lane, 0, d, lane % 4 == 1 ? std::nanf("") : kInfinity);
  }
  const Gradients after = run_backward(kernel(), test);
  for (int lane = 0; lane < test.lanes; lane += 2) {
    for (std::size_t d = 0; d < 20; ++d) {
      const std::size_t index = 20 * static_cast<std::size_t>(lane) + d;
      ASSERT_TRUE(same_bits(before.d_q[index], after.d_q[index])) << lane;
    }
  }
}

}  // namespace
}  // namespace ringattn::kernels::test
