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

// The sums of dK and dV: the own block's, two on their way to other ranks, one that arrives by copy.
void lay_out_gradients(const Plan& plan, Workspace& w, Parts& parts) {
  w.gradients[schedule::kHomeGradient] = parts.take(schedule::gradient_bytes(plan.problem, plan.capacity_k));
  if (plan.world == 1) return;
  const std::uint64_t most = schedule::gradient_bytes(plan.problem, plan.most_capacity_k);
  for (std::int32_t i = 0; i < schedule::kSums; ++i) w.gradients[schedule::kFirstSum + i] = parts.take(most);
  if (!plan.lends) w.gradients[schedule::kArrival] = parts.take(most);
}

Status lay_out(const Plan& plan, bool backward, Workspace& w) {
  Parts parts;
  if (!plan.lends && plan.world > 1) {
    const std::uint64_t block = schedule::block_bytes(plan.problem, plan.most_capacity_k);
    w.receive[0] = parts.take(block);
    w.receive[1] = parts.take(block);
    w.packed = parts.take(schedule::block_bytes(plan.problem, plan.capacity_k));
  }
  if (backward) lay_out_gradients(plan, w, parts);
  const kernels::Kernel& kernel = *plan.kernel;
  const std::size_t state =
      backward ? kernel.backward.state_bytes(plan.shape) : kernel.state_bytes(plan.shape);
  const std::size_t scratch =
      backward ? kernel.backward.scratch_bytes(plan.shape) : kernel.scratch_bytes(plan.shape);
  w.state_bytes = round_up(state, kAlignment);
  const std::int64_t rows = plan.problem.batch * plan.problem.kv_heads;
  w.states =
      parts.take(static_cast<__int128>(w.state_bytes) * rows * plan.tiles_per_row(plan.capacity_q, backward));
  w.scratch_bytes = round_up(scratch, kAlignment);
  w.scratch = parts.take(static_cast<__int128>(w.scratch_bytes) * plan.workers);
  if (!parts.fits()) {
    return invalid(
        "batch, seq_q, seq_k, heads, head_dim_v: the workspace overflows 64 bits, expected less than 2^62 "
        "bytes");
  }
  w.bytes = parts.used();
  return {};
}

// Tiles, and the positions that each passes: a block (backward: a range of its keys), then finalize.
void count_tiles(Plan& plan) {
  const Problem& p = plan.problem;
  const std::int64_t rows = p.batch * p.kv_heads;
  plan.most_tiles = rows * plan.tiles_per_row(plan.capacity_q, false);
  plan.most_positions = plan.world + 1;
  if (!p.backward()) return;
  plan.most_tiles = std::max(plan.most_tiles, rows * plan.tiles_per_row(plan.capacity_q, true));
  const std::int64_t keys = plan.kernel->backward.keys_per_task;
  std::int64_t positions = 1;
  for (std::int32_t r = 0; r < plan.world; ++r)
    positions += (schedule::local_capacity_keys(p, r, plan.world) + keys - 1) / keys;
  plan.most_positions = std::max(plan.most_positions, positions);
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
                p.accuracy == RINGATTN_ACCURACY_EXACT,
                p.dtype_grad};
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
  count_tiles(plan);
  RINGATTN_TRY(lay_out(plan, false, plan.forward));
  if (p.backward()) RINGATTN_TRY(lay_out(plan, true, plan.backward));
  plan.workspace_bytes = std::max(plan.forward.bytes, plan.backward.bytes);
  out = std::move(plan);
  return {};
}

void make_schedules(const Plan& plan, const schedule::Layout& layout, bool backward,
                    std::vector<schedule::Schedule>& out) {
  out.resize(static_cast<std::size_t>(plan.world));
  for (std::int32_t rank = 0; rank < plan.world; ++rank) {
    schedule::generate_ring(plan.problem, layout, rank, plan.lends, backward,
                            out[static_cast<std::size_t>(rank)]);
  }
}

}  // namespace ringattn::plan
