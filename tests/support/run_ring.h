// Runs one problem through the public API: context, local comm, plans, shard, forward, with pass=backward the
// gradients, unshard.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ringattn.h"
#include "tests/support/host_tensor.h"
#include "tests/support/problem_line.h"
#include "tests/support/random_data.h"

namespace ringattn::support {

// ThreadSanitizer does not know the synchronisation inside a oneTBB that it did not compile, and reports
// races that are none. Under it, ranks compute with the host's loop only.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kLibraryThreads = false;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool kLibraryThreads = false;
#else
inline constexpr bool kLibraryThreads = true;
#endif
#else
inline constexpr bool kLibraryThreads = true;
#endif

enum class Drive {
  kArray,   // one thread, array forms
  kThreads  // one thread per rank, single forms
};

struct RunOptions {
  Drive drive = Drive::kArray;
  bool host_parallel_for = false;   // problem.threads plain std::threads instead of the library's own
  bool asynchronous = false;        // start a request and wait for it
  bool with_d_lse = false;          // pass=backward: Inputs::d_lse flows into lse, else nothing
  bool trace = false;               // record events: RunResult::events
  int repeat = 1;                   // executions of the same plan; all must give the same bits
  int watchdog_seconds = 120;       // the process aborts with a message when the run hangs longer; 0 = never
  std::vector<int> start_delay_ms;  // kThreads: rank r sleeps so long before each pass
};

struct RunResult {
  ringattn_status status = RINGATTN_OK;  // of the first failure
  std::string call;                      // the function that failed
  std::string message;                   // ringattn_last_error of that call
  int rank = -1;                         // whose call it was; -1 = one call for all ranks
  std::string broken;   // "" or a broken promise: padding rows written wrongly, guard bytes touched, ...
  HostTensor o;         // global [batch, queries, heads, dim_v]; rows beyond the call's lengths are 0
  HostTensor lse;       // global [batch, heads, queries, 1]; rows beyond are -inf
  HostTensor d_q;       // pass=backward: global, like q; rows beyond the call's lengths are 0
  HostTensor d_k, d_v;  // the same, like k and v
  std::vector<ringattn_plan_info> infos;            // [rank], for the call's values
  std::vector<ringattn_times> times;                // [rank], of the last execution: that of the last pass
  std::vector<std::vector<ringattn_event>> events;  // [rank], with trace
  double seconds = 0;                               // wall time of the last forward
  double backward_seconds = 0;                      // and of the last backward
  // kThreads: [rank], when it made the call of the last pass, from a common start.
  std::vector<double> start_seconds;
  // With host_parallel_for: threads that really ran bodies; with pass=backward those of the last backward
  // alone.
  int distinct_threads = 0;

  bool ok() const { return status == RINGATTN_OK && broken.empty(); }
  std::string error() const;  // one line; "" when ok
};

RunResult run_ring(const ProblemLine& problem, const Inputs& inputs, const RunOptions& options = {});

}  // namespace ringattn::support
