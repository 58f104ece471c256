// From a tensor of the caller to a checked view.
#pragma once
#include "base/status.h"
#include "base/tensor.h"

namespace ringattn::api {

enum class TensorUse { input, output };

// Checks struct, device, dtype (0 = any), shape[i] against wanted[i] (-1 = any), strides, and that all
// bytes can be addressed; an output must not overlap itself. Names the tensor in every message.
Status read_tensor(const ringattn_tensor* given, const char* name, TensorUse use, std::int32_t dtype,
                   const std::int64_t (&wanted)[4], TensorView& out);

// False only where the two can be told apart: different memory, or interleaved slices of one buffer.
bool may_overlap(const TensorView& a, const TensorView& b);

const char* dtype_text(std::int32_t dtype);

}  // namespace ringattn::api
