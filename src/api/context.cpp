#include "api/guard.h"
#include "api/handles.h"
#include "api/read_struct.h"

namespace {

using namespace ringattn;

Status check_threads(const ringattn_context_desc& desc) {
  constexpr std::int32_t kMost = 1024;
  if (desc.threads < 0 || desc.threads > kMost) {
    return invalid("threads: " + std::to_string(desc.threads) + ", expected 0..1024");
  }
  if (desc.progress_thread != 0 && desc.progress_thread != 1) {
    return invalid("progress_thread: " + std::to_string(desc.progress_thread) + ", expected 0 or 1");
  }
  if (desc.parallel_for == nullptr) {
    if (desc.max_workers == 0) return {};
    return invalid("max_workers: " + std::to_string(desc.max_workers) + ", expected 0 without parallel_for");
  }
  if (desc.threads != 0)
    return invalid("threads: " + std::to_string(desc.threads) + ", expected 0 with parallel_for");
  if (desc.max_workers >= 1 && desc.max_workers <= kMost) return {};
  return invalid("max_workers: " + std::to_string(desc.max_workers) + ", expected 1..1024 with parallel_for");
}

Status create_context(const ringattn_context_desc* given, ringattn_context** out) {
  ringattn_context_desc desc{};
  if (given != nullptr) RINGATTN_TRY(api::read_struct(given, "context_desc", desc));
  if (desc.device_type != RINGATTN_DEVICE_CPU) {
    return unsupported("device_type: " + std::to_string(desc.device_type) + ", expected DEVICE_CPU (0)");
  }
  if (desc.device_id != 0)
    return invalid("device_id: " + std::to_string(desc.device_id) + ", expected 0 on CPU");
  if (desc.reserved != 0) return invalid("reserved: " + std::to_string(desc.reserved) + ", expected 0");
  if (desc.log_level < 0 || desc.log_level > RINGATTN_LOG_DEBUG) {
    return invalid("log_level: " + std::to_string(desc.log_level) + ", expected 0..4");
  }
  RINGATTN_TRY(check_threads(desc));
  auto context = std::make_unique<ringattn_context>();
  if (desc.log != nullptr) {
    context->log = Log(desc.log, desc.log_user, desc.log_level == 0 ? RINGATTN_LOG_WARN : desc.log_level);
  } else {
    RINGATTN_TRY(Log::from_environment(context->log));
  }
  RINGATTN_TRY(WorkerPool::create(desc.threads, desc.parallel_for, desc.parallel_user, desc.max_workers,
                                  context->pool));
  context->engine = std::make_unique<ring::Engine>(*context->pool, desc.progress_thread == 1);
  *out = context.release();
  return {};
}

}  // namespace

extern "C" {

ringattn_status ringattn_context_create(const ringattn_context_desc* desc, ringattn_context** out) {
  return api::guarded([&]() -> Status {
    if (out == nullptr) return invalid("out: NULL, expected an address");
    *out = nullptr;
    return create_context(desc, out);
  });
}

void ringattn_context_destroy(ringattn_context* context) {
  if (context == nullptr || context->generation != process_generation()) return;
  if (context->children.load() != 0) {
    context->log.write(RINGATTN_LOG_ERROR, "context_destroy: " + std::to_string(context->children.load()) +
                                               " comms or plans are still alive; nothing was destroyed");
    return;
  }
  delete context;
}

}  // extern "C"
