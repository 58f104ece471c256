// One rank's shards, with the argument struct of ringattn_forward that points to them.
#pragma once

#include <cstdint>

#include "ringattn.h"
#include "tests/support/host_tensor.h"
#include "tests/support/problem_line.h"

namespace ringattn::support {

// Inputs start as NaN, so that a row which nobody shards but somebody reads is seen; so do the outputs. Neither copied nor
// moved: the argument struct points into it.
struct RankTensors {
  RankTensors(const ProblemLine& problem, std::int64_t rows_q, std::int64_t rows_k,
              const ringattn_call* call);
  RankTensors(const RankTensors&) = delete;
  RankTensors& operator=(const RankTensors&) = delete;

  void poison_outputs();

  HostTensor q, k, v, o, lse;
  ringattn_tensor q_view, k_view, v_view, o_view, lse_view;
  ringattn_forward_args args;
};

}  // namespace ringattn::support
