#include "api/execute.h"

#include <algorithm>
#include <span>

#include "api/few_ranks.h"
#include "api/guard.h"
#include "api/memory_check.h"
#include "api/plan_desc.h"
#include "api/read_struct.h"
#include "plan/agree.h"
#include "plan/call_check.h"

namespace ringattn::api {
namespace {

Status check_workspace(const ringattn_plan& handle, const ExecutionCall& call, std::byte** out) {
  if ((handle.plan.problem.flags & RINGATTN_PLAN_CALLER_WORKSPACE) == 0) {
    if (call.workspace() != nullptr || call.workspace_bytes() != 0) {
      return invalid("workspace: given, expected NULL and 0 for a plan without PLAN_CALLER_WORKSPACE");
    }
    *out = handle.workspace.get();
    return {};
  }
  const std::uint64_t wanted = handle.plan.workspace_bytes;
  if (call.workspace_bytes() < wanted) {
    return invalid("workspace_bytes: " + std::to_string(call.workspace_bytes()) + ", expected at least " +
                   std::to_string(wanted));
  }
  if (wanted > 0 && call.workspace() == nullptr)
    return invalid("workspace: NULL, expected " + std::to_string(wanted) + " bytes");
  if (reinterpret_cast<std::uintptr_t>(call.workspace()) % kAlignment != 0) {
    return invalid("workspace: not aligned, expected a multiple of " + std::to_string(kAlignment) + " bytes");
  }
  *out = static_cast<std::byte*>(call.workspace());
  return {};
}

Status check_args(ringattn_plan& handle, std::int32_t i, ExecutionCall& call, ring::Tensors& tensors,
                  std::byte** workspace) {
  RINGATTN_TRY(call.read(i));
  if (call.backward() && !handle.plan.problem.backward())
    return invalid("plan: made without PLAN_BACKWARD (4) in flags, expected with it");
  ringattn_call values{};
  if (call.call() != nullptr) RINGATTN_TRY(read_struct(call.call(), "call", values));
  ring::Execution& execution = *handle.execution;
  RINGATTN_TRY(
      plan::check_call(handle.plan.problem, call.call() == nullptr ? nullptr : &values, execution.call()));
  RINGATTN_TRY(execution.prepare(call.backward()));
  RINGATTN_TRY(call.check_tensors(handle.plan, execution.layout(), tensors));
  return check_workspace(handle, call, workspace);
}

// One rank on its way into an execution.
struct Starting {
  ring::Tensors tensors;
  std::byte* workspace = nullptr;
  Status refusal;
};

// What one rank of the call writes, none may read. Refuses for the rank that is to blame.
bool share_memory(std::int32_t count, ringattn_plan* const* plans, const ExecutionCall& call,
                  Starting* starting) {
  Operands few[kFewRanks];
  std::vector<Operands> many(count > kFewRanks ? static_cast<std::size_t>(count) : 0);
  const std::span<Operands> ranks(count > kFewRanks ? many.data() : few, static_cast<std::size_t>(count));
  for (std::int32_t i = 0; i < count; ++i) {
    const plan::Plan& plan = plans[i]->plan;
    const bool own = (plan.problem.flags & RINGATTN_PLAN_CALLER_WORKSPACE) != 0 && plan.workspace_bytes > 0;
    ranks[static_cast<std::size_t>(i)] = {&starting[i].tensors, own ? starting[i].workspace : nullptr,
                                          plan.workspace_bytes, call.backward(), plan.rank};
  }
  std::size_t wrong = 0;
  const Status status = check_memory(ranks, &wrong);
  if (!status.ok()) starting[wrong].refusal = status;
  return !status.ok();
}

// All ranks of the ring are here: their values are compared without a message.
Status compare_in_memory(std::int32_t count, ringattn_plan* const* plans, const Starting* starting) {
  bool same = true;
  for (std::int32_t i = 0; i < count; ++i) {
    same = same && starting[i].refusal.ok() && plans[i]->execution->digest() == plans[0]->execution->digest();
  }
  if (same) return {};
  std::vector<plan::Record> records(static_cast<std::size_t>(count));
  for (std::int32_t i = 0; i < count; ++i) {
    if (!starting[i].refusal.ok()) {
      if (count == 1) return starting[i].refusal;
      return {starting[i].refusal.code(),
              "rank " + std::to_string(plans[i]->plan.rank) + ": " + starting[i].refusal.message()};
    }
    records[static_cast<std::size_t>(plans[i]->plan.rank)] = plans[i]->execution->record(starting[i].refusal);
  }
  return plan::judge(records, 0);
}

// Of more, a comm that comes twice is found busy: to look at all pairs would cost more than it helps.
constexpr std::int32_t kFewPlans = 256;

Status check_plans(std::int32_t count, ringattn_plan* const* plans) {
  for (std::int32_t i = 0; i < count; ++i) {
    if (plans[i] == nullptr && count > 1)
      return invalid("plans[" + std::to_string(i) + "]: NULL, expected a handle");
    RINGATTN_TRY(check_handle(plans[i], "plan"));
    if (plans[i]->comm == nullptr) return invalid("plan: a preview, expected a plan made by plan_create");
    if (plans[i]->context != plans[0]->context)
      return invalid("plans[" + std::to_string(i) + "]: of another context, expected all of one");
    for (std::int32_t j = 0; j < i && count <= kFewPlans; ++j) {
      if (plans[j]->comm != plans[i]->comm) continue;
      return invalid("plans[" + std::to_string(i) + "]: of the same comm as plans[" + std::to_string(j) +
                     "], expected one plan of each comm");
    }
    RINGATTN_TRY(plans[i]->comm->comm->state());
  }
  return {};
}

bool whole_ring(std::int32_t count, ringattn_plan* const* plans) {
  plan::RingSet ring;
  for (std::int32_t i = 0; i < count; ++i) ring.add(*plans[i]->comm->comm);
  return ring.whole();
}

Status start(std::int32_t count, ringattn_plan* const* plans, ExecutionCall& call, ringattn_request** out,
             Starting* starting) {
  ring::Engine& engine = *plans[0]->context->engine;
  BusyComms busy;
  for (std::int32_t i = 0; i < count; ++i) RINGATTN_TRY(busy.take(*plans[i]->comm->comm));
  // From here on this rank has entered the call: whatever is wrong, its peers hear of it.
  bool refused = false;
  for (std::int32_t i = 0; i < count; ++i) {
    plans[i]->comm->comm->enter(call.name());
    try {
      starting[i].refusal = check_args(*plans[i], i, call, starting[i].tensors, &starting[i].workspace);
    } catch (const std::bad_alloc&) {
      starting[i].refusal = {RINGATTN_ERR_OUT_OF_MEMORY, "out of memory"};  // its peers hear of this too
    }
    refused = refused || !starting[i].refusal.ok();
  }
  refused = refused || share_memory(count, plans, call, starting);
  const bool in_memory = whole_ring(count, plans);
  if (in_memory) RINGATTN_TRY(compare_in_memory(count, plans, starting));
  std::unique_ptr<ringattn_request> handle;
  if (out != nullptr && !refused) {
    handle = std::make_unique<ringattn_request>();
    handle->context = plans[0]->context;
    handle->plans.assign(plans, plans + count);
  }
  ring::Request blocking;
  ring::Request& request = handle == nullptr ? blocking : handle->request;
  for (std::int32_t i = 0; i < count; ++i) {
    request.add(*plans[i]->execution);
    plans[i]->execution->start(starting[i].tensors, starting[i].workspace, starting[i].refusal, in_memory);
  }
  if (handle != nullptr) {
    for (std::int32_t i = 0; i < count; ++i) handle->sequences.push_back(plans[i]->comm->comm->sequence());
  }
  busy.keep();  // the request lets go of the comms when it settles
  engine.submit(request, handle == nullptr);
  if (handle != nullptr) {
    for (ringattn_plan* plan : handle->plans) plan->children.fetch_add(1);
    *out = handle.release();
    return {};
  }
  engine.wait(request, -1, true);
  engine.retire(request);
  return request.result();
}

}  // namespace

Status execute(std::int32_t count, ringattn_plan* const* plans, ExecutionCall& call, ringattn_request** out) {
  if (out != nullptr) *out = nullptr;
  if (count < 1 || count > kMaxWorldSize)
    return invalid("count: " + std::to_string(count) + ", expected 1..4096");
  if (plans == nullptr) return invalid("plans: NULL, expected count handles");
  if (count > 1) RINGATTN_TRY(call.check_step());
  RINGATTN_TRY(check_plans(count, plans));
  if (count == 1) {  // to clear room for sixteen takes as long as much of the call itself
    Starting one;
    return start(count, plans, call, out, &one);
  }
  if (count <= kFewRanks) {
    Starting few[kFewRanks];
    return start(count, plans, call, out, few);
  }
  std::vector<Starting> many(static_cast<std::size_t>(count));
  return start(count, plans, call, out, many.data());
}

}  // namespace ringattn::api
