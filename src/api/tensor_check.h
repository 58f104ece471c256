// From a tensor of the caller to a checked view.
#pragma once
#include "base/status.h"
#include "base/tensor.h"
#include "plan/plan.h"
#include "ring/execution.h"

namespace ringattn::api {

enum class TensorUse { input, output };

// Checks struct, device, dtype (0 = any), shape[i] against wanted[i] (-1 = any), strides, and that all
// bytes can be addressed; an output must not overlap itself. Names the tensor in every message.
Status read_tensor(const ringattn_tensor* given, const char* name, TensorUse use, std::int32_t dtype,
                   const std::int64_t (&wanted)[4], TensorView& out);

// q, k and v: this rank's shards of inputs, as long as the call and the plan's capacity allow.
Status read_shards(const plan::Plan& plan, const schedule::Layout& layout, const ringattn_tensor* q,
                   const ringattn_tensor* k, const ringattn_tensor* v, ring::Tensors& out);

const char* dtype_text(std::int32_t dtype);

}  // namespace ringattn::api
