// --processes: the same command once more, as ranks that are processes of this machine.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace ringattn::tool {

// Throws BadInput unless `processes` is a number of ranks and --ranks was not given as well.
void check_processes(int processes, std::optional<int> ranks);

// Runs this program `ranks` times with `arguments` without --processes; the ranks find each other by their environment.
// Returns the exit status, that of the first rank that failed.
int run_self(int ranks, const std::vector<std::string>& arguments);

// The arguments without --processes and its value.
std::vector<std::string> without_processes(const std::vector<std::string>& arguments);

}  // namespace ringattn::tool
