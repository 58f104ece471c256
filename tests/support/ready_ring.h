// A ring that is ready to compute, for tests that drive single calls: context, comms, plans, sharded inputs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ringattn.h"
#include "tests/support/problem_line.h"
#include "tests/support/problem_plan.h"
#include "tests/support/random_data.h"
#include "tests/support/rank_tensors.h"

namespace ringattn::support {

struct RingOptions {
  int threads = 1;
  int progress_thread = 0;
  int timeout_ms = 0;          // as in ringattn_comm_desc
  int arrival_timeout_ms = 0;  //
  const char* transport = nullptr;
  std::uint32_t plan_flags = 0;
};

// A context and the comms of all ranks. Failures throw std::runtime_error with the library's message.
class CommRing {
 public:
  CommRing(int ranks, const RingOptions& options = {});
  ~CommRing();
  CommRing(const CommRing&) = delete;
  CommRing& operator=(const CommRing&) = delete;

  int ranks() const { return static_cast<int>(comms_.size()); }
  ringattn_context* context() const { return context_; }
  ringattn_comm* comm(int rank) const { return comms_[static_cast<std::size_t>(rank)]; }
  ringattn_comm* const* comms() const { return comms_.data(); }

 private:
  ringattn_context* context_ = nullptr;
  std::vector<ringattn_comm*> comms_;
};

// Plans of all ranks on a CommRing that somebody else owns.
class PlanRing {
 public:
  PlanRing(const CommRing& ring, const ProblemLine& problem, std::uint32_t plan_flags = 0);
  ~PlanRing();
  PlanRing(const PlanRing&) = delete;
  PlanRing& operator=(const PlanRing&) = delete;

  ringattn_plan* plan(int rank) const { return plans_[static_cast<std::size_t>(rank)]; }
  ringattn_plan* const* plans() const { return plans_.data(); }
  const ProblemLine& problem() const { return problem_; }
  const ProblemPlan& values() const { return values_; }
  ringattn_plan_info info(int rank, const ringattn_call* call) const;

  // Tensors of one rank's whole local capacity, with its shard of the inputs for these values of the call.
  std::unique_ptr<RankTensors> shard(int rank, const Inputs& inputs, const ringattn_call* call) const;

 private:
  ProblemLine problem_;
  ProblemPlan values_;
  std::vector<ringattn_plan*> plans_;
};

// All of it for one problem and its own call.
class ReadyRing {
 public:
  ReadyRing(const ProblemLine& problem, const Inputs& inputs, const RingOptions& options = {});

  const CommRing& comms() const { return comms_; }
  const PlanRing& plans() const { return plans_; }
  ringattn_plan* plan(int rank) const { return plans_.plan(rank); }
  RankTensors& tensors(int rank) { return *tensors_[static_cast<std::size_t>(rank)]; }

  ringattn_status forward(int rank, ringattn_request** request = nullptr);
  ringattn_status forward_all(ringattn_request** request = nullptr);
  // Hash of all outputs, rank by rank.
  std::uint64_t hash() const;

 private:
  CommRing comms_;
  PlanRing plans_;
  std::vector<std::unique_ptr<RankTensors>> tensors_;
};

// Throws std::runtime_error with `what` and the library's message unless status is OK.
void require_ok(ringattn_status status, const char* what);

}  // namespace ringattn::support
