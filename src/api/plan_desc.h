// Parts of plan creation that preview and plan_create share.
#pragma once
#include <stdexcept>
#include <vector>

#include "api/few_ranks.h"
#include "base/problem.h"
#include "base/status.h"
#include "comm/comm.h"

namespace ringattn::api {

// EXPLICIT: the runs of all ranks cover each axis exactly once.
Status check_explicit(const Problem& problem);

// EXPLICIT in a preview: the runs of all ranks from facts.descs.
Status read_all_runs(const ringattn_facts& facts, std::int32_t rank, std::int32_t world, Problem& problem);

// Marks comms as busy; lets go of those it took unless keep() was called.
class BusyComms {
 public:
  BusyComms() = default;
  ~BusyComms() {
    for (std::size_t i = 0; i < count_; ++i) at(i)->busy.store(false, std::memory_order_release);
  }
  BusyComms(const BusyComms&) = delete;
  BusyComms& operator=(const BusyComms&) = delete;

  Status take(comm::Comm& comm) {
    if (comm.busy.exchange(true, std::memory_order_acq_rel)) {
      return {RINGATTN_ERR_BUSY, "comm: rank " + std::to_string(comm.rank()) +
                                     " has an unfinished collective call, expected its request to end first"};
    }
    if (count_ < kFewRanks) {
      few_[count_] = &comm;
    } else {
      more_.push_back(&comm);
    }
    ++count_;
    return {};
  }
  void keep() { count_ = 0; }

 private:
  comm::Comm* at(std::size_t i) const { return i < kFewRanks ? few_[i] : more_[i - kFewRanks]; }
  comm::Comm* few_[kFewRanks] = {};
  std::vector<comm::Comm*> more_;
  std::size_t count_ = 0;
};

}  // namespace ringattn::api
