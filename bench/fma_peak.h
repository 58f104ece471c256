// The fp32 FMA rate of one core, by the widest vectors that the CPU has: what every kernel's rate is compared with.
#pragma once

#include <cstdint>
#include <ctime>

namespace ringattn::bench {

inline double thread_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct FmaPeak {
  double flops_per_second = 0;
  int lanes = 0;         // 0 = no measurement for this CPU
  bool trusted = false;  // at least 0.97 of lanes x 2 x 2 ports x clock
};

#if defined(__x86_64__)

#define RINGATTN_BENCH_CLOBBERS \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12"

// Twelve chains hide a latency of four cycles on two ports. The assembler repeats the line; all numbers are zero.
inline void run_ymm(std::int64_t rounds) {
  __asm__ volatile("vxorps %%xmm0, %%xmm0, %%xmm0" ::: "xmm0");
  for (std::int64_t i = 0; i < rounds; ++i) {
    __asm__ volatile(
        ".irp n, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12\n\t"
        "vfmadd231ps %%ymm0, %%ymm0, %%ymm\\n\n\t"
        ".endr" ::
            : RINGATTN_BENCH_CLOBBERS);
  }
}
inline void run_zmm(std::int64_t rounds) {
  __asm__ volatile("vxorps %%xmm0, %%xmm0, %%xmm0" ::: "xmm0");
  for (std::int64_t i = 0; i < rounds; ++i) {
    __asm__ volatile(
        ".irp n, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12\n\t"
        "vfmadd231ps %%zmm0, %%zmm0, %%zmm\\n\n\t"
        ".endr" ::
            : RINGATTN_BENCH_CLOBBERS);
  }
}
// Twelve FMAs in a row that wait for each other: 48 cycles.
inline void run_chain(std::int64_t rounds) {
  for (std::int64_t i = 0; i < rounds; ++i) {
    __asm__ volatile(
        ".rept 12\n\t"
        "vfmadd231ps %%ymm0, %%ymm0, %%ymm1\n\t"
        ".endr" ::
            : "xmm1");
  }
}

// About a millisecond and a half. The same loop with other instructions tells the clock.
inline FmaPeak measure_fma_peak() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("fma")) return {};
  const bool wide = __builtin_cpu_supports("avx512f");
  constexpr std::int64_t kRounds = 200000, kChainRounds = 20000;
  FmaPeak peak;
  peak.lanes = wide ? 16 : 8;
  const double start = thread_seconds();
  wide ? run_zmm(kRounds) : run_ymm(kRounds);
  const double middle = thread_seconds();
  run_chain(kChainRounds);
  const double end = thread_seconds();
  peak.flops_per_second = 12.0 * 2 * peak.lanes * kRounds / (middle - start);
  const double clock = 48.0 * kChainRounds / (end - middle);
  peak.trusted = peak.flops_per_second >= 0.97 * peak.lanes * 2 * 2 * clock;
  return peak;
}

#else

inline FmaPeak measure_fma_peak() { return {}; }

#endif

}  // namespace ringattn::bench
