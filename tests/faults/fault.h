// One fault, drawn from a seed: who is in the ring, what it computes, what happens to whom and when.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/problem_line.h"

namespace ringattn::faults {

enum class Kind {
  kill,      // kill -9, and the process is waited for
  zombie,    // kill -9, and nobody waits for it until the survivors have ended
  stop,      // SIGSTOP until the deadline has passed, then SIGCONT
  pause,     // SIGSTOP, and SIGCONT long before the deadline: nobody may fail
  abort,     // another thread of a rank calls ringattn_comm_abort
  slow,      // one rank's step takes ten times timeout_ms: nobody may fail
  leave,     // a rank leaves in order while others go on
  exit,      // a rank calls exit() without having left
  refuse,    // a rank brings arguments that are never right: the ring lives on
  mismatch,  // a rank makes another call than the others: the ring lives on
  meeting,   // kill -9 while the ranks meet
  cut        // every rank is on a host of its own, and one's cable is pulled out; needs root
};
inline constexpr int kKinds = 12;
const char* name_of(Kind kind);
// Throws std::invalid_argument for a name that is none.
Kind kind_of(const std::string& name);
std::vector<Kind> all_kinds();

// After these the ring is dead, or alive.
bool kills_ring(Kind kind);

struct Fault {
  std::uint64_t seed = 0;
  Kind kind = Kind::kill;
  std::string transport = {};
  int ranks = 2;
  int victim = 0;
  support::ProblemLine problem = {};
  int threads = 1;
  int progress_thread = 0;
  std::string drive = {};    // how ranks wait for an execution
  bool environment = false;  // how they meet
  int at = 0;                // the execution in which it happens ...
  int after_us = 0;          // ... and how long after its beginning
  std::int64_t timeout_ms = 30'000;
  std::uint64_t shuffle = 0;  // orders the ranks of the ring that follows

  std::string text() const;
  // What repeats it.
  std::string command() const;
};

// The same seed, kind and transport give the same fault.
Fault draw(std::uint64_t seed, const std::vector<Kind>& kinds, const std::vector<std::string>& transports);

}  // namespace ringattn::faults
