// What kernels exist, beside what this machine can run (kernel.h).
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace ringattn::kernels {

// Names of all kernels of this version, on any machine.
std::span<const char* const> known_kernel_names();

}  // namespace ringattn::kernels
