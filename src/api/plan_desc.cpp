#include "api/plan_desc.h"

#include "api/read_struct.h"
#include "plan/problem_check.h"
#include "schedule/layout.h"

namespace ringattn::api {

Status check_explicit(const Problem& problem) {
  if (problem.partition != PartitionKind::explicit_runs) return {};
  RINGATTN_TRY(schedule::check_cover(problem.runs_k, problem.seq_k, "runs_k"));
  if (problem.query_like_keys) return {};
  return schedule::check_cover(problem.runs_q, problem.seq_q, "runs_q");
}

Status read_all_runs(const ringattn_facts& facts, std::int32_t rank, std::int32_t world, Problem& problem) {
  if (facts.descs == nullptr && world > 1) {
    return invalid("facts.descs: NULL, expected the descriptions of all " + std::to_string(world) +
                   " ranks, as partition is EXPLICIT");
  }
  for (std::int32_t r = 0; r < world && facts.descs != nullptr; ++r) {
    if (r == rank) continue;
    if (r == 0 || r == 1) RINGATTN_TRY(check_struct_size(facts.descs, "facts.descs[0]"));
    ringattn_plan_desc desc{};
    const std::string name = "facts.descs[" + std::to_string(r) + "]";
    RINGATTN_TRY(read_struct(array_at(facts.descs, r), name.c_str(), desc));
    Problem other;
    RINGATTN_TRY(plan::check_problem(desc, r, world, other));
    if (other.partition != PartitionKind::explicit_runs)
      return invalid(name + ".partition: expected EXPLICIT on every rank");
    problem.runs_k[static_cast<std::size_t>(r)] = other.runs_k[static_cast<std::size_t>(r)];
    problem.runs_q[static_cast<std::size_t>(r)] = other.runs_q[static_cast<std::size_t>(r)];
  }
  return check_explicit(problem);
}

}  // namespace ringattn::api
