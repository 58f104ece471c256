// What a plan tells: figures, words, times, events.
#include <cstring>

#include "api/guard.h"
#include "api/handles.h"
#include "api/read_struct.h"
#include "plan/call_check.h"

namespace {

using namespace ringattn;

Status read_call(const ringattn_plan& plan, const ringattn_call* given, Call& out) {
  ringattn_call call{};
  if (given != nullptr) RINGATTN_TRY(api::read_struct(given, "call", call));
  return plan::check_call(plan.plan.problem, given == nullptr ? nullptr : &call, out);
}

Status check_out(const void* out) {
  return out != nullptr ? Status() : invalid("out: NULL, expected an address");
}

Status get_info(const ringattn_plan* plan, const ringattn_call* given, ringattn_plan_info* out) {
  RINGATTN_TRY(api::check_handle(plan, "plan"));
  RINGATTN_TRY(check_out(out));
  RINGATTN_TRY(api::check_struct_size(out, "plan_info"));
  Call call;
  RINGATTN_TRY(read_call(*plan, given, call));
  ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
  RINGATTN_TRY(plan::make_info(plan->plan, call, info));
  info.plan_bytes = sizeof(*plan) + (plan->execution == nullptr ? 0 : plan->execution->bytes_held());
  api::write_struct(info, out);
  return {};
}

Status describe(const ringattn_plan* plan, const ringattn_call* given, std::int32_t format, char* text,
                std::uint64_t capacity, std::uint64_t* needed) {
  RINGATTN_TRY(api::check_handle(plan, "plan"));
  if (format != RINGATTN_DESCRIBE_TEXT && format != RINGATTN_DESCRIBE_JSON) {
    return invalid("format: " + std::to_string(format) + ", expected DESCRIBE_TEXT (0) or DESCRIBE_JSON (1)");
  }
  Call call;
  RINGATTN_TRY(read_call(*plan, given, call));
  std::string words;
  if (format == RINGATTN_DESCRIBE_TEXT) {
    words = plan::describe_text(plan->plan, call);
  } else {
    RINGATTN_TRY(plan::describe_json(plan->plan, call, words));
  }
  const std::uint64_t bytes = words.size() + 1;
  if (needed != nullptr) *needed = bytes;
  if (text == nullptr && capacity == 0) return {};
  if (text == nullptr)
    return invalid("text: NULL, expected room for capacity (" + std::to_string(capacity) + ") bytes");
  if (capacity < bytes)
    return invalid("capacity: " + std::to_string(capacity) + ", expected at least " + std::to_string(bytes));
  std::memcpy(text, words.c_str(), bytes);
  return {};
}

Status get_trace(const ringattn_plan* plan, ringattn_event* events, std::uint64_t capacity,
                 std::uint64_t* count, std::uint64_t* dropped) {
  RINGATTN_TRY(api::check_handle(plan, "plan"));
  if (count == nullptr) return invalid("count: NULL, expected an address");
  if ((plan->plan.problem.flags & RINGATTN_PLAN_TRACE) == 0)
    return invalid("plan: made without PLAN_TRACE, expected a plan that records events");
  if (events == nullptr && capacity > 0) return invalid("events: NULL, expected room for capacity events");
  if (capacity > 0) RINGATTN_TRY(api::check_struct_size(events, "events[0]"));
  if (plan->execution != nullptr && plan->execution->under_way()) {
    return {RINGATTN_ERR_BUSY, "plan: an execution is under way, expected events to be read after its end"};
  }
  const trace::Trace* trace = plan->execution == nullptr ? nullptr : &plan->execution->trace();
  *count = trace == nullptr ? 0 : trace->count();
  if (dropped != nullptr) *dropped = trace == nullptr ? 0 : trace->dropped();
  const std::uint32_t step = capacity > 0 ? events->struct_size : 0;
  for (std::uint64_t i = 0; i < *count && i < capacity; ++i) {
    auto* at = reinterpret_cast<ringattn_event*>(reinterpret_cast<char*>(events) + i * step);
    at->struct_size = step;
    api::write_struct((*trace)[i], at);
  }
  return {};
}

}  // namespace

extern "C" {

ringattn_status ringattn_plan_get_info(const ringattn_plan* plan, const ringattn_call* call,
                                       ringattn_plan_info* out) {
  return api::guarded([&] { return get_info(plan, call, out); });
}

ringattn_status ringattn_plan_describe(const ringattn_plan* plan, const ringattn_call* call, int32_t format,
                                       char* text, uint64_t capacity, uint64_t* needed) {
  return api::guarded([&] { return describe(plan, call, format, text, capacity, needed); });
}

ringattn_status ringattn_plan_get_times(const ringattn_plan* plan, ringattn_times* out) {
  return api::guarded([&]() -> Status {
    RINGATTN_TRY(api::check_handle(plan, "plan"));
    RINGATTN_TRY(check_out(out));
    RINGATTN_TRY(api::check_struct_size(out, "times"));
    ringattn_times times{};
    if (plan->execution != nullptr) times = plan->execution->times();
    api::write_struct(times, out);
    return {};
  });
}

ringattn_status ringattn_plan_trace(const ringattn_plan* plan, ringattn_event* events, uint64_t capacity,
                                    uint64_t* count, uint64_t* dropped) {
  return api::guarded([&] { return get_trace(plan, events, capacity, count, dropped); });
}

}  // extern "C"
