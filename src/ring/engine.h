// Advances requests: polls their executions, runs their ready tiles on the context's workers, and waits
// when there is nothing to do.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "base/worker_pool.h"
#include "ring/execution.h"

namespace ringattn::ring {

class Engine;

// One execution call: the parts of one or more ranks. While one thread advances it, no other touches it.
// When all parts have ended and that thread has let go of it, it is *settled*: it has its result, and its
// comms take the next call.
class Request {
 public:
  void add(Execution& part);
  bool ended() const;  // for whoever advances it
  bool settled() const { return settled_.load(std::memory_order_acquire); }
  // Of a settled request: a rank's own refusal before what its peers were told, then the first failure in
  // order of the parts.
  const Status& result() const { return result_; }
  Execution* parts() const { return first_; }
  Request* next_adopted() const { return next_adopted_; }

 private:
  friend class Engine;
  void settle();

  std::atomic<bool> settled_{false};
  Status result_;
  Execution* first_ = nullptr;
  Execution* last_ = nullptr;
  std::atomic<bool> advancing_{false};  // somebody owns it at the moment
  Request* next_ = nullptr;             // in the engine's list
  Request* next_adopted_ = nullptr;     // in the list of whoever owns it
};

class Engine {
 public:
  Engine(WorkerPool& pool, bool progress_thread);
  ~Engine();

  // From now on the request may be advanced by anybody; owned = by the caller alone (a blocking call).
  void submit(Request& request, bool owned);
  // Until it has settled or the time is over (negative = none). False: still running.
  bool wait(Request& request, std::int64_t timeout_ns, bool owned);
  void test(Request& request);
  void retire(Request& request);  // settled: off the list

 private:
  Request* adopt(Request* own, std::uint64_t* seen);
  void give_back(Request* adopted, const Request* except);
  bool claim(Request& request);
  void unclaim(Request& request);
  void rest(Request* adopted, std::uint64_t most_ns);
  bool may_spin(const Request& request) const;
  void progress_loop();

  WorkerPool& pool_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Request* list_ = nullptr;
  std::atomic<std::uint64_t> offered_{0};  // how often a request became one that anybody may advance
  bool ending_ = false;
  std::thread progress_;
};

}  // namespace ringattn::ring
