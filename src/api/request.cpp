#include "api/guard.h"
#include "api/handles.h"

namespace {

using namespace ringattn;

Status state_of(const ringattn_request& request) {
  if (!request.request.settled()) return {RINGATTN_IN_PROGRESS, ""};
  return request.request.result();
}

void cancel_parts(ringattn_request& request) {
  for (std::size_t i = 0; i < request.plans.size(); ++i) {
    request.plans[i]->comm->comm->cancel(request.sequences[i]);
    request.plans[i]->comm->comm->wake();
  }
}

}  // namespace

extern "C" {

ringattn_status ringattn_request_test(ringattn_request* request) {
  return api::guarded([&]() -> Status {
    RINGATTN_TRY(api::check_handle(request, "request"));
    request->context->engine->test(request->request);
    return state_of(*request);
  });
}

ringattn_status ringattn_request_wait(ringattn_request* request, int64_t timeout_ms) {
  return api::guarded([&]() -> Status {
    RINGATTN_TRY(api::check_handle(request, "request"));
    constexpr std::int64_t kMost = std::int64_t{1} << 40;
    if (timeout_ms < -1)
      return invalid("timeout_ms: " + std::to_string(timeout_ms) +
                     ", expected -1 (no limit) or milliseconds");
    const std::int64_t timeout_ns = timeout_ms < 0 || timeout_ms > kMost ? -1 : timeout_ms * 1'000'000;
    if (!request->request.settled()) request->context->engine->wait(request->request, timeout_ns, false);
    return state_of(*request);
  });
}

ringattn_status ringattn_request_cancel(ringattn_request* request) {
  return api::guarded([&]() -> Status {
    RINGATTN_TRY(api::check_handle(request, "request"));
    if (!request->request.settled()) cancel_parts(*request);
    return {};
  });
}

const char* ringattn_request_message(const ringattn_request* request) {
  if (request == nullptr || !request->request.settled()) return "";
  return request->request.result().message().c_str();
}

void ringattn_request_destroy(ringattn_request* request) {
  if (request == nullptr || request->generation != process_generation()) return;
  api::quietly([&] {
    if (!request->request.settled()) {
      cancel_parts(*request);
      request->context->engine->wait(request->request, -1, false);
    }
    request->context->engine->retire(request->request);
    for (ringattn_plan* plan : request->plans) plan->children.fetch_sub(1);
    delete request;
  });
}

}  // extern "C"
