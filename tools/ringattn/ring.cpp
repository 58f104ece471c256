#include "ring.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "error.h"

namespace ringattn::tool {
namespace {

Context make_context(int threads) {
  auto desc = RINGATTN_STRUCT(ringattn_context_desc);
  desc.threads = threads;
  ringattn_context* context = nullptr;
  check(ringattn_context_create(&desc, &context));
  return Context(context);
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

// What launchers tell, in the order in which the library asks them (docs/processes.md): this rank, and how many of
// them share its machine. `ringattn run` starts all on one. Slurm writes a list, "4(x2),3": its first number is about
// right.
struct Launcher {
  const char* rank;
  const char* local_ranks;
};
constexpr Launcher kLaunchers[] = {{"RINGATTN_RANK", "RINGATTN_WORLD_SIZE"},
                                   {"RANK", "LOCAL_WORLD_SIZE"},
                                   {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                                   {"SLURM_PROCID", "SLURM_STEP_TASKS_PER_NODE"}};

const Launcher* find_launcher() {
  const auto* found = std::find_if(std::begin(kLaunchers), std::end(kLaunchers),
                                   [](const Launcher& launcher) { return is_set(launcher.rank); });
  return found == std::end(kLaunchers) ? nullptr : found;
}

int ranks_of_this_machine() {
  const Launcher* launcher = find_launcher();
  if (launcher == nullptr || !is_set(launcher->local_ranks)) return 1;
  return std::max(1, std::atoi(std::getenv(launcher->local_ranks)));
}

}  // namespace

int share_of_cores(int cores, int ranks) { return std::max(1, cores / std::max(1, ranks)); }

Ring make_local_ring(int world, int threads, const std::string& transport) {
  Ring ring;
  ring.world = world;
  ring.context = make_context(threads);
  auto desc = RINGATTN_STRUCT(ringattn_comm_desc);
  desc.world_size = world;
  desc.transport = transport.empty() ? nullptr : transport.c_str();
  std::vector<ringattn_comm*> comms(static_cast<std::size_t>(world));
  check(ringattn_comm_create_local(ring.context.get(), &desc, comms.data()));
  for (int rank = 0; rank < world; ++rank) {
    ring.ranks.push_back(rank);
    ring.comms.emplace_back(comms[static_cast<std::size_t>(rank)]);
  }
  return ring;
}

std::optional<Ring> join_launched_ring(int threads) {
  Ring ring;
  ring.context =
      make_context(threads > 0 ? threads : share_of_cores(usable_cores(), ranks_of_this_machine()));
  const auto desc = RINGATTN_STRUCT(ringattn_comm_desc);  // world_size 0: the launcher's
  ringattn_comm* comm = nullptr;
  const ringattn_status status = ringattn_comm_create_from_environment(ring.context.get(), &desc, &comm);
  // A transport or a host may be what was not found: then this process must not go on as if it were alone.
  if (status == RINGATTN_ERR_NOT_FOUND && find_launcher() == nullptr) return std::nullopt;
  check(status);
  ring.comms.emplace_back(comm);
  int rank = 0;
  check(ringattn_comm_rank(comm, &rank, &ring.world));
  ring.ranks.push_back(rank);
  return ring;
}

}  // namespace ringattn::tool
