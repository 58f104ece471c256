// The steps behind run_ring: run_ring.cpp makes and runs, run_ring_outputs.cpp checks what came out and
// gathers it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/host_pool.h"
#include "tests/support/problem_plan.h"
#include "tests/support/rank_tensors.h"
#include "tests/support/run_ring.h"

namespace ringattn::support {

enum class Pass { kForward, kBackward };

class RingRun {
 public:
  RingRun(const ProblemLine& problem, const RunOptions& options)
      : problem_(problem),
        options_(options),
        plan_values_(problem),
        ranks_(static_cast<std::size_t>(problem.ranks)) {}
  RingRun(const RingRun&) = delete;
  RingRun& operator=(const RingRun&) = delete;
  ~RingRun();

  RunResult run(const Inputs& inputs);

 private:
  // What one rank's call came to; the message is taken before another call of the library can replace it.
  struct Outcome {
    ringattn_status status = RINGATTN_OK;
    std::string message;
  };
  struct RankState {
    ringattn_comm* comm = nullptr;
    ringattn_plan* plan = nullptr;
    std::unique_ptr<RankTensors> tensors;
    std::uint64_t inputs_hash = 0;  // of the pass that runs
  };
  // A tensor of the whole problem, and the shard of it that a rank has.
  struct Copy {
    const char* name;
    std::int32_t axis;
    ringattn_tensor global, local;
  };

  // Each remembers the first failure and tells whether all is well.
  bool good(const Outcome& outcome, const char* call, int rank = -1);
  bool good(ringattn_status status, const char* call, int rank = -1) {
    return good(outcome_of(status), call, rank);
  }
  bool broken(const std::string& what);
  static Outcome outcome_of(ringattn_status status);

  bool create_comms();
  bool on_threads(const char* call, const std::function<Outcome(std::size_t)>& body);
  bool create_plans();
  bool shard(const Inputs& inputs);

  bool execute();
  bool run_pass(Pass pass);
  Outcome finish(ringattn_status started, ringattn_request* request) const;
  bool pass_on_threads(Pass pass);
  bool pass_array(Pass pass);

  // After a pass: guard bytes, inputs, padding rows.
  bool check_outputs(Pass pass);
  bool local_length(std::size_t rank, std::int32_t axis, std::int64_t batch_row, std::int64_t& length);
  bool check_padding(Pass pass, std::size_t rank, std::int64_t batch_row);
  // o and lse of padding rows become NaN: backward must not read them.
  bool hide_padding();
  bool gather();
  bool unshard(std::size_t rank, const Copy& copy);
  HostTensor unreturned(ringattn_dtype dtype, const HostTensor& local, std::int32_t axis) const;
  bool report();

  const ProblemLine& problem_;
  const RunOptions& options_;
  ProblemPlan plan_values_;
  std::unique_ptr<HostPool> pool_;
  ringattn_context* context_ = nullptr;
  std::vector<RankState> ranks_;
  RunResult result_;
};

// Of all that a pass may only read.
std::uint64_t hash_of_inputs(const RankTensors& tensors, Pass pass);

}  // namespace ringattn::support
