#include "run_self.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>

#include "error.h"
#include "rank_environment.h"
#include "run_ranks.h"

namespace ringattn::tool {
namespace {

constexpr std::string_view kOption = "--processes";

std::string own_program() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw RunFailed(fmt::format("cannot find this program: {}", error.message()));
  return path.string();
}

}  // namespace

void check_processes(int processes, std::optional<int> ranks) {
  if (ranks)
    throw BadInput(fmt::format("--processes {} and --ranks {}: expected one of them", processes, *ranks));
  if (processes < 1 || processes > kMostRanks)
    throw BadInput(fmt::format("--processes {}: expected 1 to {}", processes, kMostRanks));
}

std::vector<std::string> without_processes(const std::vector<std::string>& arguments) {
  std::vector<std::string> left;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--") {  // no options behind it
      left.insert(left.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
      break;
    }
    if (arguments[i] == kOption) {
      ++i;
    } else if (arguments[i].compare(0, kOption.size() + 1, std::string(kOption) + "=") != 0) {
      left.push_back(arguments[i]);
    }
  }
  return left;
}

int run_self(int ranks, const std::vector<std::string>& arguments) {
  RanksToRun what;
  what.seats = seats_here(ranks);
  what.prefix = false;  // rank 0 alone has something to say
  what.program = without_processes(arguments);
  what.program.insert(what.program.begin(), own_program());
  what.environment = rank_environment(ranks, "");
  return run_ranks(what);
}

}  // namespace ringattn::tool
