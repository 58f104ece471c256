// A ProblemLine in the structs of ringattn.h: the descriptions of all ranks and the values of the call.
#pragma once

#include <cstdint>
#include <vector>

#include "ringattn.h"
#include "tests/support/problem_line.h"

namespace ringattn::support {

// Owns every array that the structs point to; neither copied nor moved, so the pointers stay good.
class ProblemPlan {
 public:
  explicit ProblemPlan(const ProblemLine& problem);
  ProblemPlan(const ProblemPlan&) = delete;
  ProblemPlan& operator=(const ProblemPlan&) = delete;

  // One description a rank; they differ only in their runs (EXPLICIT).
  const std::vector<ringattn_plan_desc>& descs() const { return descs_; }
  std::vector<ringattn_plan_desc>& descs() { return descs_; }
  const ringattn_plan_desc& desc(int rank) const { return descs_[static_cast<std::size_t>(rank)]; }
  // For ringattn_plan_preview: the descriptions of all ranks where EXPLICIT needs them.
  ringattn_facts facts(bool lends) const;
  // NULL where the problem names neither documents nor an offset.
  const ringattn_call* call() const { return has_call_ ? &call_ : nullptr; }

 private:
  void cut_explicit(const ProblemLine& problem);

  std::vector<ringattn_plan_desc> descs_;
  std::vector<std::vector<ringattn_run>> runs_k_, runs_q_;  // [rank]
  std::vector<std::int64_t> cu_q_, cu_k_;
  ringattn_call call_{};
  bool has_call_ = false;
};

}  // namespace ringattn::support
