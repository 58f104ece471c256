// Sharding helpers: every token lands on one rank and comes back, for every dtype, partition and scope.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/ring/host_ring.h"

namespace ringattn::support {
namespace {

const char* const kProblems[] = {"n=23 dim=8 ranks=1",
                                 "n=23 dim=8 ranks=3",
                                 "n=23 dim=8 partition=striped ranks=4",
                                 "n=23 dim=8 partition=striped:3 ranks=4",
                                 "n=23 dim=8 partition=zigzag ranks=3",
                                 "n=23 dim=8 partition=explicit:random ranks=3 seed=4",
                                 "n=2 dim=8 partition=zigzag ranks=5",
                                 "q=9 k=23 dim=8 partition=zigzag ranks=3",
                                 "n=23 dim=8 docs=5,0,9 scope=document partition=zigzag ranks=3",
                                 "n=23 dim=8 docs=5,9 scope=call partition=striped ranks=3",
                                 "n=23 batch=2 dim=8 docs=5,19 partition=zigzag ranks=3",
                                 "n=23 batch=2 dim=8 docs=5,19 scope=call ranks=3"};

template <typename T>
ringattn_tensor dense(ringattn_dtype dtype, std::vector<T>& data, std::int64_t batch, std::int64_t seq,
                      std::int64_t heads, std::int64_t dim) {
  data.assign(static_cast<std::size_t>(batch * seq * heads * dim), T());
  ringattn_tensor tensor = RINGATTN_STRUCT(ringattn_tensor);
  tensor.dtype = dtype;
  tensor.data = data.data();
  const std::int64_t shape[] = {batch, seq, heads, dim};
  std::copy_n(shape, 4, tensor.shape);
  return tensor;
}

template <typename T>
void round_trip(ringattn_dtype dtype, std::int64_t heads, std::int64_t dim) {
  const HostContext context(1);
  for (const char* line : kProblems) {
    const ProblemLine problem = parse_line(line);
    HostRing ring(context, line);
    for (const std::int32_t axis : {RINGATTN_AXIS_QUERY, RINGATTN_AXIS_KEY}) {
      const std::int64_t seq = axis == RINGATTN_AXIS_QUERY ? problem.queries : problem.keys;
      std::vector<T> global, back, local;
      const ringattn_tensor from = dense(dtype, global, problem.batch, seq, heads, dim);
      std::iota(global.begin(), global.end(), static_cast<T>(1));
      const ringattn_tensor to = dense(dtype, back, problem.batch, seq, heads, dim);
      const auto row_bytes = static_cast<std::size_t>(heads * dim);
      std::vector<std::vector<char>> owned(static_cast<std::size_t>(problem.batch),
                                           std::vector<char>(static_cast<std::size_t>(seq), 0));
      for (int rank = 0; rank < problem.ranks; ++rank) {
        const ringattn_tensor shard = dense(dtype, local, problem.batch, seq + 2, heads, dim);
        local.assign(local.size(), static_cast<T>(-7));
        ASSERT_EQ(ringattn_shard(ring.plan(rank), axis, rank, ring.call(), &from, &shard), RINGATTN_OK)
            << ringattn_last_error();
        ASSERT_EQ(ringattn_unshard(ring.plan(rank), axis, rank, ring.call(), &shard, &to), RINGATTN_OK)
            << ringattn_last_error();
        for (std::int64_t b = 0; b < problem.batch; ++b) {
          std::int64_t length = -1;
          ASSERT_EQ(ringattn_plan_local_length(ring.plan(0), axis, rank, b, ring.call(), &length),
                    RINGATTN_OK);
          std::vector<std::int64_t> index(static_cast<std::size_t>(length) + 1, -5), position = index;
          std::uint64_t count = 99;
          ASSERT_EQ(ringattn_plan_positions(ring.plan(0), axis, rank, b, ring.call(), index.data(),
                                            position.data(), static_cast<std::uint64_t>(length), &count),
                    RINGATTN_OK);
          ASSERT_EQ(count, static_cast<std::uint64_t>(length));
          EXPECT_EQ(index.back(), -5);
          for (std::int64_t i = 0; i < seq + 2; ++i) {
            const T* row = &local[static_cast<std::size_t>((b * (seq + 2) + i)) * row_bytes];
            if (i >= length) {
              EXPECT_EQ(row[0], static_cast<T>(-7)) << "a row beyond the shard was written";
              continue;
            }
            const auto at = static_cast<std::size_t>(index[static_cast<std::size_t>(i)]);
            EXPECT_EQ(owned[static_cast<std::size_t>(b)][at]++, 0) << line << ": two ranks own a token";
            EXPECT_EQ(std::memcmp(row, &global[(static_cast<std::size_t>(b * seq) + at) * row_bytes],
                                  row_bytes * sizeof(T)),
                      0)
                << line;
          }
        }
      }
      for (std::int64_t b = 0; b < problem.batch; ++b) {
        for (std::int64_t s = 0; s < seq; ++s) {
          const std::size_t at = static_cast<std::size_t>(b * seq + s) * row_bytes;
          const bool is_owned = owned[static_cast<std::size_t>(b)][static_cast<std::size_t>(s)] != 0;
          EXPECT_EQ(back[at], is_owned ? global[at] : T())
              << line << " axis " << axis << " row " << b << " token " << s;
        }
      }
    }
  }
}

TEST(ApiShard, RoundTripOfI32) { round_trip<std::int32_t>(RINGATTN_DTYPE_I32, 1, 1); }
TEST(ApiShard, RoundTripOfI64) { round_trip<std::int64_t>(RINGATTN_DTYPE_I64, 1, 2); }
TEST(ApiShard, RoundTripOfF32) { round_trip<float>(RINGATTN_DTYPE_F32, 3, 5); }
TEST(ApiShard, RoundTripOfSixteenBits) { round_trip<std::int16_t>(RINGATTN_DTYPE_F16, 2, 3); }

TEST(ApiShard, PositionsTellTheQueryOffset) {
  const HostContext context(1);
  HostRing ring(context, "q=6 k=20 dim=8 mask=causal ranks=2");
  std::int64_t index[3], position[3];
  std::uint64_t count = 0;
  ASSERT_EQ(
      ringattn_plan_positions(ring.plan(0), RINGATTN_AXIS_QUERY, 1, 0, nullptr, index, position, 3, &count),
      RINGATTN_OK);
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(index[i], 3 + i);
    EXPECT_EQ(position[i], 14 + 3 + i) << "bottom-right";
  }
}

TEST(ApiShard, TooLittleCapacityWritesNothing) {
  const HostContext context(1);
  HostRing ring(context, "n=20 dim=8 ranks=2");
  std::int64_t index[10], position[10];
  std::fill_n(index, 10, -1);
  std::fill_n(position, 10, -1);
  std::uint64_t count = 0;
  EXPECT_EQ(
      ringattn_plan_positions(ring.plan(0), RINGATTN_AXIS_KEY, 0, 0, nullptr, index, position, 9, &count),
      RINGATTN_ERR_INVALID_ARGUMENT);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(index[i] == -1 && position[i] == -1);
  EXPECT_EQ(
      ringattn_plan_positions(ring.plan(0), RINGATTN_AXIS_KEY, 0, 0, nullptr, nullptr, nullptr, 0, &count),
      RINGATTN_OK);
  EXPECT_EQ(count, 10u);
  EXPECT_EQ(
      ringattn_plan_positions(ring.plan(0), RINGATTN_AXIS_KEY, 0, 0, nullptr, nullptr, position, 10, &count),
      RINGATTN_OK);
  EXPECT_EQ(position[9], 9);
  EXPECT_EQ(index[0], -1);
}

TEST(ApiShard, BadTensorsAreRefused) {
  const HostContext context(1);
  HostRing ring(context, "n=20 dim=8 ranks=2");
  std::vector<float> a, b;
  const ringattn_tensor global = dense(RINGATTN_DTYPE_F32, a, 1, 20, 2, 3),
                        local = dense(RINGATTN_DTYPE_F32, b, 1, 10, 2, 3);
  const auto refused = [&](const char* word, ringattn_tensor from, ringattn_tensor to) {
    EXPECT_EQ(ringattn_shard(ring.plan(0), RINGATTN_AXIS_KEY, 0, nullptr, &from, &to),
              RINGATTN_ERR_INVALID_ARGUMENT)
        << word;
    EXPECT_NE(std::string(ringattn_last_error()).find(word), std::string::npos) << ringattn_last_error();
  };
  ringattn_tensor bad = global;
  bad.shape[1] = 19;
  refused("global.shape[1] (seq): 19", bad, local);
  bad = local;
  bad.shape[1] = 9;
  refused("local.shape[1] (seq): 9", global, bad);
  bad = local;
  bad.shape[2] = 1;
  refused("local.shape[2] (head): 1", global, bad);
  bad = local;
  bad.dtype = RINGATTN_DTYPE_I32;
  refused("local.dtype: 4", global, bad);
  bad = local;
  bad.data = a.data() + 5;
  refused("overlaps global", global, bad);
  bad = global;
  bad.dtype = 6;
  refused("global.dtype: 6", bad, local);
  bad = global;
  bad.shape[0] = 2;
  refused("global.shape[0] (batch): 2", bad, local);
}

}  // namespace
}  // namespace ringattn::support
