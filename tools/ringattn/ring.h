// A ring, and the ranks of it that this process drives: all of them, or the one as which a launcher has started it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "handles.h"

namespace ringattn::tool {

struct Ring {
  int world = 1;
  std::vector<int> ranks;  // driven here, ascending
  Context context;
  std::vector<Comm> comms;  // of `ranks`; declared, and so destroyed, in the order that the library asks for

  bool is_whole() const { return static_cast<int>(ranks.size()) == world; }
  // Rank 0 alone prints, judges and writes what is of the whole ring.
  bool reports() const { return ranks.front() == 0; }
};

// All ranks in this process. `transport` "" = the library's choice. Throws BadInput, RunFailed.
Ring make_local_ring(int world, int threads, const std::string& transport);

// The rank as which a launcher has started this process (docs/processes.md lists the variables); nothing where there is
// no launcher. Blocks until all ranks are there. `threads` 0 = this rank's share of the cores. Throws BadInput, RunFailed.
std::optional<Ring> join_launched_ring(int threads);

// How many threads each of `ranks` processes gets when they share `cores`.
int share_of_cores(int cores, int ranks);

}  // namespace ringattn::tool
