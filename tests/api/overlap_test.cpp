// Whether two strided tensors share a byte, against every byte of both marked one by one.
#include "api/overlap.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/random_data.h"

namespace ringattn::api {
namespace {

TensorView view(std::byte* data, std::int64_t element, const std::int64_t (&shape)[4],
                const std::int64_t (&stride)[4]) {
  TensorView t;
  t.data = data;
  t.element = element;
  std::copy(shape, shape + 4, t.shape);
  std::copy(stride, stride + 4, t.stride);
  return t;
}

template <typename Visit>
void each_byte(const TensorView& t, Visit visit) {
  for (std::int64_t b = 0; b < t.shape[0]; ++b)
    for (std::int64_t s = 0; s < t.shape[1]; ++s)
      for (std::int64_t h = 0; h < t.shape[2]; ++h)
        for (std::int64_t d = 0; d < t.shape[3]; ++d)
          for (std::int64_t byte = 0; byte < t.element; ++byte)
            visit(t.at(b, s, h) + d * t.stride[3] * t.element + byte);
}

bool share_a_byte(const TensorView& a, const TensorView& b, std::vector<char>& marks, const std::byte* base) {
  std::fill(marks.begin(), marks.end(), 0);
  each_byte(a, [&](const std::byte* at) { marks[static_cast<std::size_t>(at - base)] = 1; });
  bool shared = false;
  each_byte(b,
            [&](const std::byte* at) { shared = shared || marks[static_cast<std::size_t>(at - base)] != 0; });
  return shared;
}

// Half of them slices of one tensor, as a caller would cut it, the others of any strides.
TEST(ApiOverlap, IsWhatTheBytesSay) {
  std::vector<std::byte> memory(1 << 14);
  std::vector<char> marks(memory.size());
  support::Random random(7);
  int together = 0, apart_within = 0;
  for (int i = 0; i < 20'000; ++i) {
    TensorView pair[2];
    const bool slices = i % 2 == 0;
    std::int64_t whole[4];
    for (std::int64_t& size : whole) size = 1 + random.below(5);
    for (TensorView& t : pair) {
      std::int64_t shape[4], stride[4] = {whole[1] * whole[2] * whole[3], whole[2] * whole[3], whole[3], 1};
      std::int64_t first = 0;
      for (int axis = 0; axis < 4; ++axis) {
        const std::int64_t from = random.below(whole[axis]);
        shape[axis] = 1 + random.below(whole[axis] - from);
        first += from * stride[axis];
        if (!slices && axis < 3) stride[axis] = random.below(60);
      }
      t = view(memory.data() + (slices ? first * 4 : random.below(500)),
               slices || random.below(2) == 0 ? 4 : 2, shape, stride);
    }
    const bool expected = share_a_byte(pair[0], pair[1], marks, memory.data());
    ASSERT_EQ(overlap(pair[0], pair[1]), expected) << i;
    ASSERT_EQ(overlap(pair[1], pair[0]), expected) << i;
    together += expected ? 1 : 0;
    const bool ranges_cross = pair[0].data < pair[1].data + bytes_spanned(pair[1]) &&
                              pair[1].data < pair[0].data + bytes_spanned(pair[0]);
    apart_within += !expected && ranges_cross ? 1 : 0;
  }
  EXPECT_GT(together, 2000);
  EXPECT_GT(apart_within, 2000) << "these are what a comparison of first and last bytes cannot tell";
}

TEST(ApiOverlap, OfMoreElementsThanAnyLoopCouldVisit) {
  std::byte* const base = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);
  const std::int64_t seq = std::int64_t{1} << 24, heads = 64, dim = 128, pitch = heads * dim;
  const auto ranks_part = [&](std::int64_t from, std::int64_t rows) {
    return view(base + from * pitch * 2, 2, {8, rows, heads, dim}, {seq * pitch, pitch, dim, 1});
  };
  EXPECT_FALSE(overlap(ranks_part(0, seq / 2), ranks_part(seq / 2, seq / 2)));
  EXPECT_TRUE(overlap(ranks_part(0, seq / 2 + 1), ranks_part(seq / 2, seq / 2)));
  const auto every_second = [&](std::int64_t from) {
    return view(base + from * pitch * 2, 2, {8, seq / 2, heads, dim}, {seq * pitch, 2 * pitch, dim, 1});
  };
  EXPECT_FALSE(overlap(every_second(0), every_second(1)));
  EXPECT_TRUE(overlap(every_second(0), ranks_part(7, 2)));
}

TEST(ApiOverlap, NothingIsApartFromAll) {
  std::byte memory[64];
  const TensorView all = view(memory, 1, {1, 1, 1, 64}, {0, 0, 0, 1});
  EXPECT_FALSE(overlap(all, view(memory, 1, {1, 0, 1, 64}, {0, 0, 0, 1})));
  EXPECT_TRUE(overlap(all, view(memory + 63, 1, {9, 9, 1, 1}, {0, 0, 0, 1}))) << "stride 0";
  EXPECT_FALSE(overlap(all, view(memory + 64, 1, {9, 9, 1, 1}, {0, 0, 0, 1})));
}

}  // namespace
}  // namespace ringattn::api
