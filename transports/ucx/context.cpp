#include "transports/ucx/context.h"

#include <ucs/debug/log_def.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

namespace ringattn::ucx {
namespace {

std::mutex log_mutex;
std::string last_message;

ucs_log_func_rc_t keep_message(const char*, unsigned, const char*, ucs_log_level_t level,
                               const ucs_log_component_config_t*, const char* format, va_list arguments) {
  if (level > UCS_LOG_LEVEL_WARN) return UCS_LOG_FUNC_RC_STOP;
  char text[256];
  std::vsnprintf(text, sizeof text, format, arguments);
  const std::lock_guard lock(log_mutex);
  last_message = text;
  return UCS_LOG_FUNC_RC_STOP;
}

ucp_config_t* read_config(const Settings& settings, std::string& error) {
  ucp_config_t* config = nullptr;
  const ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) {
    error = "its settings cannot be read: " + text_of(status);
    return nullptr;
  }
  for (const auto& [name, value] : settings) {
    // Versions differ in the names that they know; which lanes came of it is checked on the endpoints.
    if (std::getenv(("UCX_" + name).c_str()) == nullptr)
      ucp_config_modify(config, name.c_str(), value.c_str());
  }
  return config;
}

}  // namespace

void keep_log() { ucs_log_push_handler(keep_message); }

std::string text_of(ucs_status_t status) {
  const std::lock_guard lock(log_mutex);
  std::string text = ucs_status_string(status);
  if (!last_message.empty()) text.append(" (").append(last_message).append(")");
  last_message.clear();
  return text;
}

Context* Context::open(const Settings& settings, std::string& error) {
  std::unique_ptr<Context> own(new Context());
  ucp_config_t* const config = read_config(settings, error);
  if (config == nullptr) return nullptr;
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  ucs_status_t status = ucp_init(&params, config, &own->context_);
  ucp_config_release(config);
  if (status != UCS_OK) {
    own->context_ = nullptr;
    error = "no context: " + text_of(status);
    return nullptr;
  }
  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_MULTI;
  status = ucp_worker_create(own->context_, &worker_params, &own->worker_);
  if (status != UCS_OK) {
    own->worker_ = nullptr;
    error = "no worker: " + text_of(status);
    return nullptr;
  }
  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_THREAD_MODE;
  status = ucp_worker_query(own->worker_, &attributes);
  if (status != UCS_OK || attributes.thread_mode != UCS_THREAD_MODE_MULTI) {
    error = "it was built without --enable-mt";
    return nullptr;
  }
  status = ucp_worker_get_efd(own->worker_, &own->descriptor_);
  if (status == UCS_OK) return own.release();
  error = "no descriptor to wait for: " + text_of(status);
  return nullptr;
}

Context::~Context() {
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

std::string Context::address() const {
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  if (ucp_worker_get_address(worker_, &address, &bytes) != UCS_OK) return "";
  std::string text(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(worker_, address);
  return text;
}

}  // namespace ringattn::ucx
