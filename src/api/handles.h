// What is behind the opaque handles.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fork_guard.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/worker_pool.h"
#include "comm/comm.h"
#include "comm/meeting_host.h"
#include "plan/plan.h"
#include "ring/engine.h"
#include "ring/execution.h"

struct ringattn_context {
  ringattn::Log log;
  std::unique_ptr<ringattn::WorkerPool> pool;
  std::unique_ptr<ringattn::ring::Engine> engine;
  std::atomic<std::int64_t> children{0};  // comms, previews
  std::mutex hosts_mutex;
  std::vector<std::unique_ptr<ringattn::comm::MeetingHost>> hosts;  // of unique ids made here
  std::uint32_t generation = ringattn::process_generation();
};

struct ringattn_comm {
  ringattn_context* context = nullptr;
  std::unique_ptr<ringattn::comm::Comm> comm;
  std::atomic<std::int64_t> children{0};  // plans
  std::uint64_t plans_made = 0;           // the same on all ranks: plans are made collectively
  std::uint32_t generation = ringattn::process_generation();
};

struct ringattn_plan {
  ringattn_context* context = nullptr;
  ringattn_comm* comm = nullptr;  // null: a preview
  ringattn::plan::Plan plan;
  ringattn::AlignedBytes workspace;
  std::unique_ptr<ringattn::ring::Execution> execution;
  std::atomic<std::int64_t> children{0};  // requests
  std::uint32_t generation = ringattn::process_generation();
};

struct ringattn_request {
  ringattn_context* context = nullptr;
  ringattn::ring::Request request;
  std::vector<ringattn_plan*> plans;
  std::vector<std::uint64_t>
      sequences;  // of each plan's comm: what cancel names, whatever runs there by then
  std::uint32_t generation = ringattn::process_generation();
};

namespace ringattn::api {

// Not NULL and not from before a fork.
template <typename Handle>
Status check_handle(const Handle* handle, const char* name) {
  if (handle == nullptr) return invalid(std::string(name) + ": NULL, expected a handle");
  if (handle->generation != process_generation()) {
    return {RINGATTN_ERR_FORKED,
            std::string(name) + ": made before fork(), expected a handle made in this process"};
  }
  return {};
}

}  // namespace ringattn::api
