// The tensors that `ringattn attend` reads from a file, checked against each other.
#pragma once
#include <optional>
#include <string>

#include "ringattn.h"
#include "safetensors.h"
#include "tests/support/problem_line.h"

namespace ringattn::tool {

enum class NonFinite { refuse, allow };

// Views into the mapped file, [batch, seq, head, dim]; the references are F32, lse_ref is [batch, head, seq, 1].
struct AttendInput {
  ringattn_dtype dtype = 0;
  std::string dtype_name;  // in the grammar of a problem: f32, f16, bf16
  ringattn_tensor q, k, v;
  std::optional<ringattn_tensor> o_ref, lse_ref;
};

// Throws BadInput with the file's path, the tensor's name and what was expected.
AttendInput read_attend_input(const SafetensorsFile& file, NonFinite policy);

// What else the gradients need: d_o is like o, d_lse F32 [batch, head, seq, 1]; the references are F32.
struct BackwardInput {
  ringattn_tensor d_o;
  std::optional<ringattn_tensor> d_lse;
  std::optional<ringattn_tensor> d_q_ref, d_k_ref, d_v_ref;
};
BackwardInput read_backward_input(const SafetensorsFile& file, const support::ProblemLine& problem,
                                  NonFinite policy);

// Index of the first element that is NaN or infinite; -1 = none.
std::int64_t find_non_finite(const ringattn_tensor& dense);

}  // namespace ringattn::tool
