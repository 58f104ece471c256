// Plans that run forward and backward on every rank of comms that somebody else owns, with the shards of all
// inputs: what a training step needs.
#pragma once

#include <memory>
#include <vector>

#include "tests/support/ready_ring.h"

namespace ringattn::support {

class TrainingRing {
 public:
  TrainingRing(const CommRing& comms, const ProblemLine& problem, const Inputs& inputs)
      : plans_(comms, problem, RINGATTN_PLAN_BACKWARD), ranks_(comms.ranks()) {
    const ringattn_call* const call = plans_.values().call();
    const ringattn_tensor d_o = inputs.d_o.view();
    for (int rank = 0; rank < ranks_; ++rank) {
      tensors_.push_back(plans_.shard(rank, inputs, call));
      require_ok(
          ringattn_shard(plans_.plan(rank), RINGATTN_AXIS_QUERY, rank, call, &d_o, &tensors(rank).d_o_view),
          "ringattn_shard of d_o");
    }
  }

  int ranks() const { return ranks_; }
  const PlanRing& plans() const { return plans_; }
  RankTensors& tensors(int rank) { return *tensors_[static_cast<std::size_t>(rank)]; }

  ringattn_status forward(int rank, ringattn_request** request = nullptr) {
    return ringattn_forward(plans_.plan(rank), &tensors(rank).args, request);
  }
  ringattn_status backward(int rank, ringattn_request** request = nullptr) {
    return ringattn_backward(plans_.plan(rank), &tensors(rank).backward_args, request);
  }
  ringattn_status forward_all(ringattn_request** request = nullptr) {
    forward_args_.clear();
    for (const auto& rank : tensors_) forward_args_.push_back(rank->args);
    return ringattn_forward_array(ranks_, plans_.plans(), forward_args_.data(), request);
  }
  ringattn_status backward_all(ringattn_request** request = nullptr) {
    backward_args_.clear();
    for (const auto& rank : tensors_) backward_args_.push_back(rank->backward_args);
    return ringattn_backward_array(ranks_, plans_.plans(), backward_args_.data(), request);
  }

  void poison_outputs() {
    for (const auto& rank : tensors_) rank->poison_outputs();
  }
  // Of O and lse, and of the gradients; rank by rank.
  std::uint64_t hash() const {
    std::uint64_t hash = 0;
    for (const auto& rank : tensors_) {
      for (const HostTensor* tensor : {&rank->o, &rank->lse, &rank->d_q, &rank->d_k, &rank->d_v})
        hash = hash * 31 + tensor->hash();
    }
    return hash;
  }

 private:
  PlanRing plans_;
  int ranks_;
  std::vector<std::unique_ptr<RankTensors>> tensors_;
  std::vector<ringattn_forward_args> forward_args_;  // kept, so that a warm call makes no list
  std::vector<ringattn_backward_args> backward_args_;
};

// The bits of forward and backward by one thread over the transport that the library chooses.
inline std::uint64_t answer_of_training(const ProblemLine& problem, const Inputs& inputs) {
  const CommRing comms(problem.ranks);
  TrainingRing ring(comms, problem, inputs);
  require_ok(ring.forward_all(), "forward");
  require_ok(ring.backward_all(), "backward");
  return ring.hash();
}

}  // namespace ringattn::support
