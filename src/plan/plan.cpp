#include "plan/plan.h"

#include <algorithm>

#include "base/env.h"
#include "base/memory.h"

namespace ringattn::plan {
namespace {

// Hands out parts of the workspace one after the other.
class Parts {
 public:
  std::uint64_t take(__int128 bytes) {
    const std::uint64_t at = static_cast<std::uint64_t>(used_);
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }
  bool fits() const { return used_ < (static_cast<__int128>(1) << 62); }
  std::uint64_t used() const { return static_cast<std::uint64_t>(used_); }

 private:
  __int128 used_ = 0;
};

Status lay_out(Plan& plan) {
  Workspace& w = plan.workspace;
  Parts parts;
  if (!plan.lends && plan.world > 1) {
    const std::uint64_t block = schedule::block_bytes(plan.problem, plan.most_capacity_k);
    w.receive[0] = parts.take(block);
    w.receive[1] = parts.take(block);
    w.packed = parts.take(schedule::block_bytes(plan.problem, plan.capacity_k));
  }
  w.state_bytes = round_up(plan.kernel->state_bytes(plan.shape), kAlignment);
  w.states = parts.take(static_cast<__int128>(w.state_bytes) * plan.most_tiles);
  w.scratch_bytes = round_up(plan.kernel->scratch_bytes(plan.shape), kAlignment);
  w.scratch = parts.take(static_cast<__int128>(w.scratch_bytes) * plan.workers);
  if (!parts.fits()) return invalid("batch, seq_q, heads, head_dim_v: the workspace overflows 64 bits");
  w.bytes = parts.used();
  return {};
}

}  // namespace

Status make_plan(Problem problem, std::int32_t rank, std::int32_t world, bool lends, std::int32_t workers,
                 Plan& out) {
  Plan plan;
  plan.problem = std::move(problem);
  plan.rank = rank;
  plan.world = world;
  plan.lends = lends;
  plan.workers = workers;
  const Problem& p = plan.problem;
  plan.shape = {p.head_dim_qk,
                p.head_dim_v,
                p.group(),
                p.dtype,
                p.dtype_out,
                p.scale,
                p.accuracy == RINGATTN_ACCURACY_EXACT};
  const kernels::Choice choice = kernels::choose(p, env_value(kEnvForceKernel));
  if (choice.kernel == nullptr) {
    return {choice.unknown ? RINGATTN_ERR_NOT_FOUND : RINGATTN_ERR_UNSUPPORTED, choice.refusal};
  }
  plan.kernel = choice.kernel;
  plan.capacity_q = schedule::local_capacity_queries(p, rank, world);
  plan.capacity_k = schedule::local_capacity_keys(p, rank, world);
  for (std::int32_t r = 0; r < world; ++r) {
    plan.most_capacity_k = std::max(plan.most_capacity_k, schedule::local_capacity_keys(p, r, world));
  }
  plan.most_tiles = p.batch * p.kv_heads * plan.tiles_per_row(plan.capacity_q);
  RINGATTN_TRY(lay_out(plan));
  out = std::move(plan);
  return {};
}

void make_schedules(const Plan& plan, const schedule::Layout& layout, std::vector<schedule::Schedule>& out) {
  out.resize(static_cast<std::size_t>(plan.world));
  for (std::int32_t rank = 0; rank < plan.world; ++rank) {
    schedule::generate_ring(plan.problem, layout, rank, plan.lends, out[static_cast<std::size_t>(rank)]);
  }
}

}  // namespace ringattn::plan
