// forward and its array form: check everything, then hand the execution to the engine.
#include <algorithm>

#include "api/guard.h"
#include "api/handles.h"
#include "api/plan_desc.h"
#include "api/read_struct.h"
#include "api/tensor_check.h"
#include "plan/agree.h"
#include "plan/call_check.h"

namespace {

using namespace ringattn;
using api::TensorUse;

Status in_capacity(const char* name, std::int64_t rows, std::int64_t least, std::int64_t most) {
  if (rows >= least && rows <= most) return {};
  return invalid(std::string(name) + ".shape[1] (seq): " + std::to_string(rows) +
                 ", expected this rank's local length (" + std::to_string(least) +
                 ") up to its local capacity (" + std::to_string(most) + "): tensors are shards");
}

Status check_overlaps(const ring::ForwardTensors& t) {
  const struct {
    const char* name;
    const TensorView& view;
  } inputs[] = {{"q", t.q}, {"k", t.k}, {"v", t.v}};
  for (const auto& input : inputs) {
    if (api::may_overlap(t.o, input.view))
      return invalid(std::string("o.data: overlaps ") + input.name + ", expected memory of its own");
    if (t.wants_lse && api::may_overlap(t.lse, input.view)) {
      return invalid(std::string("lse.data: overlaps ") + input.name + ", expected memory of its own");
    }
  }
  if (t.wants_lse && api::may_overlap(t.lse, t.o))
    return invalid("lse.data: overlaps o, expected memory of its own");
  return {};
}

Status check_tensors(const plan::Plan& plan, const schedule::Layout& layout,
                     const ringattn_forward_args& args, ring::ForwardTensors& t) {
  const Problem& p = plan.problem;
  const std::int32_t in = static_cast<std::int32_t>(p.dtype);
  RINGATTN_TRY(
      api::read_tensor(args.q, "q", TensorUse::input, in, {p.batch, -1, p.heads, p.head_dim_qk}, t.q));
  RINGATTN_TRY(
      api::read_tensor(args.k, "k", TensorUse::input, in, {p.batch, -1, p.kv_heads, p.head_dim_qk}, t.k));
  const std::int64_t rows_q = t.q.shape[1], rows_k = t.k.shape[1];
  RINGATTN_TRY(in_capacity("q", rows_q, layout.local_queries(plan.rank), plan.capacity_q));
  RINGATTN_TRY(in_capacity("k", rows_k, layout.local_keys(plan.rank), plan.capacity_k));
  RINGATTN_TRY(
      api::read_tensor(args.v, "v", TensorUse::input, in, {p.batch, rows_k, p.kv_heads, p.head_dim_v}, t.v));
  RINGATTN_TRY(api::read_tensor(args.o, "o", TensorUse::output, static_cast<std::int32_t>(p.dtype_out),
                                {p.batch, rows_q, p.heads, p.head_dim_v}, t.o));
  t.wants_lse = args.lse != nullptr;
  if (t.wants_lse) {
    RINGATTN_TRY(api::read_tensor(args.lse, "lse", TensorUse::output, RINGATTN_DTYPE_F32,
                                  {p.batch, p.heads, rows_q, 1}, t.lse));
  }
  return check_overlaps(t);
}

Status check_workspace(const ringattn_plan& handle, const ringattn_forward_args& args, std::byte** out) {
  if ((handle.plan.problem.flags & RINGATTN_PLAN_CALLER_WORKSPACE) == 0) {
    if (args.workspace != nullptr || args.workspace_bytes != 0) {
      return invalid("workspace: given, expected NULL and 0 for a plan without PLAN_CALLER_WORKSPACE");
    }
    *out = handle.workspace.get();
    return {};
  }
  const std::uint64_t wanted = handle.plan.workspace.bytes;
  if (args.workspace_bytes < wanted) {
    return invalid("workspace_bytes: " + std::to_string(args.workspace_bytes) + ", expected at least " +
                   std::to_string(wanted));
  }
  if (wanted > 0 && args.workspace == nullptr)
    return invalid("workspace: NULL, expected " + std::to_string(wanted) + " bytes");
  if (reinterpret_cast<std::uintptr_t>(args.workspace) % kAlignment != 0) {
    return invalid("workspace: not aligned, expected a multiple of " + std::to_string(kAlignment) + " bytes");
  }
  *out = static_cast<std::byte*>(args.workspace);
  return {};
}

Status check_args(ringattn_plan& handle, const ringattn_forward_args* given, ring::ForwardTensors& tensors,
                  std::byte** workspace) {
  ringattn_forward_args args{};
  RINGATTN_TRY(api::read_struct(given, "forward_args", args));
  if (args.flags != 0) return invalid("flags: " + std::to_string(args.flags) + ", expected 0");
  ringattn_call call{};
  if (args.call != nullptr) RINGATTN_TRY(api::read_struct(args.call, "call", call));
  ring::Execution& execution = *handle.execution;
  RINGATTN_TRY(
      plan::check_call(handle.plan.problem, args.call == nullptr ? nullptr : &call, execution.call()));
  RINGATTN_TRY(execution.prepare());
  RINGATTN_TRY(check_tensors(handle.plan, execution.layout(), args, tensors));
  return check_workspace(handle, args, workspace);
}

// One rank on its way into an execution.
struct Starting {
  ring::ForwardTensors tensors;
  std::byte* workspace = nullptr;
  Status refusal;
};

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
    RINGATTN_TRY(api::check_handle(plans[i], "plan"));
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

Status forward(std::int32_t count, ringattn_plan* const* plans, const ringattn_forward_args* args,
               ringattn_request** out, Starting* starting) {
  ring::Engine& engine = *plans[0]->context->engine;
  api::BusyComms busy;
  for (std::int32_t i = 0; i < count; ++i) RINGATTN_TRY(busy.take(*plans[i]->comm->comm));
  // From here on this rank has entered the call: whatever is wrong, its peers hear of it.
  bool refused = false;
  for (std::int32_t i = 0; i < count; ++i) {
    plans[i]->comm->comm->enter("forward");
    const ringattn_forward_args* own = args == nullptr || i == 0 ? args : api::array_at(args, i);
    try {
      starting[i].refusal = check_args(*plans[i], own, starting[i].tensors, &starting[i].workspace);
    } catch (const std::bad_alloc&) {
      starting[i].refusal = {RINGATTN_ERR_OUT_OF_MEMORY, "out of memory"};  // its peers hear of this too
    }
    refused = refused || !starting[i].refusal.ok();
  }
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

Status forward_checked(std::int32_t count, ringattn_plan* const* plans, const ringattn_forward_args* args,
                       ringattn_request** out) {
  if (out != nullptr) *out = nullptr;
  if (count < 1 || count > kMaxWorldSize)
    return invalid("count: " + std::to_string(count) + ", expected 1..4096");
  if (plans == nullptr) return invalid("plans: NULL, expected count handles");
  if (count > 1 && args != nullptr) RINGATTN_TRY(api::check_struct_size(args, "forward_args"));
  RINGATTN_TRY(check_plans(count, plans));
  constexpr std::int32_t kInline = 16;  // a warm forward of so many ranks allocates nothing
  if (count <= kInline) {
    Starting few[kInline];
    return forward(count, plans, args, out, few);
  }
  std::vector<Starting> many(static_cast<std::size_t>(count));
  return forward(count, plans, args, out, many.data());
}

}  // namespace

extern "C" {

ringattn_status ringattn_forward(ringattn_plan* plan, const ringattn_forward_args* args,
                                 ringattn_request** request) {
  return api::guarded([&] { return forward_checked(1, &plan, args, request); });
}

ringattn_status ringattn_forward_array(int32_t count, ringattn_plan* const* plans,
                                       const ringattn_forward_args* args, ringattn_request** request) {
  return api::guarded([&] { return forward_checked(count, plans, args, request); });
}

}  // extern "C"
