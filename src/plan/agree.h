// The collective part of plan_create: every rank's record comes to every rank.
#pragma once
#include <bitset>
#include <span>
#include <vector>

#include "comm/comm.h"
#include "plan/record.h"

namespace ringattn::plan {

struct Agreement {
  comm::Comm* comm = nullptr;
  Record own;                   // in
  std::vector<Record> records;  // out: by rank; empty where the comm died
  Status status;                // out: what this rank is to return
};

// Drives all of them from the calling thread until every one has ended. `first` = the first exchange of a
// collective call, which begins with a digest so that a rank that makes another call hears of it. Blocks at
// most the comms' arrival timeout.
void agree(std::span<Agreement> agreements, bool first);

// Are some comms all the ranks of one ring, each once? Then their values can be compared in memory. Allocates nothing.
class RingSet {
 public:
  bool add(const comm::Comm& comm);
  bool whole() const;

 private:
  const comm::Comm* first_ = nullptr;
  std::int32_t count_ = 0;
  bool fits_ = true;
  std::bitset<kMaxWorldSize> seen_;
};

}  // namespace ringattn::plan
