// The ranks of `ringattn run`, from their start to the end of the last one.
#pragma once
#include <string>
#include <vector>

#include "run_hosts.h"

namespace ringattn::tool {

struct RanksToRun {
  std::vector<Seat> seats;  // one for each rank
  bool prefix = true;
  std::vector<std::string> program;
  // The environment of all of them, without RINGATTN_RANK and RINGATTN_LOCAL_RANK.
  std::vector<std::string> environment;
  // For ranks on other hosts: the folder to run in, the remote shell's words, and which variables they get besides
  // RINGATTN_...
  std::string folder;
  std::vector<std::string> remote_shell;
  std::vector<std::string> exported;
};

// Returns 0 when all ranks have succeeded, otherwise the status of the first that failed (128 + its signal).
// None is left when it returns or throws.
int run_ranks(const RanksToRun& what);

}  // namespace ringattn::tool
