// plan_create, its array form, preview and supports: one decision (plan/problem_check.h), with or without
// peers.
#include "api/guard.h"
#include "api/handles.h"
#include "api/plan_desc.h"
#include "api/read_struct.h"
#include "plan/agree.h"
#include "plan/call_check.h"
#include "plan/problem_check.h"
#include "schedule/layout.h"

namespace {

using namespace ringattn;

// One rank's way through plan_create.
struct Making {
  ringattn_comm* comm = nullptr;
  Problem problem;
  std::unique_ptr<ringattn_plan> plan;
};

void refuse(plan::Agreement& agreement, const Status& status) {
  if (status.ok() || agreement.own.verdict != RINGATTN_OK) return;
  agreement.own.verdict = status.code();
  agreement.own.reason = status.message();
}

Status describe_own(Making& making, const ringattn_plan_desc* given, plan::Record& own) {
  const comm::Comm& comm = *making.comm->comm;
  ringattn_plan_desc desc{};
  RINGATTN_TRY(api::read_struct(given, "plan_desc", desc));
  RINGATTN_TRY(plan::check_problem(desc, comm.rank(), comm.world(), making.problem));
  plan::add_problem_fields(making.problem, own);
  if (making.problem.partition == PartitionKind::explicit_runs) {
    own.runs_k = making.problem.runs_k[static_cast<std::size_t>(comm.rank())];
    own.runs_q = making.problem.runs_q[static_cast<std::size_t>(comm.rank())];
  }
  return {};
}

// Everything that can fail after the descriptions agree: cover, kernel, memory.
Status build(Making& making, const std::vector<plan::Record>& records) {
  comm::Comm& comm = *making.comm->comm;
  if (making.problem.partition == PartitionKind::explicit_runs) {
    for (std::size_t rank = 0; rank < records.size(); ++rank) {
      making.problem.runs_k[rank] = records[rank].runs_k;
      making.problem.runs_q[rank] = records[rank].runs_q;
    }
  }
  RINGATTN_TRY(api::check_explicit(making.problem));
  making.plan = std::make_unique<ringattn_plan>();
  ringattn_plan& handle = *making.plan;
  handle.context = making.comm->context;
  handle.comm = making.comm;
  RINGATTN_TRY(plan::make_plan(std::move(making.problem), comm.rank(), comm.world(), comm.lends(),
                               handle.context->pool->max_workers(), handle.plan));
  if ((handle.plan.problem.flags & RINGATTN_PLAN_CALLER_WORKSPACE) == 0) {
    handle.workspace = allocate_aligned(handle.plan.workspace_bytes);
  }
  handle.execution = std::make_unique<ring::Execution>(handle.plan, comm, making.comm->plans_made + 1);
  return {};
}

template <typename Step>
Status no_throw(Step step) {
  try {
    return step();
  } catch (const std::bad_alloc&) {
    return {RINGATTN_ERR_OUT_OF_MEMORY, "out of memory while the plan was made"};
  } catch (const std::length_error&) {
    return {RINGATTN_ERR_OUT_OF_MEMORY, "out of memory: the plan needs more than the address space"};
  }
}

Status overall(const std::vector<plan::Agreement>& agreements) {
  const plan::Agreement* failed = nullptr;
  for (const plan::Agreement& agreement : agreements) {
    if (agreement.status.ok()) continue;
    if (range_of(agreement.status.code()) == StatusRange::call) {
      if (agreements.size() == 1) return agreement.status;
      return {agreement.status.code(),
              "rank " + std::to_string(agreement.comm->rank()) + ": " + agreement.status.message()};
    }
    if (failed == nullptr) failed = &agreement;
  }
  return failed == nullptr ? Status() : failed->status;
}

Status make_all(std::vector<Making>& makings, const ringattn_plan_desc* descs,
                std::vector<plan::Agreement>& agreements) {
  for (std::size_t i = 0; i < makings.size(); ++i) {
    plan::Agreement& agreement = agreements[i];
    agreement.comm = makings[i].comm->comm.get();
    agreement.own.fields.emplace_back("collective call", "plan_create");
    const ringattn_plan_desc* desc =
        descs == nullptr || i == 0 ? descs : api::array_at(descs, static_cast<std::int64_t>(i));
    refuse(agreement, no_throw([&] { return describe_own(makings[i], desc, agreement.own); }));
  }
  plan::agree(agreements, true);
  RINGATTN_TRY(overall(agreements));
  std::vector<plan::Agreement> built(agreements.size());
  for (std::size_t i = 0; i < makings.size(); ++i) {
    built[i].comm = agreements[i].comm;
    refuse(built[i], no_throw([&] { return build(makings[i], agreements[i].records); }));
  }
  plan::agree(built, false);
  return overall(built);
}

void log_plan(const ringattn_plan& handle) {
  const Log& log = handle.context->log;
  if (handle.plan.rank != 0 || !log.wants(RINGATTN_LOG_INFO)) return;
  Call full;
  if (!plan::check_call(handle.plan.problem, nullptr, full).ok()) return;
  log.write(RINGATTN_LOG_INFO, "plan: " + plan::describe_text(handle.plan, full) + "; kernel " +
                                   handle.plan.kernel->name + ", transport " +
                                   handle.comm->comm->transport_name() + ", workspace " +
                                   std::to_string(handle.plan.workspace_bytes) + " bytes");
}

// Of more, a comm that comes twice is found busy: to look at all pairs would cost more than it helps.
constexpr std::int32_t kFewComms = 256;

Status check_comms(std::int32_t count, ringattn_comm* const* comms) {
  for (std::int32_t i = 0; i < count; ++i) {
    if (comms[i] == nullptr && count > 1)
      return invalid("comms[" + std::to_string(i) + "]: NULL, expected a handle");
    RINGATTN_TRY(api::check_handle(comms[i], "comm"));
    if (comms[i]->context != comms[0]->context)
      return invalid("comms[" + std::to_string(i) + "]: of another context, expected all of one");
    for (std::int32_t j = 0; j < i && count <= kFewComms; ++j) {
      if (comms[j] != comms[i]) continue;
      return invalid("comms[" + std::to_string(i) + "]: the same as comms[" + std::to_string(j) +
                     "], expected each comm once");
    }
    RINGATTN_TRY(comms[i]->comm->state());
  }
  return {};
}

Status create(std::int32_t count, ringattn_comm* const* comms, const ringattn_plan_desc* descs,
              ringattn_plan** out) {
  if (count < 1 || count > kMaxWorldSize)
    return invalid("count: " + std::to_string(count) + ", expected 1..4096");
  if (out == nullptr) return invalid("out: NULL, expected room for count handles");
  for (std::int32_t i = 0; i < count; ++i) out[i] = nullptr;
  if (comms == nullptr) return invalid("comms: NULL, expected count handles");
  if (count > 1 && descs != nullptr) RINGATTN_TRY(api::check_struct_size(descs, "plan_desc"));
  RINGATTN_TRY(check_comms(count, comms));
  std::vector<Making> makings(static_cast<std::size_t>(count));
  for (std::int32_t i = 0; i < count; ++i) makings[static_cast<std::size_t>(i)].comm = comms[i];
  api::BusyComms busy;
  for (std::int32_t i = 0; i < count; ++i) RINGATTN_TRY(busy.take(*comms[i]->comm));
  std::vector<plan::Agreement> agreements(static_cast<std::size_t>(count));
  RINGATTN_TRY(make_all(makings, descs, agreements));
  for (std::int32_t i = 0; i < count; ++i) {
    Making& making = makings[static_cast<std::size_t>(i)];
    ++making.comm->plans_made;
    making.comm->children.fetch_add(1);
    out[i] = making.plan.release();
    log_plan(*out[i]);
  }
  return {};
}

Status preview(ringattn_context* context, const ringattn_plan_desc* given, std::int32_t rank,
               std::int32_t world, const ringattn_facts* given_facts, plan::Plan& out) {
  RINGATTN_TRY(api::check_handle(context, "context"));
  if (world < 1 || world > kMaxWorldSize)
    return invalid("world_size: " + std::to_string(world) + ", expected 1..4096");
  if (rank < 0 || rank >= world) {
    return invalid("rank: " + std::to_string(rank) + ", expected 0.." + std::to_string(world - 1));
  }
  ringattn_facts facts{};
  if (given_facts != nullptr) RINGATTN_TRY(api::read_struct(given_facts, "facts", facts));
  if (facts.lends != 0 && facts.lends != 1)
    return invalid("facts.lends: " + std::to_string(facts.lends) + ", expected 0 or 1");
  ringattn_plan_desc desc{};
  RINGATTN_TRY(api::read_struct(given, "plan_desc", desc));
  Problem problem;
  RINGATTN_TRY(plan::check_problem(desc, rank, world, problem));
  if (problem.partition == PartitionKind::explicit_runs)
    RINGATTN_TRY(api::read_all_runs(facts, rank, world, problem));
  return plan::make_plan(std::move(problem), rank, world, facts.lends == 1, context->pool->max_workers(),
                         out);
}

}  // namespace

extern "C" {

ringattn_status ringattn_plan_create(ringattn_comm* comm, const ringattn_plan_desc* desc,
                                     ringattn_plan** out) {
  return api::guarded([&] { return create(1, &comm, desc, out); });
}

ringattn_status ringattn_plan_create_array(int32_t count, ringattn_comm* const* comms,
                                           const ringattn_plan_desc* descs, ringattn_plan** out) {
  return api::guarded([&] { return create(count, comms, descs, out); });
}

ringattn_status ringattn_supports(ringattn_context* context, const ringattn_plan_desc* desc) {
  return api::guarded([&] {
    plan::Plan plan;
    ringattn_plan_desc own{};
    // Without peers there are no runs to cover the axis with: what can be judged alone is judged.
    if (desc != nullptr && desc->struct_size >= sizeof own &&
        desc->partition == RINGATTN_PARTITION_EXPLICIT) {
      RINGATTN_TRY(api::check_handle(context, "context"));
      RINGATTN_TRY(api::read_struct(desc, "plan_desc", own));
      Problem problem;
      RINGATTN_TRY(plan::check_problem(own, 0, 1, problem));
      return plan::make_plan(std::move(problem), 0, 1, false, 1, plan);
    }
    return preview(context, desc, 0, 1, nullptr, plan);
  });
}

ringattn_status ringattn_plan_preview(ringattn_context* context, const ringattn_plan_desc* desc, int32_t rank,
                                      int32_t world_size, const ringattn_facts* facts, ringattn_plan** out) {
  return api::guarded([&]() -> Status {
    if (out == nullptr) return invalid("out: NULL, expected an address");
    *out = nullptr;
    auto handle = std::make_unique<ringattn_plan>();
    RINGATTN_TRY(no_throw([&] { return preview(context, desc, rank, world_size, facts, handle->plan); }));
    handle->context = context;
    context->children.fetch_add(1);
    *out = handle.release();
    return {};
  });
}

void ringattn_plan_destroy(ringattn_plan* plan) {
  if (plan == nullptr || plan->generation != process_generation()) return;
  if (plan->children.load() != 0) {
    plan->context->log.write(RINGATTN_LOG_ERROR,
                             "plan_destroy: a request is still alive; nothing was destroyed");
    return;
  }
  if (plan->execution != nullptr && plan->execution->under_way()) {
    plan->context->log.write(RINGATTN_LOG_ERROR,
                             "plan_destroy: another thread is executing it; nothing was destroyed");
    return;
  }
  if (plan->comm != nullptr) {
    plan->comm->children.fetch_sub(1);
  } else {
    plan->context->children.fetch_sub(1);
  }
  delete plan;
}

}  // extern "C"
