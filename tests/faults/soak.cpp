#include "tests/faults/soak.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <stdexcept>

#include "tests/faults/batch.h"
#include "tests/faults/hosts.h"
#include "tests/faults/summary.h"

namespace ringattn::faults {
namespace {

constexpr int kMostTold = 20;  // failures, each in full; more say no more

constexpr const char* kUsage =
    "usage: ringattn_faults soak --faults N [--seed S] [--kinds A,B] [--transports A,B] [--at-once N]\n"
    "                            [--detect-ms N] [--verbose]\n"
    "Rings of processes to which something happens: kinds are kill, zombie, stop, pause, abort, slow, leave, "
    "exit,\n"
    "refuse, mismatch, meeting, cut; transports tcp and ucx. Fault i has seed S + i, and a failure tells "
    "what "
    "repeats it.\n"
    "--detect-ms: how long survivors may take to see it (10000).\n";

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> items;
  std::istringstream stream(list);
  for (std::string item; std::getline(stream, item, ',');) items.push_back(item);
  return items;
}

std::uint64_t number(const std::string& name, const std::string& text) {
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0')
    throw std::invalid_argument(name + ": \"" + text + "\", expected a number");
  return value;
}

struct Wish {
  Batch batch = {.kinds = all_kinds(), .transports = kTransports, .count = 0};
  bool verbose = false;
};

Wish parse(int count, char** arguments) {
  Wish wish;
  for (int i = 0; i < count; ++i) {
    const std::string name = arguments[i];
    if (name == "--verbose") {
      wish.verbose = true;
      continue;
    }
    if (i + 1 == count) throw std::invalid_argument(name + ": no value, or no such option");
    const std::string value = arguments[++i];
    if (name == "--faults") {
      wish.batch.count = static_cast<int>(number(name, value));
    } else if (name == "--seed") {
      wish.batch.first_seed = number(name, value);
    } else if (name == "--at-once") {
      wish.batch.at_once = static_cast<int>(number(name, value));
    } else if (name == "--detect-ms") {
      wish.batch.limits.detect_ms = static_cast<std::int64_t>(number(name, value));
    } else if (name == "--kinds") {
      wish.batch.kinds.clear();
      for (const std::string& kind : split(value)) wish.batch.kinds.push_back(kind_of(kind));
    } else if (name == "--transports") {
      wish.batch.transports = split(value);
    } else {
      throw std::invalid_argument(name + ": no such option");
    }
  }
  if (wish.batch.count < 1 || wish.batch.kinds.empty() || wish.batch.transports.empty() ||
      wish.batch.at_once < 1)
    throw std::invalid_argument(
        "--faults, --kinds, --transports and --at-once: expected at least one of each");
  return wish;
}

void leave_out_what_cannot_run(std::vector<std::string>& transports) {
  std::erase_if(transports, [](const std::string& transport) {
    const std::string reason = why_not(transport);
    if (!reason.empty()) std::printf("SKIPPED transport %s: %s\n", transport.c_str(), reason.c_str());
    return !reason.empty();
  });
}

void leave_out_what_cannot_run(std::vector<Kind>& kinds) {
  if (std::find(kinds.begin(), kinds.end(), Kind::cut) == kinds.end()) return;
  const std::string reason = Network::why_not();
  if (reason.empty()) return;
  std::printf("SKIPPED kind cut: %s\n", reason.c_str());
  std::erase(kinds, Kind::cut);
}

int soak(Wish wish) {
  const bool alone = own_shared_memory();
  const std::set<std::string> before = shared_memory_files();
  leave_out_what_cannot_run(wish.batch.transports);
  leave_out_what_cannot_run(wish.batch.kinds);
  if (wish.batch.transports.empty() || wish.batch.kinds.empty()) return 1;
  Summary summary;
  int heard = 0, told = 0;
  std::set<std::string> files = before;
  run_batch(wish.batch, [&](const Outcome& outcome) {
    summary.add(outcome);
    if (wish.verbose)
      std::printf("seed %llu: %s\n  seen after %.1f ms: %s\n",
                  static_cast<unsigned long long>(outcome.fault.seed), outcome.fault.text().c_str(),
                  outcome.detect_ms, outcome.example.c_str());
    if (!outcome.ok()) {
      std::printf("%s\n", outcome.text().c_str());
      ++told;
    }
    for (const std::string& file : shared_memory_files()) {
      if (alone && files.insert(file).second)
        std::printf("left in /dev/shm: %s, during or before seed %llu\n", file.c_str(),
                    static_cast<unsigned long long>(outcome.fault.seed));
    }
    if (++heard % 100 == 0) std::printf("%d of %d\n", heard, wish.batch.count);
    std::fflush(stdout);
    return told < kMostTold;
  });
  std::fputs(summary.text().c_str(), stdout);
  const std::set<std::string> after = shared_memory_files();
  const bool clean = !alone || after.size() <= before.size();
  if (alone) std::printf("files left in /dev/shm: %zu\n", after.size());
  return summary.ok() && clean ? 0 : 1;
}

}  // namespace

int soak_main(int count, char** arguments) {
  try {
    return soak(parse(count, arguments));
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "%s\n%s", error.what(), kUsage);
    return 2;
  }
}

}  // namespace ringattn::faults
