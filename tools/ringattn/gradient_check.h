// Gradients against fp64, within the limits of D21: twice the error of a plain implementation in the input's
// dtype.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "ringattn.h"
#include "tests/support/limits.h"
#include "tests/support/problem_line.h"

namespace ringattn::tool {

// Dense views of global tensors; all are borrowed. Where there is a reference, the gradient is compared with
// it; the limits always come from the fp64 answer computed here.
struct GradientAnswer {
  ringattn_tensor q, k, v, d_o;
  std::optional<ringattn_tensor> d_lse;
  ringattn_tensor d_q, d_k, d_v;
  std::optional<ringattn_tensor> d_q_ref, d_k_ref, d_v_ref;  // F32
  // The O that backward was given, so that its rounding is not held against the gradients; else it is.
  std::optional<ringattn_tensor> o = std::nullopt;
};

struct GradientVerdict {
  support::LimitResult d_q, d_k, d_v;
  bool ok() const { return d_q.ok && d_k.ok && d_v.ok; }
};

// `progress` (may be empty) is told the part that is done, from one thread at a time.
GradientVerdict check_gradients(const support::ProblemLine& problem, const GradientAnswer& answer,
                                const std::function<void(double)>& progress);

// Three lines for people: error beside limit.
std::string to_text(const GradientVerdict& verdict);

}  // namespace ringattn::tool
