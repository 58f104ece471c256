// Public bug reports about merging partial results: units of lse, empty parts, overflow (B002, B004, B005).
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/e2e/closed_forms.h"
#include "tests/support/limits.h"
#include "tests/support/oracle.h"
#include "tests/support/ready_ring.h"

namespace ringattn::support {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Partial {
  HostTensor o, lse;
};

Partial partial(ringattn_dtype dtype, double o, double lse) {
  Partial result{HostTensor(dtype, {1, 2, 1, 3}), HostTensor(RINGATTN_DTYPE_F32, {1, 1, 2, 1})};
  result.o.fill(o);
  result.lse.fill(lse);
  return result;
}

class CaseMerge : public ::testing::Test {
 protected:
  Partial merged(const Partial& a, const Partial& b, ringattn_dtype dtype = RINGATTN_DTYPE_F32) {
    Partial out{HostTensor(dtype, a.o.shape()), HostTensor(RINGATTN_DTYPE_F32, a.lse.shape())};
    out.o.fill(NAN);
    out.lse.fill(NAN);
    const ringattn_tensor o_a = a.o.view(), lse_a = a.lse.view(), o_b = b.o.view(), lse_b = b.lse.view();
    const ringattn_tensor o = out.o.view(), lse = out.lse.view();
    EXPECT_EQ(ringattn_merge(ring_.context(), &o_a, &lse_a, &o_b, &lse_b, &o, &lse), RINGATTN_OK)
        << ringattn_last_error();
    EXPECT_TRUE(out.o.guards_intact() && out.lse.guards_intact());
    return out;
  }

  CommRing ring_{1};
};

TEST_F(CaseMerge, B002LargeDifferencesDoNotOverflow) {
  for (const double high : {200.0, 1e4, 3e38}) {
    const Partial out = merged(partial(RINGATTN_DTYPE_F32, 1.5, 0), partial(RINGATTN_DTYPE_F32, 5.5, high));
    EXPECT_EQ(out.o.get(0, 0, 0, 0), 5.5);
    EXPECT_EQ(out.lse.get(0, 0, 0, 0), static_cast<float>(high));
    const Partial other =
        merged(partial(RINGATTN_DTYPE_F32, 5.5, -high), partial(RINGATTN_DTYPE_F32, 1.5, 0));
    EXPECT_EQ(other.o.get(0, 1, 0, 2), 1.5);
    EXPECT_EQ(other.lse.get(0, 0, 1, 0), 0);
  }
}

TEST_F(CaseMerge, B004EmptyPartsCountForNothing) {
  const Partial real = partial(RINGATTN_DTYPE_F32, 2.5, -3);
  for (const double left_over :
       {0.0, 1e30, static_cast<double>(NAN), kInf}) {  // an empty row's o is not to be read
    const Partial empty = partial(RINGATTN_DTYPE_F32, left_over, -kInf);
    for (const Partial& out : {merged(real, empty), merged(empty, real)}) {
      EXPECT_EQ(out.o.get(0, 1, 0, 1), 2.5);
      EXPECT_EQ(out.lse.get(0, 0, 1, 0), -3);
    }
    const Partial both = merged(empty, empty);
    EXPECT_EQ(both.o.get(0, 0, 0, 0), 0);
    EXPECT_EQ(both.lse.get(0, 0, 0, 0), -kInf);
  }
}

TEST_F(CaseMerge, B005UnevenPartsOfTwelveAndFourKeys) {
  for (const ringattn_dtype dtype : {RINGATTN_DTYPE_F32, RINGATTN_DTYPE_F16, RINGATTN_DTYPE_BF16}) {
    // The mean of 0..11 is 5.5, of 12..15 it is 13.5.
    const Partial out = merged(partial(dtype, 5.5, std::log(12)), partial(dtype, 13.5, std::log(4)), dtype);
    EXPECT_NEAR(out.o.get(0, 0, 0, 0), 7.5, dtype == RINGATTN_DTYPE_F32 ? 1e-6 : 0)
        << "6.860751 = mixed units";
    EXPECT_NEAR(out.lse.get(0, 0, 0, 0), 2.772589, 1e-6);
  }
}

// Attention over each part of the keys by itself, then merged: as good as attention over all of them.
TEST_F(CaseMerge, B005PartsOfRealAttentionMergeToTheWhole) {
  const ProblemLine whole = parsed("q=33 k=100 heads=4 kv_heads=2 dim=40");
  const Inputs inputs = random_inputs(whole, 5);
  const auto part = [&](std::int64_t first, std::int64_t count) {
    ProblemLine problem = parsed("q=33 k=" + std::to_string(count) + " heads=4 kv_heads=2 dim=40 ranks=2");
    Inputs own = zero_inputs(problem);
    own.q = inputs.q;
    for (std::int64_t s = 0; s < count; ++s) {
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t d = 0; d < 40; ++d) {
          own.k.set(0, s, h, d, inputs.k.get(0, first + s, h, d));
          own.v.set(0, s, h, d, inputs.v.get(0, first + s, h, d));
        }
      }
    }
    RunResult run = run_ring(problem, own);
    EXPECT_TRUE(run.ok()) << run.error();
    return Partial{std::move(run.o), std::move(run.lse)};
  };
  const Partial out = merged(part(0, 73), part(73, 27));
  const OracleResult oracle = oracle_attention(whole, inputs.q, inputs.k, inputs.v);
  const PlainResult plain = plain_attention(whole, inputs.q, inputs.k, inputs.v);
  const LimitResult o = check_o(out.o, oracle, plain), lse = check_lse(out.lse, oracle, plain);
  EXPECT_TRUE(o.ok) << o.worst;
  EXPECT_TRUE(lse.ok) << lse.worst;
}

TEST_F(CaseMerge, WorksInPlaceAndWithMixedTypes) {
  Partial a = partial(RINGATTN_DTYPE_BF16, 5.5, std::log(12));
  const Partial b = partial(RINGATTN_DTYPE_F16, 13.5, std::log(4));
  const ringattn_tensor o_a = a.o.view(), lse_a = a.lse.view(), o_b = b.o.view(), lse_b = b.lse.view();
  ASSERT_EQ(ringattn_merge(ring_.context(), &o_a, &lse_a, &o_b, &lse_b, &o_a, &lse_a), RINGATTN_OK)
      << ringattn_last_error();
  EXPECT_EQ(a.o.get(0, 1, 0, 2), 7.5);
  EXPECT_NEAR(a.lse.get(0, 0, 1, 0), std::log(16), 1e-6);
}

TEST_F(CaseMerge, RefusesWhatDoesNotFitTogether) {
  const Partial a = partial(RINGATTN_DTYPE_F32, 1, 0), b = partial(RINGATTN_DTYPE_F32, 2, 0);
  const HostTensor longer(RINGATTN_DTYPE_F32, {1, 3, 1, 3}), bad_lse(RINGATTN_DTYPE_F32, {1, 1, 3, 1});
  const HostTensor half_lse(RINGATTN_DTYPE_BF16, {1, 1, 2, 1});
  const ringattn_tensor o_a = a.o.view(), lse_a = a.lse.view(), o_b = b.o.view(), lse_b = b.lse.view();
  Partial out = partial(RINGATTN_DTYPE_F32, 42, 42);
  const ringattn_tensor o = out.o.view(), lse = out.lse.view();
  const ringattn_tensor wrong_o = longer.view(), wrong_lse = bad_lse.view(), wrong_type = half_lse.view();
  const struct {
    const ringattn_tensor *o_b, *lse_b, *o, *lse;
  } cases[] = {{&wrong_o, &lse_b, &o, &lse},
               {&o_b, &wrong_lse, &o, &lse},
               {&o_b, &wrong_type, &o, &lse},
               {&o_b, &lse_b, &wrong_o, &lse},
               {&o_b, nullptr, &o, &lse},
               {&o_b, &lse_b, &o_b, &lse}};  // may be in place on the first operand only
  for (const auto& one : cases) {
    EXPECT_EQ(ringattn_merge(ring_.context(), &o_a, &lse_a, one.o_b, one.lse_b, one.o, one.lse),
              RINGATTN_ERR_INVALID_ARGUMENT)
        << "case " << &one - cases;
    EXPECT_STRNE(ringattn_last_error(), "");
  }
  EXPECT_EQ(out.o.get(0, 0, 0, 0), 42);
}

}  // namespace
}  // namespace ringattn::support
