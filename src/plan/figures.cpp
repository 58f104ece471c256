#include <algorithm>
#include <limits>

#include "plan/plan.h"
#include "schedule/visible.h"

namespace ringattn::plan {

double Pairs::rank_total(std::int32_t rank) const {
  double total = 0;
  for (std::int32_t block = 0; block < world; ++block)
    total += of[static_cast<std::size_t>(rank * world + block)];
  return total;
}

Pairs count_pairs(const Plan& plan, const schedule::Layout& layout) {
  const Problem& p = plan.problem;
  Pairs pairs;
  pairs.world = plan.world;
  pairs.of.assign(static_cast<std::size_t>(plan.world) * static_cast<std::size_t>(plan.world), 0);
  // With one list of sequences for all rows, every row of the batch has the same pairs.
  const double weight =
      static_cast<double>(p.heads) * (layout.rows() == 1 ? static_cast<double>(p.batch) : 1.0);
  for (std::int32_t rank = 0; rank < plan.world; ++rank) {
    for (std::int32_t block = 0; block < plan.world; ++block) {
      double& sum = pairs.of[static_cast<std::size_t>(rank * plan.world + block)];
      for (std::int64_t row = 0; row < layout.rows(); ++row) {
        sum += weight * schedule::visible_pairs(layout.queries(rank, row), layout.keys(block, row), p.mask);
      }
    }
  }
  return pairs;
}

namespace {

// A received block travels while the step before the one that uses it is computed.
double overlap_threshold(const Plan& plan, const schedule::Schedule& schedule, const Pairs& pairs) {
  const double per_pair = 2.0 * static_cast<double>(plan.problem.head_dim_qk + plan.problem.head_dim_v);
  double least = std::numeric_limits<double>::infinity();
  double flops_before = 0;
  for (const schedule::Operation& operation : schedule.operations) {
    if (operation.kind != schedule::Kind::attend) continue;
    const double flops =
        per_pair * pairs.of[static_cast<std::size_t>(plan.rank * plan.world + operation.block)];
    for (const std::int32_t index : schedule.after_of(operation)) {
      const schedule::Operation& before = schedule.operations[static_cast<std::size_t>(index)];
      if (before.kind == schedule::Kind::receive && before.bytes > 0) {
        least = std::min(least, flops_before / static_cast<double>(before.bytes));
      }
    }
    flops_before = flops;
  }
  return least;
}

}  // namespace

Status make_info(const Plan& plan, const Call& call, ringattn_plan_info& out) {
  schedule::Layout layout;
  layout.reserve(plan.problem, plan.world);
  RINGATTN_TRY(layout.build(plan.problem, plan.world, call));
  schedule::Schedule schedule;
  schedule::generate_ring(plan.problem, layout, plan.rank, plan.lends, false, schedule);
  const Pairs pairs = count_pairs(plan, layout);
  out.rank = plan.rank;
  out.world_size = plan.world;
  out.local_q = layout.local_queries(plan.rank);
  out.local_k = layout.local_keys(plan.rank);
  out.local_capacity_q = plan.capacity_q;
  out.local_capacity_k = plan.capacity_k;
  out.workspace_bytes = plan.workspace_bytes;
  out.workspace_alignment = 64;
  for (const schedule::Operation& operation : schedule.operations) {
    if (operation.kind == schedule::Kind::attend) ++out.steps;
    if (operation.kind == schedule::Kind::send) out.bytes_sent += operation.bytes;
    if (operation.kind == schedule::Kind::receive) out.bytes_received += operation.bytes;
  }
  for (std::int32_t rank = 0; rank < plan.world; ++rank) {
    const double total = pairs.rank_total(rank);
    out.pairs_max = std::max(out.pairs_max, total);
    out.pairs_mean += total / plan.world;
    if (rank == plan.rank) out.pairs = total;
  }
  out.flops = 2.0 * static_cast<double>(plan.problem.head_dim_qk + plan.problem.head_dim_v) * out.pairs;
  out.overlap_flops_per_byte = overlap_threshold(plan, schedule, pairs);
  if (!plan.problem.backward()) return {};
  schedule::generate_ring(plan.problem, layout, plan.rank, plan.lends, true, schedule);
  for (const schedule::Operation& operation : schedule.operations) {
    if (operation.kind == schedule::Kind::send) out.backward_bytes_sent += operation.bytes;
    if (operation.kind == schedule::Kind::receive) out.backward_bytes_received += operation.bytes;
  }
  out.backward_flops =
      2.0 * static_cast<double>(3 * plan.problem.head_dim_qk + 2 * plan.problem.head_dim_v) * out.pairs;
  return {};
}

}  // namespace ringattn::plan
