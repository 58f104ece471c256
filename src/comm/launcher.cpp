#include "comm/launcher.h"

#include <algorithm>
#include <vector>

#include "comm/launcher_variables.h"
#include "comm/rendezvous_address.h"

namespace ringattn::comm {
namespace {

constexpr std::int64_t kMostRanks = 4096;
constexpr std::int64_t kPortOffset = 1117;
constexpr std::size_t kLeastSecret =
    16;  // characters; a shorter one could be guessed from one recorded handshake
constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kRankWhat = "the number of this rank";
constexpr const char* kWorldWhat = "the number of ranks";

// What a launcher told, before RINGATTN_RENDEZVOUS and the secret.
struct Told {
  Launch launch;
  std::string run;           // tells this run from others
  bool needs_place = false;  // `missing` says why the launcher's own place will not do
  Status missing;
};

Bytes bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

Status read_rank(const Variables& env, const char* rank_name, const char* world_name, Launch& launch) {
  std::int64_t rank = 0, world = 0;
  RINGATTN_TRY(env.number(world_name, kWorldWhat, 1, kMostRanks, world));
  RINGATTN_TRY(env.number(rank_name, kRankWhat, 0, kMostRanks - 1, rank));
  if (rank >= world) {
    return invalid(std::string(rank_name) + ": " + std::to_string(rank) + ", expected 0.." +
                   std::to_string(world - 1) + " (" + world_name + " is " + std::to_string(world) + ")");
  }
  launch.rank = static_cast<std::int32_t>(rank);
  launch.world = static_cast<std::int32_t>(world);
  return {};
}

Status read_local_rank(const Variables& env, const char* name, Launch& launch) {
  if (!env.has(name)) return {};
  std::int64_t local = 0;
  RINGATTN_TRY(env.number(name, "the number of this rank on its host", 0, kMostRanks - 1, local));
  launch.local_rank = static_cast<std::int32_t>(local);
  return {};
}

// Does this variable say that all ranks are on this host?
bool equals(const Variables& env, const char* name, std::int64_t value) {
  return env.text(name) == std::to_string(value);
}

std::uint16_t port_of(const std::string& run) {
  const Mac digest = sha256("ringattn port", {bytes_of(run)});
  return static_cast<std::uint16_t>(16384 + (get<std::uint16_t>(digest.data()) & 0x3fff));
}

Status from_ringattn(const Variables& env, Told& told) {
  RINGATTN_TRY(read_rank(env, kEnvRank, kEnvWorldSize, told.launch));
  RINGATTN_TRY(read_local_rank(env, kEnvLocalRank, told.launch));
  told.run = "ringattn";
  told.needs_place = true;
  told.missing = invalid(std::string(kEnvRendezvous) +
                         ": not set, expected host:port of rank 0, as RINGATTN_RANK is set");
  return {};
}

Status from_torchrun(const Variables& env, Told& told) {
  RINGATTN_TRY(read_rank(env, "RANK", "WORLD_SIZE", told.launch));
  RINGATTN_TRY(read_local_rank(env, "LOCAL_RANK", told.launch));
  const std::string id = env.text("TORCHELASTIC_RUN_ID");
  told.run =
      "torchrun " + std::to_string(id.size()) + " " + id + " " + env.text("TORCHELASTIC_RESTART_COUNT");
  if (told.launch.world == 1 || env.has(kEnvRendezvous)) return {};
  std::int64_t port = 0;
  RINGATTN_TRY(env.need("MASTER_ADDR", "the host of rank 0, as RANK is set", told.launch.host));
  Address address;
  if (parse_address(told.launch.host, address) && is_wildcard(address)) {
    return invalid("MASTER_ADDR: \"" + told.launch.host + "\", expected an address that every rank can dial");
  }
  RINGATTN_TRY(env.number("MASTER_PORT", "a port", 1, 65535, port));
  port += port + kPortOffset <= 65535 ? kPortOffset : -kPortOffset;
  told.launch.port = static_cast<std::uint16_t>(port);
  if (equals(env, "LOCAL_WORLD_SIZE", told.launch.world)) told.launch.host = kLoopback;
  return {};
}

Status from_open_mpi(const Variables& env, Told& told) {
  RINGATTN_TRY(read_rank(env, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", told.launch));
  RINGATTN_TRY(read_local_rank(env, "OMPI_COMM_WORLD_LOCAL_RANK", told.launch));
  const char* names[] = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"};
  const auto* name =
      std::find_if(std::begin(names), std::end(names), [&](const char* n) { return env.has(n); });
  const bool named = name != std::end(names);
  told.run = "openmpi " + (named ? env.text(*name) : std::string());
  told.launch.host = kLoopback;
  told.launch.port = port_of(told.run);
  if (!equals(env, "OMPI_COMM_WORLD_LOCAL_SIZE", told.launch.world)) {
    told.needs_place = true;
    told.missing =
        invalid(std::string(kEnvRendezvous) +
                ": not set, expected host:port of rank 0, as Open MPI's ranks are on several hosts "
                "(OMPI_COMM_WORLD_LOCAL_SIZE is \"" +
                env.text("OMPI_COMM_WORLD_LOCAL_SIZE") + "\")");
  } else if (!named) {
    told.needs_place = true;
    told.missing =
        invalid("PMIX_NAMESPACE: not set, expected Open MPI's name of the job, or RINGATTN_RENDEZVOUS");
  }
  return {};
}

// Not SLURM_LAUNCH_NODE_IPADDR first: that is where srun was typed, which may be a login node without any rank.
Status slurm_host(const Variables& env, std::string& host) {
  if (equals(env, "SLURM_STEP_NUM_NODES", 1) ||
      (!env.has("SLURM_STEP_NUM_NODES") && equals(env, "SLURM_NNODES", 1))) {
    host = kLoopback;
    return {};
  }
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
    if (env.has(name)) return first_node(name, env.text(name), host);
  }
  return env.need("SLURM_LAUNCH_NODE_IPADDR", "the host of rank 0, as SLURM_STEP_NODELIST is not set either",
                  host);
}

Status from_slurm(const Variables& env, Told& told) {
  RINGATTN_TRY(read_rank(env, "SLURM_PROCID", "SLURM_NTASKS", told.launch));
  RINGATTN_TRY(read_local_rank(env, "SLURM_LOCALID", told.launch));
  std::string job;
  Status status = env.need("SLURM_JOB_ID", "the number of the job, as SLURM_PROCID is set", job);
  told.run = "slurm " + job + "." + env.text("SLURM_STEP_ID") + " " + env.text("SLURM_RESTART_COUNT");
  told.launch.port = port_of(told.run);
  if (status.ok() && !env.has(kEnvRendezvous)) status = slurm_host(env, told.launch.host);
  told.needs_place = !status.ok();
  told.missing = status;
  return {};
}

struct Launcher {
  const char* name;
  std::vector<const char*> signs;  // all of them set: it is taken
  Status (*read)(const Variables&, Told&);
};

const std::vector<Launcher>& launchers() {
  static const std::vector<Launcher> list = {
      {"RINGATTN_RANK", {kEnvRank}, from_ringattn},
      {"RINGATTN_RANK", {kEnvWorldSize}, from_ringattn},
      {"torchrun", {"RANK", "WORLD_SIZE"}, from_torchrun},
      {"torchrun", {"TORCHELASTIC_RUN_ID"}, from_torchrun},
      {"Open MPI", {"OMPI_COMM_WORLD_RANK"}, from_open_mpi},
      {"Slurm", {"SLURM_PROCID"}, from_slurm},
  };
  return list;
}

Status read_secret(const Variables& env, const Told& told, Key& out) {
  const std::string secret = env.text(kEnvSecret);
  if (!secret.empty() && secret.size() < kLeastSecret) {
    return invalid(std::string(kEnvSecret) + ": " + std::to_string(secret.size()) +
                   " characters, expected at least 16, for example of openssl rand -hex 16");
  }
  const std::string insecure = env.text(kEnvInsecure);
  if (!insecure.empty() && insecure != "0" && insecure != "1") {
    return invalid(std::string(kEnvInsecure) + ": \"" + insecure + "\", expected 0 or 1");
  }
  if (secret.empty() && told.launch.world > 1 && !names_loopback(told.launch.host) && insecure != "1") {
    return invalid(std::string(kEnvSecret) +
                   ": not set, expected the same on every rank, as the ranks meet at " + told.launch.host +
                   ", which is not loopback (RINGATTN_INSECURE=1 lets anybody join)");
  }
  std::vector<std::uint8_t> size;
  put(size, static_cast<std::uint64_t>(secret.size()));
  out = Key(sha256("ringattn environment secret", {size, bytes_of(secret), bytes_of(told.run)}));
  return {};
}

Status finish(const Variables& env, const char* name, Told& told) {
  Launch& launch = told.launch;
  const std::string rendezvous = env.text(kEnvRendezvous);
  if (!rendezvous.empty()) {
    Place place;
    RINGATTN_TRY(parse_place(kEnvRendezvous, rendezvous, place));
    launch.host = place.host;
    launch.port = place.port;
  } else if (launch.world == 1) {
    launch.host = kLoopback;  // nobody else comes
    launch.port = 0;
  } else if (told.needs_place) {
    return told.missing;
  }
  launch.interface = env.text(kEnvInterface);
  RINGATTN_TRY(read_secret(env, told, launch.secret));
  const bool v6 = launch.host.find(':') != std::string::npos;
  launch.source = std::string(name) + ": rank " + std::to_string(launch.rank) + " of " +
                  std::to_string(launch.world) + ", meeting at " +
                  (v6 ? "[" + launch.host + "]" : launch.host) + ":" + std::to_string(launch.port) +
                  (rendezvous.empty() ? "" : " (RINGATTN_RENDEZVOUS)");
  return {};
}

}  // namespace

Status read_launch(const Lookup& lookup, Launch& out) {
  RINGATTN_TRY(start_crypto());
  const Variables env(lookup);
  for (const Launcher& launcher : launchers()) {
    const bool taken = std::all_of(launcher.signs.begin(), launcher.signs.end(),
                                   [&](const char* sign) { return env.has(sign); });
    if (!taken) continue;
    Told told;
    RINGATTN_TRY(launcher.read(env, told));
    RINGATTN_TRY(finish(env, launcher.name, told));
    out = std::move(told.launch);
    return {};
  }
  return {
      RINGATTN_ERR_NOT_FOUND,
      "launcher: none found, expected RINGATTN_RANK and RINGATTN_WORLD_SIZE, torchrun's RANK and WORLD_SIZE, "
      "Open MPI's OMPI_COMM_WORLD_RANK, or Slurm's SLURM_PROCID"};
}

}  // namespace ringattn::comm
