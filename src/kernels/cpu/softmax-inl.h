// The online softmax of one panel and key block, in base 2: scores arrive multiplied by log2(e).
#if defined(RINGATTN_KERNELS_CPU_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGATTN_KERNELS_CPU_SOFTMAX_INL_H_
#undef RINGATTN_KERNELS_CPU_SOFTMAX_INL_H_
#else
#define RINGATTN_KERNELS_CPU_SOFTMAX_INL_H_
#endif

#include <limits>

#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringattn::kernels::cpu::HWY_NAMESPACE {

// The larger of both, NaN where x is NaN. x86 answers with the second operand where one is NaN; Arm with the number.
HWY_INLINE Vector RaiseTo(Vector least, Vector x) {
#if HWY_ARCH_X86
  return hn::Max(least, x);
#else
  return hn::IfThenElse(hn::Lt(x, least), least, x);
#endif
}

// 2^x for x <= 0, to about one unit in the last place; exactly 1 at 0, exactly 0 below -126.5 (so at -inf), NaN at NaN.
//
// Adding 1.5 * 2^23 + 127 rounds x to an integer n and leaves n + 127, the biased exponent, in the low bits. What is
// left, f = x - n in [-1/2, 1/2], goes through a polynomial (relative error 2e-8). n = -127 becomes exponent bits 0: a factor 0.
//
// Several vectors step by step together, and the polynomial as a tree: one vector's chain of dependent operations is so
// long that the CPU's scheduler would fill with it.
template <int kCount>
HWY_INLINE void Exp2(Vector (&x)[kCount]) {
  const Floats d;
  const hn::RebindToSigned<Floats> integers;
  const Vector shift = hn::Set(d, 12582912.0f + 127.0f);
  Vector f[kCount], square[kCount], low[kCount], high[kCount];
  for (int i = 0; i < kCount; ++i) x[i] = RaiseTo(hn::Set(d, -127.0f), x[i]);
  for (int i = 0; i < kCount; ++i) f[i] = hn::Add(x[i], shift);
  for (int i = 0; i < kCount; ++i) {
    const Vector scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(integers, f[i])));
    f[i] = hn::Sub(x[i], hn::Sub(f[i], shift));
    x[i] = scale;
  }
  for (int i = 0; i < kCount; ++i) square[i] = hn::Mul(f[i], f[i]);
  for (int i = 0; i < kCount; ++i) {
    high[i] = hn::MulAdd(hn::Set(d, 0x1.470b4ap-13f), f[i], hn::Set(d, 0x1.5f7276p-10f));
    low[i] = hn::MulAdd(hn::Set(d, 0x1.c6ae72p-5f), f[i], hn::Set(d, 0x1.ebfbe2p-3f));
  }
  for (int i = 0; i < kCount; ++i) {
    high[i] = hn::MulAdd(high[i], f[i], hn::Set(d, 0x1.3b270ep-7f));
    f[i] = hn::MulAdd(hn::Set(d, 0x1.62e432p-1f), f[i], hn::Set(d, 1.0f));
  }
  for (int i = 0; i < kCount; ++i) low[i] = hn::MulAdd(high[i], square[i], low[i]);
  for (int i = 0; i < kCount; ++i) x[i] = hn::Mul(hn::MulAdd(low[i], square[i], f[i]), x[i]);
}

template <int kVectors>
HWY_INLINE void PanelMaximum(const float* HWY_RESTRICT scores, std::int64_t count,
                             const float* HWY_RESTRICT seen, const float* HWY_RESTRICT maximum,
                             Vector (&largest)[kVectors]) {
  const Floats d;
  for (int v = 0; v < kVectors; ++v) {
    largest[v] = hn::Max(hn::Load(d, seen + v * kVectorLanes), hn::Load(d, maximum + v * kVectorLanes));
  }
  for (std::int64_t j = 0; j < count; ++j) {
    for (int v = 0; v < kVectors; ++v) {
      largest[v] = hn::Max(hn::Load(d, scores + v * kVectorLanes), largest[v]);  // NaN does not stick
    }
    scores += kVectors * kVectorLanes;
  }
}

// Probabilities of kRows keys, in place of their scores.
template <int kRows, int kVectors>
HWY_INLINE void ExpRows(float* HWY_RESTRICT scores, const Vector (&largest)[kVectors],
                        Vector (&total)[kVectors]) {
  const Floats d;
  Vector x[kRows * kVectors];
  for (int i = 0; i < kRows * kVectors; ++i) {
    x[i] = hn::Sub(hn::Load(d, scores + i * kVectorLanes), largest[i % kVectors]);
  }
  Exp2(x);
  for (int i = 0; i < kRows * kVectors; ++i) {
    hn::Store(x[i], d, scores + i * kVectorLanes);
    total[i % kVectors] = hn::Add(total[i % kVectors], x[i]);
  }
}

// Scores [count][lane] become probabilities relative to the new row maximum; m and l are updated, and `correction` gets
// the factor by which earlier sums shrink.
//
// `seen` is per lane: the lowest finite number if the lane sees any key here, else -inf. So m is -inf exactly for rows that
// never saw a key. What is subtracted is never less than the lowest finite number: -inf - m is then -inf, a probability 0,
// and never NaN; a score that is +inf or NaN still makes its own row NaN, as it should.
template <int kVectors>
HWY_NOINLINE void PanelSoftmax(float* HWY_RESTRICT scores, std::int64_t count, const float* HWY_RESTRICT seen,
                               float* HWY_RESTRICT maximum, float* HWY_RESTRICT sum,
                               float* HWY_RESTRICT correction) {
  const Floats d;
  const Vector lowest = hn::Set(d, std::numeric_limits<float>::lowest());
  Vector largest[kVectors], total[kVectors];
  PanelMaximum<kVectors>(scores, count, seen, maximum, largest);
  for (int v = 0; v < kVectors; ++v) {
    const Vector before = hn::Max(hn::Load(d, maximum + v * kVectorLanes), lowest);
    hn::Store(largest[v], d, maximum + v * kVectorLanes);
    largest[v] = hn::Max(largest[v], lowest);
    Vector factor[1] = {hn::Sub(before, largest[v])};
    Exp2(factor);
    hn::Store(factor[0], d, correction + v * kVectorLanes);
    total[v] = hn::Zero(d);
  }
  constexpr int kRows =
      kVectors < kPanelVectors ? kPanelVectors / kVectors : 1;  // a panel's width at a time: more would spill
  std::int64_t j = 0;
  for (; j + kRows <= count; j += kRows)
    ExpRows<kRows, kVectors>(scores + j * kVectors * kVectorLanes, largest, total);
  for (; j < count; ++j) ExpRows<1, kVectors>(scores + j * kVectors * kVectorLanes, largest, total);
  for (int v = 0; v < kVectors; ++v) {
    float* const place = sum + v * kVectorLanes;
    hn::Store(hn::MulAdd(hn::Load(d, place), hn::Load(d, correction + v * kVectorLanes), total[v]), d, place);
  }
}

}  // namespace ringattn::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
