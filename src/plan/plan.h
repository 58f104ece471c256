// A plan: one checked problem with everything that is decided before it runs. Holds no buffers; a preview
// is just this.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/call.h"
#include "base/problem.h"
#include "base/status.h"
#include "kernels/kernel.h"
#include "schedule/layout.h"
#include "schedule/schedule.h"

namespace ringattn::plan {

// Where everything lies in the workspace of one execution, in bytes from its start; each part is kAlignment
// aligned.
struct Workspace {
  std::uint64_t receive[2] = {0, 0};             // copying transports: two K/V blocks in transit
  std::uint64_t packed = 0;                      // copying transports: the own block in wire form
  std::uint64_t gradients[4] = {0, 0, 0, 0};     // backward, by schedule::kHomeGradient...
  std::uint64_t states = 0, state_bytes = 0;     // one per tile
  std::uint64_t scratch = 0, scratch_bytes = 0;  // one per worker
  std::uint64_t bytes = 0;
};

struct Plan {
  Problem problem;
  std::int32_t rank = 0, world = 1;
  bool lends = false;
  std::int32_t workers = 1;
  kernels::Shape shape{};
  const kernels::Kernel* kernel = nullptr;
  std::int64_t capacity_q = 0, capacity_k = 0;  // local
  std::int64_t most_capacity_k = 0;             // of any rank
  std::int64_t most_tiles = 0;                  // of forward and backward
  std::int64_t most_positions = 0;              // that a tile passes
  Workspace forward, backward;                  // one after the other in the same memory
  std::uint64_t workspace_bytes = 0;

  std::int64_t lanes(bool of_backward) const { return of_backward ? kernel->backward.lanes : kernel->lanes; }
  std::int64_t tiles_per_row(std::int64_t local_q, bool of_backward) const {
    const std::int64_t width = lanes(of_backward);
    return (local_q * problem.group() + width - 1) / width;
  }
};

// Chooses the kernel and lays out the workspace.
Status make_plan(Problem problem, std::int32_t rank, std::int32_t world, bool lends, std::int32_t workers,
                 Plan& out);

// The schedules of all ranks for the values of a call.
void make_schedules(const Plan& plan, const schedule::Layout& layout, bool backward,
                    std::vector<schedule::Schedule>& out);

// Visible pairs by (rank, block), heads and batch included.
struct Pairs {
  std::int32_t world = 0;
  std::vector<double> of;  // [rank * world + block]
  double rank_total(std::int32_t rank) const;
};
Pairs count_pairs(const Plan& plan, const schedule::Layout& layout);

// Figures for the values of a call.
Status make_info(const Plan& plan, const Call& call, ringattn_plan_info& out);

std::string describe_text(const Plan& plan, const Call& call);
Status describe_json(const Plan& plan, const Call& call, std::string& out);

}  // namespace ringattn::plan
