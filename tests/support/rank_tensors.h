// One rank's shards, with the argument structs of ringattn_forward and ringattn_backward that point to them.
#pragma once

#include <cstdint>

#include "ringattn.h"
#include "tests/support/host_tensor.h"
#include "tests/support/problem_line.h"

namespace ringattn::support {

// Inputs start as NaN, so that a row which nobody shards but somebody reads is seen; so do the outputs.
// Neither copied nor moved: the argument structs point into it.
struct RankTensors {
  RankTensors(const ProblemLine& problem, std::int64_t rows_q, std::int64_t rows_k,
              const ringattn_call* call);
  RankTensors(const RankTensors&) = delete;
  RankTensors& operator=(const RankTensors&) = delete;

  void poison_outputs();

  HostTensor q, k, v, o, lse;
  HostTensor d_o, d_lse, d_q, d_k, d_v;  // with pass=backward, else empty
  ringattn_tensor q_view, k_view, v_view, o_view, lse_view;
  ringattn_tensor d_o_view, d_lse_view, d_q_view, d_k_view, d_v_view;
  ringattn_forward_args args;
  ringattn_backward_args backward_args;  // d_lse is NULL; whoever has one sets it to &d_lse_view
};

}  // namespace ringattn::support
