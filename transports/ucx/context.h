// One UCX context with one worker: opened with the settings that this transport needs, and closed in the one order that
// UCX survives.
#pragma once
#include <ucp/api/ucp.h>

#include <string>
#include <utility>
#include <vector>

namespace ringattn::ucx {

// A setting of UCX by its name without UCX_. What the user has set in the environment stays as it is.
using Settings = std::vector<std::pair<std::string, std::string>>;

class Context {
 public:
  // Null, and `error` says why.
  static Context* open(const Settings& settings, std::string& error);
  // Only when no request is in flight and no endpoint is open: else UCX ends the process.
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  ucp_worker_h worker() const { return worker_; }
  int descriptor() const { return descriptor_; }
  std::string address() const;

 private:
  Context() = default;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
};

// "Endpoint timeout: <what UCX has logged last>".
std::string text_of(ucs_status_t status);

// UCX prints to the host's standard output; from here on this library keeps what it says for text_of.
void keep_log();

}  // namespace ringattn::ucx
