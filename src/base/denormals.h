// Denormal numbers cost a hundred times a normal one on many CPUs, and exp of widely spread scores makes
// many of them.
#pragma once

#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace ringattn {

// While it lives, this thread's vector and scalar arithmetic reads and writes denormals as zero. The
// caller's mode, sticky exception flags included, comes back at its end.
class DenormalsAreZero {
 public:
  DenormalsAreZero() : saved_(read()) { write(saved_ | kFlush); }
  ~DenormalsAreZero() { write(saved_); }
  DenormalsAreZero(const DenormalsAreZero&) = delete;
  DenormalsAreZero& operator=(const DenormalsAreZero&) = delete;

 private:
#if defined(__SSE__)
  using Control = std::uint32_t;
  static constexpr Control kFlush = 0x8040;  // MXCSR: FTZ (bit 15) and DAZ (bit 6)
  static Control read() { return _mm_getcsr(); }
  static void write(Control control) { _mm_setcsr(control); }
#elif defined(__aarch64__)
  using Control = std::uint64_t;
  static constexpr Control kFlush = Control{1} << 24;  // FPCR.FZ
  static Control read() {
    Control control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control;
  }
  static void write(Control control) { __asm__ volatile("msr fpcr, %0" : : "r"(control)); }
#else
  using Control = std::uint32_t;
  static constexpr Control kFlush = 0;
  static Control read() { return 0; }
  static void write(Control) {}
#endif

  Control saved_;
};

}  // namespace ringattn
