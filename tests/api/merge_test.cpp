// Merge of partial results: a table of dtypes and memory orders, in place, empties, overlaps.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/ring/host_ring.h"
#include "tests/support/half.h"

namespace ringattn::support {
namespace {

constexpr double kEmpty = -std::numeric_limits<double>::infinity();

struct Part {
  Part(ringattn_dtype dtype, Layout layout, std::uint64_t seed)
      : o(dtype, {2, 5, 3, 7}, layout), lse(RINGATTN_DTYPE_F32, {2, 3, 5, 1}, layout) {
    Random random(seed);
    fill_normal(o, random);
    fill_normal(lse, random);
  }
  HostTensor o, lse;
};

class ApiMerge : public ::testing::Test {
 protected:
  ringattn_status merge(const ringattn_tensor& o_a, const ringattn_tensor& lse_a, const ringattn_tensor& o_b,
                        const ringattn_tensor& lse_b, const ringattn_tensor& o, const ringattn_tensor& lse) {
    return ringattn_merge(context_.get(), &o_a, &lse_a, &o_b, &lse_b, &o, &lse);
  }
  ringattn_status merge(const Part& a, const Part& b, const Part& out) {
    return merge(a.o.view(), a.lse.view(), b.o.view(), b.lse.view(), out.o.view(), out.lse.view());
  }
  static void expect_merged(const Part& a, const Part& b, const Part& out) {
    for (std::int64_t batch = 0; batch < 2; ++batch) {
      for (std::int64_t s = 0; s < 5; ++s) {
        for (std::int64_t h = 0; h < 3; ++h) {
          const double x = a.lse.get(batch, h, s, 0), y = b.lse.get(batch, h, s, 0), most = std::max(x, y);
          const double lse =
              most == kEmpty ? kEmpty : most + std::log(std::exp(x - most) + std::exp(y - most));
          if (lse == kEmpty) {
            EXPECT_EQ(out.lse.get(batch, h, s, 0), kEmpty);
          } else {
            EXPECT_NEAR(out.lse.get(batch, h, s, 0), lse, 2e-6 * (1 + std::abs(lse)));
          }
          for (std::int64_t d = 0; d < 7; ++d) {
            const double first = x == kEmpty ? 0 : std::exp(x - lse) * a.o.get(batch, s, h, d);
            const double second = y == kEmpty ? 0 : std::exp(y - lse) * b.o.get(batch, s, h, d);
            const double error = std::abs(out.o.get(batch, s, h, d) - (first + second));
            EXPECT_LE(error, 0.51 * ulp(out.o.dtype(), first + second) +
                                 1e-6 * (std::abs(first) + std::abs(second)));
          }
        }
      }
    }
  }

  HostContext context_{2};
};

TEST_F(ApiMerge, EveryDtypeInEveryPlaceAndMemoryOrder) {
  const ringattn_dtype dtypes[] = {RINGATTN_DTYPE_F32, RINGATTN_DTYPE_F16, RINGATTN_DTYPE_BF16};
  for (const ringattn_dtype of_a : dtypes) {
    for (const ringattn_dtype of_b : dtypes) {
      for (const ringattn_dtype of_o : dtypes) {
        const Part a(of_a, Layout::kBshd, 1), b(of_b, Layout::kBhsd, 2);
        Part out(of_o, Layout::kSliced, 3);
        ASSERT_EQ(merge(a, b, out), RINGATTN_OK) << ringattn_last_error();
        expect_merged(a, b, out);
        EXPECT_TRUE(out.o.guards_intact() && out.lse.guards_intact());
      }
    }
  }
}

TEST_F(ApiMerge, EmptyRowsCountForNothingWhateverTheyHold) {
  Part a(RINGATTN_DTYPE_F32, Layout::kBshd, 1), b(RINGATTN_DTYPE_F32, Layout::kBshd, 2),
      out(RINGATTN_DTYPE_F32, Layout::kBshd, 3);
  a.lse.set(0, 0, 0, 0, kEmpty);
  b.lse.set(0, 1, 1, 0, kEmpty);
  a.lse.set(1, 2, 4, 0, kEmpty);
  b.lse.set(1, 2, 4, 0, kEmpty);
  a.o.set(0, 0, 0, 3, NAN);
  b.o.set(0, 1, 1, 3, NAN);
  a.o.set(1, 4, 2, 3, NAN);
  ASSERT_EQ(merge(a, b, out), RINGATTN_OK) << ringattn_last_error();
  expect_merged(a, b, out);
  for (std::int64_t d = 0; d < 7; ++d) {
    EXPECT_EQ(out.o.get(0, 0, 0, d), b.o.get(0, 0, 0, d));
    EXPECT_EQ(out.o.get(1, 4, 2, d), 0.0);
  }
  EXPECT_EQ(out.lse.get(0, 0, 0, 0), b.lse.get(0, 0, 0, 0));
}

TEST_F(ApiMerge, InPlaceOnItsFirstOperand) {
  for (const ringattn_dtype dtype : {RINGATTN_DTYPE_F32, RINGATTN_DTYPE_BF16}) {
    Part a(dtype, Layout::kBhsd, 1);
    const Part kept(dtype, Layout::kBhsd, 1), b(RINGATTN_DTYPE_F16, Layout::kBshd, 2);
    ASSERT_EQ(merge(a, b, a), RINGATTN_OK) << ringattn_last_error();
    expect_merged(kept, b, a);
  }
}

TEST_F(ApiMerge, OtherOverlapsAreRefusedAndNothingIsWritten) {
  Part a(RINGATTN_DTYPE_F32, Layout::kBshd, 1), b(RINGATTN_DTYPE_F32, Layout::kBshd, 2),
      out(RINGATTN_DTYPE_F32, Layout::kBshd, 3);
  const std::uint64_t before = a.o.hash() ^ b.o.hash() ^ a.lse.hash() ^ b.lse.hash() ^ out.o.hash();
  const ringattn_tensor oa = a.o.view(), la = a.lse.view(), ob = b.o.view(), lb = b.lse.view(),
                        o = out.o.view(), l = out.lse.view();
  ringattn_tensor shifted = oa;
  shifted.data = static_cast<char*>(oa.data) + 4;
  ringattn_tensor narrow = oa;  // the same place in another dtype is not "exactly o_a"
  narrow.dtype = RINGATTN_DTYPE_BF16;
  narrow.flags = RINGATTN_TENSOR_STRIDES;
  for (int axis = 0; axis < 4; ++axis) narrow.stride[axis] = oa.stride[axis];
  ringattn_tensor on_o = l;
  on_o.data = o.data;
  const struct {
    const char* word;
    ringattn_tensor o, lse;
  } cases[] = {{"o.data: overlaps o_a", shifted, l},
               {"o.data: overlaps o_b", ob, l},
               {"lse.data: overlaps lse_b", o, lb},
               {"lse.data: overlaps o", o, on_o},
               {"o.data: overlaps o_a", narrow, l}};
  for (const auto& test : cases) {
    EXPECT_EQ(merge(oa, la, ob, lb, test.o, test.lse), RINGATTN_ERR_INVALID_ARGUMENT) << test.word;
    EXPECT_NE(std::string(ringattn_last_error()).find(test.word), std::string::npos) << ringattn_last_error();
  }
  EXPECT_EQ(a.o.hash() ^ b.o.hash() ^ a.lse.hash() ^ b.lse.hash() ^ out.o.hash(), before);
}

TEST_F(ApiMerge, ShapesAndDtypesThatDoNotFitAreNamed) {
  const Part a(RINGATTN_DTYPE_F32, Layout::kBshd, 1), b(RINGATTN_DTYPE_F32, Layout::kBshd, 2),
      out(RINGATTN_DTYPE_F32, Layout::kBshd, 3);
  const ringattn_tensor good[] = {a.o.view(),   a.lse.view(), b.o.view(),
                                  b.lse.view(), out.o.view(), out.lse.view()};
  const char* names[] = {"o_a", "lse_a", "o_b", "lse_b", "o", "lse"};
  const auto refused = [&](const ringattn_tensor(&t)[6], const std::string& word) {
    EXPECT_EQ(merge(t[0], t[1], t[2], t[3], t[4], t[5]), RINGATTN_ERR_INVALID_ARGUMENT) << word;
    EXPECT_NE(std::string(ringattn_last_error()).find(word), std::string::npos)
        << word << ": " << ringattn_last_error();
  };
  for (int i = 0; i < 6; ++i) {
    ringattn_tensor bent[6];
    std::copy_n(good, 6, bent);
    if (i != 0) {
      bent[i].shape[1] += 1;
      refused(bent, std::string(names[i]) + ".shape[1]");
    }
    std::copy_n(good, 6, bent);
    bent[i].dtype = RINGATTN_DTYPE_I32;
    refused(bent, std::string(names[i]) + ".dtype");
  }
}

TEST_F(ApiMerge, NothingToMergeIsLegal) {
  ringattn_tensor o = RINGATTN_STRUCT(ringattn_tensor), lse = RINGATTN_STRUCT(ringattn_tensor);
  o.dtype = lse.dtype = RINGATTN_DTYPE_F32;
  const std::int64_t o_shape[] = {2, 0, 3, 7}, lse_shape[] = {2, 3, 0, 1};
  std::copy_n(o_shape, 4, o.shape);
  std::copy_n(lse_shape, 4, lse.shape);
  EXPECT_EQ(merge(o, lse, o, lse, o, lse), RINGATTN_OK) << ringattn_last_error();
}

TEST_F(ApiMerge, ALargeOneIsSharedByWorkersAndTheSame) {
  HostTensor a(RINGATTN_DTYPE_F32, {1, 700, 4, 64}), b = a, one = a, many = a;
  HostTensor la(RINGATTN_DTYPE_F32, {1, 4, 700, 1}), lb = la, l1 = la, l2 = la;
  Random random(5);
  for (HostTensor* tensor : {&a, &b, &la, &lb}) fill_normal(*tensor, random);
  const HostContext single(1);
  const ringattn_tensor va = a.view(), vla = la.view(), vb = b.view(), vlb = lb.view(), vo = one.view(),
                        vl = l1.view();
  ASSERT_EQ(ringattn_merge(single.get(), &va, &vla, &vb, &vlb, &vo, &vl), RINGATTN_OK);
  ASSERT_EQ(merge(va, vla, vb, vlb, many.view(), l2.view()), RINGATTN_OK);
  EXPECT_EQ(one.hash(), many.hash());
  EXPECT_EQ(l1.hash(), l2.hash());
}

}  // namespace
}  // namespace ringattn::support
