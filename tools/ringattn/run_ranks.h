// The ranks of `ringattn run`, from their start to the end of the last one.
#pragma once
#include <string>
#include <vector>

namespace ringattn::tool {

struct RanksToRun {
  int ranks = 1;
  bool prefix = true;
  std::vector<std::string> program;
  // The environment of all of them, without RINGATTN_RANK and RINGATTN_LOCAL_RANK.
  std::vector<std::string> environment;
};

// Returns 0 when all ranks have succeeded, otherwise the status of the first that failed (128 + its signal).
// None is left when it returns or throws.
int run_ranks(const RanksToRun& what);

}  // namespace ringattn::tool
