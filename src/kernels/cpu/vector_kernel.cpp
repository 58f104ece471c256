// Compiled once for each instruction set (Highway's foreach_target includes this file again and again).
//
// The form is the transposed one: S^T[key][lane] = K Q^T and O^T[channel][lane] += V^T P^T with vectors along query lanes.
//   vectors   vector types, panel width        pack      queries in, 16-bit K/V widened
//   micro     the two products in registers    softmax   exp2, online maximum and sum
//   mask      what a panel sees of a block     attend    the loop over blocks and panels
//   finalize  state to output
// Backward: S^T and dP^T = V dO^T are products like the scores, dQ^T += K^T dS^T is one like the outputs;
// dV += P^T dO and dK += dS^T Q have vectors along channels.
//   backward_pack      queries and output gradients in    backward           the loop over blocks and panels
//   gradient_micro     the products of dK and dV          backward_finalize  begin, and dQ out

// Not compiled: SSSE3 and SVE, which nobody has tested, and AVX3_DL, which adds nothing that is used here.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/vector_kernel.cpp"
#include "kernels/cpu/vector_kernel.h"

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// The baseline of plain x86-64 has no target of its own in Highway, only an emulation that the reference beats.
#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR

#include "kernels/cpu/attend-inl.h"
#include "kernels/cpu/backward-inl.h"
#include "kernels/cpu/backward_finalize-inl.h"
#include "kernels/cpu/finalize-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringattn::kernels::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3
inline constexpr const char* kName = "cpu.avx512";
#elif HWY_TARGET == HWY_AVX2
inline constexpr const char* kName = "cpu.avx2";
#elif HWY_TARGET == HWY_SSE4
inline constexpr const char* kName = "cpu.sse4";
#elif HWY_TARGET == HWY_NEON
inline constexpr const char* kName = "cpu.neon";
#else
#error "a target without a name"
#endif

inline void Exp2Array(const float* x, std::size_t count, float* y) {
  for (std::size_t i = 0; i < count; i += kVectorLanes) {
    Vector vector[1] = {hn::Load(Floats(), x + i)};
    Exp2(vector);
    hn::Store(vector[0], Floats(), y + i);
  }
}

inline constexpr Backward kBackward = {kMaxBackwardLanes,       kBackwardKeysPerTask, &backward_state_bytes,
                                       &backward_scratch_bytes, &BackwardBegin,       &BackwardAttend,
                                       &BackwardFinalize};

inline constexpr VectorKernel kKernel = {{kName, kMaxLanes, kKeysPerTask, &refuse_nothing_legal, &state_bytes,
                                          &scratch_bytes, &Begin, &Attend, &Finalize, kBackward},
                                         &Exp2Array};

}  // namespace ringattn::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#if HWY_ONCE

#include <vector>

namespace ringattn::kernels::cpu {
namespace {

std::vector<const VectorKernel*> supported_kernels() {
  std::vector<const VectorKernel*> list;
  [[maybe_unused]] const auto add = [&list](std::int64_t target, const VectorKernel& kernel) {
    if ((hwy::SupportedTargets() & target) != 0) list.push_back(&kernel);
  };
#if HWY_TARGETS & HWY_AVX3
  add(HWY_AVX3, N_AVX3::kKernel);
#endif
#if HWY_TARGETS & HWY_AVX2
  add(HWY_AVX2, N_AVX2::kKernel);
#endif
#if HWY_TARGETS & HWY_SSE4
  add(HWY_SSE4, N_SSE4::kKernel);
#endif
#if HWY_TARGETS & HWY_NEON
  add(HWY_NEON, N_NEON::kKernel);
#endif
  return list;
}

}  // namespace

std::span<const VectorKernel* const> vector_kernels() {
  static const std::vector<const VectorKernel*> list = supported_kernels();
  return list;
}

}  // namespace ringattn::kernels::cpu

#endif  // HWY_ONCE
