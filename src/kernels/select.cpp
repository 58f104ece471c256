// Which kernels this machine has, and which one a plan gets.
#include "kernels/select.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/vector_kernel.h"
#include "kernels/reference/reference.h"

namespace ringattn::kernels {
namespace {

constexpr const char* kNames[] = {"cpu.avx512", "cpu.avx2", "cpu.sse4", "cpu.neon", "cpu.reference"};

std::vector<const Kernel*> list_kernels() {
  std::vector<const Kernel*> list;
  for (const cpu::VectorKernel* vector : cpu::vector_kernels()) list.push_back(&vector->kernel);
  list.push_back(&reference_kernel());
  return list;
}

std::string available_names() {
  std::string names;
  for (const Kernel* kernel : kernels()) {
    if (!names.empty()) names += ", ";
    names += kernel->name;
  }
  return names;
}

Choice choose_forced(const Problem& problem, const std::string& forced) {
  for (const Kernel* kernel : kernels()) {
    if (forced != kernel->name) continue;
    std::string reason = kernel->refuse(problem);
    if (reason.empty()) return {kernel, "", false};
    return {nullptr,
            reason.insert(0, std::string("RINGATTN_FORCE_KERNEL: ").append(kernel->name).append(": ")),
            false};
  }
  const auto names = known_kernel_names();
  const bool known = std::find(names.begin(), names.end(), forced) != names.end();
  const std::string what = known ? "this CPU cannot run it" : "there is no kernel of this name";
  return {
      nullptr,
      "RINGATTN_FORCE_KERNEL: '" + forced.substr(0, 64) + "': " + what + "; available: " + available_names(),
      !known};
}

}  // namespace

std::span<const char* const> known_kernel_names() { return kNames; }

std::span<const Kernel* const> kernels() {
  static const std::vector<const Kernel*> list = list_kernels();
  return list;
}

Choice choose(const Problem& problem, const std::string& forced) {
  if (!forced.empty()) return choose_forced(problem, forced);
  std::string reasons;
  for (const Kernel* kernel : kernels()) {
    const std::string reason = kernel->refuse(problem);
    if (reason.empty()) return {kernel, "", false};
    if (!reasons.empty()) reasons += "; ";
    reasons.append(kernel->name).append(": ").append(reason);
  }
  return {nullptr, reasons, false};
}

}  // namespace ringattn::kernels
