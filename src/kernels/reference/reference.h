// The scalar reference: accepts every legal problem, and is short enough to be believed.
#pragma once

#include "kernels/kernel.h"

namespace ringattn::kernels {

const Kernel& reference_kernel();       // "cpu.reference": fp32 arithmetic
const Kernel& reference_fp64_kernel();  // "cpu.reference.fp64": for tests; not in kernels()

}  // namespace ringattn::kernels
