// Many faults, some at the same time, and what they have in common: which transports can run here, /dev/shm.
#pragma once
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/faults/outcome.h"

namespace ringattn::faults {

inline const std::vector<std::string> kTransports = {"tcp", "ucx"};

// "" where ranks can use it here, else the library's reason.
std::string why_not(const std::string& transport);

struct Batch {
  std::vector<Kind> kinds;
  std::vector<std::string> transports;
  std::uint64_t first_seed = 1;
  int count = 1;
  int at_once = 2;
  Limits limits = {};
  std::function<void(Fault&)> change = {};  // of every fault that was drawn
};

// Hears of each outcome, from one thread at a time; false ends the batch early.
void run_batch(const Batch& batch, const std::function<bool(const Outcome&)>& hear);

// A /dev/shm of this process and its children alone, so that what they leave there can be told from what others do; only
// for root, before any thread is started. False where that is not allowed.
bool own_shared_memory();
// How much it may hold: "64k", "1g". False, and nothing done, where it is not of this process alone.
bool resize_own_shared_memory(const std::string& size);
// Files in /dev/shm.
std::set<std::string> shared_memory_files();

}  // namespace ringattn::faults
