#include "base/cpu_features.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstdint>

namespace ringattn {
namespace {

void add(std::string& list, bool present, const char* name) {
  if (!present) return;
  if (!list.empty()) list += ' ';
  list += name;
}

#if defined(__x86_64__)

// AMX, like the vector features below, counts only where the kernel saves its registers: XCR0 bits 17 and
// 18.
bool tiles_enabled() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx & bit_OSXSAVE) == 0) return false;
  __asm__ volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  return (eax & (3u << 17)) == (3u << 17);
}

void add_amx(std::string& list) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!tiles_enabled() || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return;
  add(list, (edx & (1u << 24)) != 0, "amx_tile");
  add(list, (edx & (1u << 25)) != 0, "amx_int8");
  add(list, (edx & (1u << 22)) != 0, "amx_bf16");
  if (!__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) return;
  add(list, (eax & (1u << 21)) != 0, "amx_fp16");
}

#endif

}  // namespace

std::string cpu_features() {
  std::string list;
#if defined(__x86_64__)
  // The builtin takes only literals; it looks at the operating system's part as well.
  __builtin_cpu_init();
  add(list, __builtin_cpu_supports("sse4.2"), "sse4");
  add(list, __builtin_cpu_supports("avx"), "avx");
  add(list, __builtin_cpu_supports("avx2"), "avx2");
  add(list, __builtin_cpu_supports("fma"), "fma");
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool leaf = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0;
  add(list, leaf && __builtin_cpu_supports("avx") && (ecx & bit_F16C) != 0, "f16c");
  add(list, __builtin_cpu_supports("avx512f"), "avx512f");
  add(list, __builtin_cpu_supports("avx512bw"), "avx512bw");
  add(list, __builtin_cpu_supports("avx512dq"), "avx512dq");
  add(list, __builtin_cpu_supports("avx512vl"), "avx512vl");
  add(list, __builtin_cpu_supports("avx512vnni"), "avx512vnni");
  const bool leaf7 = __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0;
  add(list, leaf7 && __builtin_cpu_supports("avx512f") && (eax & (1u << 5)) != 0, "avx512bf16");
  const bool leaf7_0 = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0;
  add(list, leaf7_0 && __builtin_cpu_supports("avx512f") && (edx & (1u << 23)) != 0, "avx512fp16");
  add_amx(list);
#elif defined(__aarch64__) && defined(__linux__)
  const auto words = static_cast<std::uint64_t>(getauxval(AT_HWCAP));
  const auto more = static_cast<std::uint64_t>(getauxval(AT_HWCAP2));
  add(list, (words & (1u << 1)) != 0, "neon");
  add(list, (words & (1u << 10)) != 0, "fp16");
  add(list, (words & (1u << 22)) != 0, "sve");
  add(list, (more & (1u << 1)) != 0, "sve2");
  add(list, (more & (1u << 14)) != 0, "bf16");
#endif
  return list;
}

}  // namespace ringattn
