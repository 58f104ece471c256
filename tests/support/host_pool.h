// A host's own parallel loop of plain std::threads, as an engine that embeds the library would bring it.
#pragma once

#include <cstdint>
#include <memory>

#include "ringattn.h"

namespace ringattn::support {

class HostPool {
 public:
  explicit HostPool(int workers);
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  // Fills threads, max_workers, parallel_for and parallel_user of a context description.
  void attach(ringattn_context_desc& desc);
  // Different threads that ran at least one body since the pool was made or told to forget, the callers'
  // included.
  int distinct_threads() const;
  void forget_threads();

 private:
  struct State;
  static void parallel_for(void* user, std::int32_t n, ringattn_body_fn body, void* arg);
  std::unique_ptr<State> state_;
};

}  // namespace ringattn::support
