// A plan as its numbers and operations, read from previews: nothing runs and nothing is sent.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ringattn.h"
#include "tests/support/problem_line.h"

namespace ringattn::tool {

struct PlannedOperation {
  std::int64_t id = 0;
  std::string kind;  // receive, send, attend, release, pack, finalize
  int peer = -1;     // -1 = none
  int block = -1;    // owner of the K/V; -1 = none
  std::uint64_t bytes = 0;
  double pairs = 0;
};

struct RingPlan {
  std::vector<ringattn_plan_info> infos;                  // of the ranks asked about
  std::string kernel;                                     // "" where the description names none
  std::vector<std::vector<PlannedOperation>> operations;  // of all ranks; empty unless asked for
  std::string description;                                // the library's own JSON; empty unless asked for
};

// The description costs most where there are many ranks.
enum class Detail { figures, operations };

// Throws BadInput where the library refuses the problem. `ranks` is not empty.
RingPlan preview_ranks(const support::ProblemLine& problem, const std::vector<int>& ranks, Detail detail);

// Operations of all ranks in the library's JSON description of a plan. Keys that are not known here are passed
// over. Throws RunFailed where the text is not such a description.
std::vector<std::vector<PlannedOperation>> operations_of(std::string_view description);

}  // namespace ringattn::tool
