#include "tests/faults/fault.h"

#include <algorithm>
#include <stdexcept>

#include "tests/support/random_data.h"

namespace ringattn::faults {
namespace {

using support::ProblemLine;
using support::Random;

constexpr const char* kNames[kKinds] = {"kill",  "zombie", "stop",   "pause",    "abort",   "slow",
                                        "leave", "exit",   "refuse", "mismatch", "meeting", "cut"};

// Small for the oracle; a batch makes much of it on the wire.
ProblemLine draw_problem(Random& random, std::uint64_t seed) {
  ProblemLine problem;
  problem.kv_heads = 1 + random.below(2);
  problem.heads = problem.kv_heads * (1 + random.below(3));
  problem.dim = 1 + random.below(48);
  problem.dim_v = random.below(3) == 0 ? 1 + random.below(48) : 0;
  problem.queries = problem.keys = 1 + random.below(150);
  while (problem.heads * problem.queries * problem.keys * problem.dim > 700'000)
    problem.queries = --problem.keys;
  constexpr std::int64_t kBatch[] = {1, 1, 3, 40};
  problem.batch = kBatch[random.below(4)];
  constexpr ringattn_dtype kTypes[] = {RINGATTN_DTYPE_F32, RINGATTN_DTYPE_F16, RINGATTN_DTYPE_BF16};
  problem.dtype = kTypes[random.below(3)];
  problem.partition = static_cast<std::int32_t>(random.below(3));
  if (random.below(2) == 0) problem.mask |= RINGATTN_MASK_CAUSAL;
  if (random.below(3) == 0) {
    problem.mask |= RINGATTN_MASK_WINDOW_LEFT;
    problem.window_left = random.below(problem.keys);
  }
  problem.backward = true;
  problem.seed = seed;
  return problem;
}

}  // namespace

const char* name_of(Kind kind) { return kNames[static_cast<int>(kind)]; }

Kind kind_of(const std::string& name) {
  for (int kind = 0; kind < kKinds; ++kind) {
    if (name == kNames[kind]) return static_cast<Kind>(kind);
  }
  throw std::invalid_argument("kind: \"" + name + "\" is none");
}

std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds;
  for (int kind = 0; kind < kKinds; ++kind) kinds.push_back(static_cast<Kind>(kind));
  return kinds;
}

bool kills_ring(Kind kind) {
  return kind != Kind::pause && kind != Kind::slow && kind != Kind::refuse && kind != Kind::mismatch;
}

Fault draw(std::uint64_t seed, const std::vector<Kind>& kinds, const std::vector<std::string>& transports) {
  // What is chosen of the lists has numbers of its own, so that shorter lists repeat all the rest.
  Random choice(seed ^ 0x9e3779b97f4a7c15ull), random(seed);
  Fault fault;
  fault.seed = seed;
  fault.kind = kinds[static_cast<std::size_t>(choice.below(static_cast<std::int64_t>(kinds.size())))];
  fault.transport =
      transports[static_cast<std::size_t>(choice.below(static_cast<std::int64_t>(transports.size())))];
  constexpr int kRanks[] = {2, 2, 3, 3, 4, 4, 5, 6, 7, 8};
  fault.ranks = kRanks[random.below(10)];
  fault.victim = static_cast<int>(random.below(fault.ranks));
  fault.problem = draw_problem(random, seed);
  fault.problem.ranks = fault.ranks;
  fault.threads = random.below(4) == 0 ? 2 : 1;
  constexpr const char* kDrives[] = {"block", "block", "wait", "test"};
  fault.drive = kDrives[random.below(4)];
  fault.progress_thread = fault.drive != "test" && random.below(4) == 0 ? 1 : 0;
  fault.environment = random.below(3) == 0;
  fault.at = static_cast<int>(random.below(12));
  fault.after_us = static_cast<int>(random.below(random.below(3) == 0 ? 20'000 : 2'000));
  fault.shuffle = random.bits();
  if (fault.kind == Kind::stop) fault.timeout_ms = 1000;
  if (fault.kind == Kind::meeting) {
    fault.timeout_ms = 2000;
    fault.after_us =
        static_cast<int>(random.below(15'000));  // from before the first has come to after the last
  }
  if (fault.kind == Kind::slow) {
    // Some hundred tiles, so that a step can be slow without ever standing still, done one by one.
    fault.timeout_ms = 500;
    fault.problem.batch = 40;
    fault.problem.heads = fault.problem.kv_heads;
    fault.problem.queries = fault.problem.keys = std::max<std::int64_t>(fault.problem.keys, 4 * fault.ranks);
    fault.threads = 1;
    fault.progress_thread = 0;
  }
  return fault;
}

std::string Fault::text() const {
  return std::string(name_of(kind)) + " of rank " + std::to_string(victim) + " of " + std::to_string(ranks) +
         " over " + transport + ", execution " + std::to_string(at) + " + " + std::to_string(after_us) +
         " us, met by " + (environment ? "environment" : "id") + ", " + drive + ", threads " +
         std::to_string(threads) + (progress_thread != 0 ? " + progress" : "") + ", " + to_line(problem);
}

std::string Fault::command() const {
  return "ringattn_faults soak --faults 1 --seed " + std::to_string(seed) + " --kinds " + name_of(kind) +
         " --transports " + transport;
}

}  // namespace ringattn::faults
