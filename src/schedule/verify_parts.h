// The single proofs of verify, each about one property; later ones rely on what earlier ones have shown.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace ringattn::schedule {

struct Subject {
  const Problem& problem;
  const Call& call;
  const Layout& layout;
  std::span<const Schedule> schedules;
};

// "schedule: rank 3, operation 7 (send of block 2 to rank 4): <what>"
Status violation(const Schedule& schedule, std::size_t operation, const std::string& what);
Status violation(std::int32_t rank, const std::string& what);

Status verify_shards(
    const Subject& subject);  // both axes covered exactly once, shards in order and within capacity
Status verify_form(const Subject& subject);       // numbers in range, waits only for earlier operations
Status verify_work(const Subject& subject);       // every visible pair attended exactly once
Status verify_transfers(const Subject& subject);  // sends match receives
Status verify_memory(const Schedule& schedule);   // blocks held while used, buffers and lent memory safe
Status verify_progress(const Subject& subject);   // no deadlock

}  // namespace ringattn::schedule
