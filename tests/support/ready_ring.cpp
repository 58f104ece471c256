#include "tests/support/ready_ring.h"

#include <stdexcept>
#include <string>

namespace ringattn::support {

void require_ok(ringattn_status status, const char* what) {
  if (status == RINGATTN_OK) return;
  throw std::runtime_error(std::string(what) + ": " + ringattn_status_name(status) + ": " +
                           ringattn_last_error());
}

CommRing::CommRing(int ranks, const RingOptions& options) : comms_(static_cast<std::size_t>(ranks), nullptr) {
  ringattn_context_desc context_desc = RINGATTN_STRUCT(ringattn_context_desc);
  context_desc.threads = options.threads;
  context_desc.progress_thread = options.progress_thread;
  require_ok(ringattn_context_create(&context_desc, &context_), "ringattn_context_create");
  ringattn_comm_desc comm_desc = RINGATTN_STRUCT(ringattn_comm_desc);
  comm_desc.world_size = ranks;
  comm_desc.timeout_ms = options.timeout_ms;
  comm_desc.arrival_timeout_ms = options.arrival_timeout_ms;
  comm_desc.transport = options.transport;
  require_ok(ringattn_comm_create_local(context_, &comm_desc, comms_.data()), "ringattn_comm_create_local");
}

CommRing::~CommRing() {
  for (ringattn_comm* comm : comms_) ringattn_comm_destroy(comm);
  ringattn_context_destroy(context_);
}

PlanRing::PlanRing(const CommRing& ring, const ProblemLine& problem, std::uint32_t plan_flags)
    : problem_(problem), values_(problem_), plans_(static_cast<std::size_t>(ring.ranks()), nullptr) {
  for (ringattn_plan_desc& desc : values_.descs()) desc.flags = plan_flags;
  require_ok(ringattn_plan_create_array(ring.ranks(), ring.comms(), values_.descs().data(), plans_.data()),
             "ringattn_plan_create_array");
}

PlanRing::~PlanRing() {
  for (ringattn_plan* plan : plans_) ringattn_plan_destroy(plan);
}

ringattn_plan_info PlanRing::info(int rank, const ringattn_call* call) const {
  ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
  require_ok(ringattn_plan_get_info(plan(rank), call, &info), "ringattn_plan_get_info");
  return info;
}

std::unique_ptr<RankTensors> PlanRing::shard(int rank, const Inputs& inputs,
                                             const ringattn_call* call) const {
  const ringattn_plan_info sizes = info(rank, call);
  auto tensors =
      std::make_unique<RankTensors>(problem_, sizes.local_capacity_q, sizes.local_capacity_k, call);
  const ringattn_tensor q = inputs.q.view(), k = inputs.k.view(), v = inputs.v.view();
  require_ok(ringattn_shard(plan(rank), RINGATTN_AXIS_QUERY, rank, call, &q, &tensors->q_view),
             "ringattn_shard of q");
  require_ok(ringattn_shard(plan(rank), RINGATTN_AXIS_KEY, rank, call, &k, &tensors->k_view),
             "ringattn_shard of k");
  require_ok(ringattn_shard(plan(rank), RINGATTN_AXIS_KEY, rank, call, &v, &tensors->v_view),
             "ringattn_shard of v");
  return tensors;
}

ReadyRing::ReadyRing(const ProblemLine& problem, const Inputs& inputs, const RingOptions& options)
    : comms_(problem.ranks, options), plans_(comms_, problem, options.plan_flags) {
  for (int rank = 0; rank < problem.ranks; ++rank) {
    tensors_.push_back(plans_.shard(rank, inputs, plans_.values().call()));
  }
}

ringattn_status ReadyRing::forward(int rank, ringattn_request** request) {
  return ringattn_forward(plan(rank), &tensors(rank).args, request);
}

ringattn_status ReadyRing::forward_all(ringattn_request** request) {
  std::vector<ringattn_forward_args> args;
  for (const auto& rank : tensors_) args.push_back(rank->args);
  return ringattn_forward_array(comms_.ranks(), plans_.plans(), args.data(), request);
}

std::uint64_t ReadyRing::hash() const {
  std::uint64_t hash = 0;
  for (const auto& rank : tensors_) hash = (hash * 31 + rank->o.hash()) * 31 + rank->lse.hash();
  return hash;
}

}  // namespace ringattn::support
