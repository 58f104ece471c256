// Zeros that mean what they say (D5): no token, no key, no row, no document, a window of 0, a stride of 0,
// ranks with nothing; forward and backward.
#include <limits>

#include "tests/api/wrong_use_ring.h"

namespace ringattn::wrong_use {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
constexpr std::int32_t kPartitions[] = {RINGATTN_PARTITION_CONTIGUOUS, RINGATTN_PARTITION_STRIPED,
                                        RINGATTN_PARTITION_ZIGZAG};

void expect_value(Ring& ring, int id, float value) {
  for (int r = 0; r < ring.ranks(); ++r) {
    for (std::size_t i = 0; i < elements_of(ring.shards(r).fresh(id)); ++i) {
      ASSERT_EQ(ring.shards(r).at(id, i), value) << name_of(id) << "[" << i << "] of rank " << r;
    }
  }
}

// Both passes, in memory that is fresh before each.
void run_both(Ring& ring) {
  ring.reset();
  ASSERT_EQ(ring.forward_array(), RINGATTN_OK) << ringattn_last_error();
  ASSERT_EQ(ring.backward_array(), RINGATTN_OK) << ringattn_last_error();
}

void expect_nothing_seen(Ring& ring) {
  expect_value(ring, kOutO, 0);
  expect_value(ring, kOutLse, kMinusInf);
  for (const int id : {kDq, kDk, kDv}) expect_value(ring, id, 0);
}

ringattn_plan_desc sized(std::int64_t batch, std::int64_t seq_q, std::int64_t seq_k) {
  ringattn_plan_desc desc = batch_problem();
  desc.batch = batch;
  desc.seq_q = seq_q;
  desc.seq_k = seq_k;
  return desc;
}

// Over rings of 1 to 4, every partition, two dtypes, and a call on one thread for all or one each.
void for_each_ring(const ringattn_plan_desc& desc, void (*call)(ringattn_call&),
                   const std::function<void(Ring&)>& check) {
  const support::Watchdog watchdog("zeros", 60);
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const std::int32_t partition : kPartitions) {
      for (const ringattn_dtype dtype :
           {ringattn_dtype{RINGATTN_DTYPE_F32}, ringattn_dtype{RINGATTN_DTYPE_BF16}}) {
        SCOPED_TRACE("ranks " + std::to_string(ranks) + " partition " + std::to_string(partition) +
                     " dtype " + std::to_string(dtype));
        ringattn_plan_desc own = desc;
        own.partition = partition;
        own.dtype = dtype;
        Ring ring(ranks, own, {"local", call});
        run_both(ring);
        if (::testing::Test::HasFatalFailure()) return;
        check(ring);
        for (const bool of_backward : {false, true}) {
          for (const Answer& got : ring.on_threads([&](int rank) { return ring.run(of_backward, rank); }))
            EXPECT_EQ(got.status, RINGATTN_OK) << got.message;
        }
        check(ring);
      }
    }
  }
}

TEST(LegalZeros, NoTokenAtAll) {
  for_each_ring(sized(2, 0, 0), nullptr, [](Ring& ring) { EXPECT_TRUE(ring.untouched()); });
}

TEST(LegalZeros, NoRow) {
  for_each_ring(sized(0, 12, 12), nullptr, [](Ring& ring) { EXPECT_TRUE(ring.untouched()); });
}

TEST(LegalZeros, QueriesWithoutKeys) { for_each_ring(sized(2, 7, 0), nullptr, expect_nothing_seen); }

TEST(LegalZeros, KeysWithoutQueries) { for_each_ring(sized(2, 0, 7), nullptr, expect_nothing_seen); }

TEST(LegalZeros, NoDocument) {
  const auto none = [](ringattn_call& call) { call.flags = RINGATTN_CALL_SEQUENCES; };
  for_each_ring(packed_problem(), none, expect_nothing_seen);
}

// cu_q = cu_k = {0}: an array of one entry, and documents without a token.
TEST(LegalZeros, EmptyDocuments) {
  const auto empty = [](ringattn_call& call) {
    static const std::int64_t zeros[] = {0, 0, 0, 0};
    call.flags = RINGATTN_CALL_SEQUENCES;
    call.sequences = 3;
    call.cu_q = zeros;
  };
  for_each_ring(packed_problem(), empty, expect_nothing_seen);
}

// Only the middle document has both: 4 queries see its 3 keys, all others see none.
TEST(LegalZeros, DocumentsOfWhichSomeHaveNoQueryOrNoKey) {
  const auto some = [](ringattn_call& call) {
    static const std::int64_t cu_q[] = {0, 5, 9, 9}, cu_k[] = {0, 0, 3, 10};
    call.flags = RINGATTN_CALL_SEQUENCES;
    call.sequences = 3;
    call.cu_q = cu_q;
    call.cu_k = cu_k;
  };
  ringattn_plan_desc desc = packed_problem();
  desc.mask = RINGATTN_MASK_FULL;
  for_each_ring(desc, some, [](Ring& ring) {
    std::int64_t seen = 0;
    for (int r = 0; r < ring.ranks(); ++r) {
      std::int64_t index[12];
      std::uint64_t count = 0;
      ASSERT_EQ(ringattn_plan_positions(ring.plan(r), RINGATTN_AXIS_QUERY, r, 0, &ring.shards(r).call.value,
                                        index, nullptr, 12, &count),
                RINGATTN_OK);
      const auto& lse = ring.shards(r).fresh(kOutLse);
      for (std::int64_t row = 0; row < lse.shape[2]; ++row) {
        const bool sees = row < static_cast<std::int64_t>(count) && index[row] >= 5 && index[row] < 9;
        EXPECT_EQ(ring.shards(r).at(kOutLse, static_cast<std::size_t>(row)) != kMinusInf, sees);
        seen += sees;
      }
    }
    EXPECT_EQ(seen, 4);
  });
}

// Every query sees its own key alone: O = V, dV = dO summed over the group, and dQ flows from dlse alone.
TEST(LegalZeros, AWindowOfZero) {
  ringattn_plan_desc desc = sized(2, 12, 12);
  desc.mask = RINGATTN_MASK_WINDOW_LEFT | RINGATTN_MASK_WINDOW_RIGHT;
  for_each_ring(desc, nullptr, [](Ring& ring) {
    for (int r = 0; r < ring.ranks(); ++r) {
      const Shards& s = ring.shards(r);
      const bool f32 = s.fresh(kQ).dtype == RINGATTN_DTYPE_F32;
      const double slack = f32 ? 1e-5 : 2e-2;
      const auto rows = static_cast<std::size_t>(2 * s.fresh(kQ).shape[1]);
      for (std::size_t row = 0; row < rows; ++row) {
        for (std::size_t d = 0; d < 8; ++d) {
          for (std::size_t kv = 0; kv < 2; ++kv) {
            const float v = s.at(kV, (row * 2 + kv) * 8 + d);
            EXPECT_EQ(s.at(kOutO, (row * 4 + 2 * kv) * 8 + d), v);
            EXPECT_EQ(s.at(kOutO, (row * 4 + 2 * kv + 1) * 8 + d), v);
            const float sum =
                s.at(kDo, (row * 4 + 2 * kv) * 8 + d) + s.at(kDo, (row * 4 + 2 * kv + 1) * 8 + d);
            EXPECT_NEAR(s.at(kDv, (row * 2 + kv) * 8 + d), sum, slack);
          }
        }
      }
    }
  });
}

// ---- ranks with nothing -----------------------------------------------------------------------------------

// lse with the axes of tokens.
ringattn_tensor as_tokens(ringattn_tensor t, bool is_lse) {
  if (!is_lse) return t;
  std::swap(t.shape[1], t.shape[2]);
  std::swap(t.stride[1], t.stride[2]);
  return t;
}

// A ring's results for the inputs of a ring of one, in the place of that one's outputs.
void expect_like_one_rank(int ranks, const ringattn_plan_desc& desc, float slack) {
  Ring one(1, desc), ring(ranks, desc);
  run_both(one);
  const int inputs[] = {kQ, kK, kV, kO, kLse, kDo, kDlse}, outputs[] = {kOutO, kOutLse, kDq, kDk, kDv};
  const auto axis_of = [](int id) { return id == kK || id == kV || id == kDk || id == kDv ? 1 : 0; };
  const auto is_lse = [](int id) { return id == kLse || id == kDlse || id == kOutLse; };
  ring.reset();
  for (int r = 0; r < ranks; ++r) {
    for (const int id : inputs) {
      const ringattn_tensor from = as_tokens(one.shards(0).fresh(id), is_lse(id)),
                            to = as_tokens(ring.shards(r).fresh(id), is_lse(id));
      ASSERT_EQ(ringattn_shard(ring.plan(r), axis_of(id), r, nullptr, &from, &to), RINGATTN_OK)
          << ringattn_last_error();
    }
  }
  ASSERT_EQ(ring.forward_array(), RINGATTN_OK) << ringattn_last_error();
  ASSERT_EQ(ring.backward_array(), RINGATTN_OK) << ringattn_last_error();
  std::vector<std::vector<float>> wanted;
  for (const int id : outputs) {
    wanted.emplace_back();
    for (std::size_t i = 0; i < elements_of(one.shards(0).fresh(id)); ++i)
      wanted.back().push_back(one.shards(0).at(id, i));
  }
  one.reset();
  for (int r = 0; r < ranks; ++r) {
    for (const int id : outputs) {
      const ringattn_tensor from = as_tokens(ring.shards(r).fresh(id), is_lse(id)),
                            to = as_tokens(one.shards(0).fresh(id), is_lse(id));
      ASSERT_EQ(ringattn_unshard(ring.plan(r), axis_of(id), r, nullptr, &from, &to), RINGATTN_OK)
          << ringattn_last_error();
    }
  }
  for (std::size_t o = 0; o < wanted.size(); ++o) {
    for (std::size_t i = 0; i < wanted[o].size(); ++i)
      ASSERT_NEAR(one.shards(0).at(outputs[o], i), wanted[o][i], slack)
          << name_of(outputs[o]) << "[" << i << "]";
  }
}

TEST(LegalZeros, FewerTokensThanRanks) {
  const support::Watchdog watchdog("empty shards", 60);
  for (const std::int64_t n : {1, 2, 3}) {
    for (const std::int32_t partition : kPartitions) {
      for (const int ranks : {2, 3, 5}) {
        SCOPED_TRACE("n " + std::to_string(n) + " partition " + std::to_string(partition) + " ranks " +
                     std::to_string(ranks));
        ringattn_plan_desc desc = sized(2, n, n);
        desc.partition = partition;
        expect_like_one_rank(ranks, desc, 1e-5f);
        desc.seq_k = 1;  // one rank has all keys
        desc.mask = RINGATTN_MASK_FULL;
        expect_like_one_rank(ranks, desc, 1e-5f);
      }
    }
  }
}

// A rank with nothing may have nothing to point to.
TEST(LegalZeros, NullDataOfEmptyShards) {
  Ring ring(5, sized(2, 2, 2));
  for (int r = 2; r < 5; ++r) {
    for (auto& view : ring.shards(r).view) view.value.data = nullptr;
  }
  EXPECT_EQ(ring.forward_array(), RINGATTN_OK) << ringattn_last_error();
  EXPECT_EQ(ring.backward_array(), RINGATTN_OK) << ringattn_last_error();
  for (int r = 0; r < 5; ++r) EXPECT_TRUE(ring.shards(r).right());
}

// ---- dimensions of one, strides of zero -------------------------------------------------------------------

TEST(LegalZeros, HeadDimOne) {
  for (const auto& [dim_qk, dim_v] : {std::pair{1, 1}, std::pair{1, 8}, std::pair{16, 1}}) {
    ringattn_plan_desc desc = sized(2, 9, 9);
    desc.head_dim_qk = dim_qk;
    desc.head_dim_v = dim_v;
    for (const std::int32_t partition : kPartitions) {
      desc.partition = partition;
      expect_like_one_rank(3, desc, 1e-5f);
    }
  }
}

// One query, two keys, one dimension: all by hand.
TEST(LegalZeros, HeadDimOneByHand) {
  ringattn_plan_desc desc = sized(1, 1, 2);
  desc.heads = desc.kv_heads = desc.head_dim_qk = desc.head_dim_v = 1;
  desc.scale = 0.5;
  Ring ring(1, desc);
  run_both(ring);
  const Shards& s = ring.shards(0);
  const double q = s.at(kQ, 0), k0 = s.at(kK, 0), k1 = s.at(kK, 1), v0 = s.at(kV, 0), v1 = s.at(kV, 1);
  const double e0 = std::exp(0.5 * q * k0), e1 = std::exp(0.5 * q * k1), p0 = e0 / (e0 + e1),
               p1 = e1 / (e0 + e1);
  const double o = p0 * v0 + p1 * v1, d_o = s.at(kDo, 0), delta = d_o * o - s.at(kDlse, 0);
  const double ds0 = p0 * (d_o * v0 - delta), ds1 = p1 * (d_o * v1 - delta);
  EXPECT_NEAR(s.at(kOutO, 0), o, 1e-6);
  EXPECT_NEAR(s.at(kOutLse, 0), std::log(e0 + e1), 1e-6);
  EXPECT_NEAR(s.at(kDq, 0), 0.5 * (ds0 * k0 + ds1 * k1), 1e-6);
  EXPECT_NEAR(s.at(kDk, 0), 0.5 * ds0 * q, 1e-6);
  EXPECT_NEAR(s.at(kDk, 1), 0.5 * ds1 * q, 1e-6);
  EXPECT_NEAR(s.at(kDv, 0), p0 * d_o, 1e-6);
  EXPECT_NEAR(s.at(kDv, 1), p1 * d_o, 1e-6);
}

// The first slice of `axis` in the place of all its slices.
void repeat_first(const ringattn_tensor& t, int axis) {
  auto* const data = static_cast<std::byte*>(t.data);
  const std::size_t item = dtype_bytes(t.dtype);
  for (std::int64_t b = 0; b < t.shape[0]; ++b) {
    for (std::int64_t i = 0; i < t.shape[1]; ++i) {
      for (std::int64_t j = 0; j < t.shape[2]; ++j) {
        std::int64_t at[3] = {b, i, j}, from[3] = {b, i, j};
        from[axis] = 0;
        const auto offset = [&](const std::int64_t(&x)[3]) {
          return static_cast<std::size_t>(x[0] * t.stride[0] + x[1] * t.stride[1] + x[2] * t.stride[2]) *
                 item;
        };
        std::memmove(data + offset(at), data + offset(from), static_cast<std::size_t>(t.shape[3]) * item);
      }
    }
  }
}

TEST(LegalZeros, StrideZeroOfEveryInputOnEveryAxis) {
  for (const ringattn_dtype dtype :
       {ringattn_dtype{RINGATTN_DTYPE_F32}, ringattn_dtype{RINGATTN_DTYPE_BF16}}) {
    ringattn_plan_desc desc = sized(2, 11, 11);
    desc.dtype = dtype;
    Ring ring(2, desc);
    for (const int id : {kQ, kK, kV, kO, kLse, kDo, kDlse}) {
      for (int axis = 0; axis < 3; ++axis) {
        SCOPED_TRACE(std::string(name_of(id)) + " axis " + std::to_string(axis) + " dtype " +
                     std::to_string(dtype));
        std::vector<std::vector<std::byte>> dense;
        const auto outputs = [&](auto use) {
          for (int r = 0; r < 2; ++r) {
            for (const int out : {kOutO, kOutLse, kDq, kDk, kDv}) {
              const auto* data = static_cast<const std::byte*>(ring.shards(r).fresh(out).data);
              use(out, std::vector<std::byte>(data, data + bytes_of(ring.shards(r).fresh(out))));
            }
          }
        };
        for (const bool zero : {false, true}) {
          ring.reset();
          for (int r = 0; r < 2; ++r) {
            repeat_first(ring.shards(r).fresh(id), axis);
            if (zero) ring.shards(r).view[id].value.stride[axis] = 0;
          }
          ASSERT_EQ(ring.forward_array(), RINGATTN_OK) << ringattn_last_error();
          ASSERT_EQ(ring.backward_array(), RINGATTN_OK) << ringattn_last_error();
          std::size_t i = 0;
          outputs([&](int out, std::vector<std::byte> bytes) {
            if (!zero) return dense.push_back(std::move(bytes));
            EXPECT_EQ(bytes, dense[i++]) << name_of(out);
          });
        }
      }
    }
  }
}

}  // namespace
}  // namespace ringattn::wrong_use
