// The gradients by the scalar reference, in the arithmetic of Real.
#pragma once

#include "kernels/kernel.h"

namespace ringattn::kernels {

template <typename Real>
Backward reference_backward();

}  // namespace ringattn::kernels
