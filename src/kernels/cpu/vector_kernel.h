// The vectorised CPU kernel: one Kernel for each instruction set that it was compiled for and that this CPU has.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/kernel.h"

namespace ringattn::kernels::cpu {

struct VectorKernel {
  Kernel kernel;
  // 2^x of `count` numbers x <= 0 by the kernel's own approximation; `count` a multiple of 16, 64-byte aligned. For tests.
  void (*exp2)(const float* x, std::size_t count, float* y);
};

// Best first.
std::span<const VectorKernel* const> vector_kernels();

}  // namespace ringattn::kernels::cpu
