// Which rank this process is, and where the ranks meet, from the environment that its launcher has set.
//
//   source    rank and world                 where                                   port
//   ringattn  RINGATTN_RANK, _WORLD_SIZE     RINGATTN_RENDEZVOUS                     as given there
//   torchrun  RANK, WORLD_SIZE               MASTER_ADDR                             MASTER_PORT + 1117
//   Open MPI  OMPI_COMM_WORLD_RANK, _SIZE    only loopback                           of the job's namespace
//   Slurm     SLURM_PROCID, SLURM_NTASKS     first of SLURM_STEP_NODELIST            of job and step
//
// The first whose rank is set is taken. RINGATTN_RENDEZVOUS (host:port, [v6]:port) goes before any launcher's
// place; ranks that all run on one host meet on loopback. Rank 0 hosts the meeting.
//
// torchrun's MASTER_PORT itself may be held by its own store, hence the offset (downwards where it would leave
// the range). Ports that are made from a job's numbers lie in 16384..32767, below those that Linux gives to
// outgoing connections.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "base/env.h"
#include "base/status.h"
#include "comm/rendezvous_crypto.h"

namespace ringattn::comm {

struct Launch {
  std::int32_t rank = 0;
  std::int32_t world = 1;
  std::int32_t local_rank = -1;  // -1 = not told
  std::string host;              // numeric, or a name
  std::uint16_t port = 0;        // 0 only in a world of one rank
  std::string interface;         // RINGATTN_INTERFACE, "" = any
  // Made of RINGATTN_SECRET and what tells this run from others: the job, the step, the restart.
  Key secret;
  std::string source;  // one line for the log: who told, and what
};

// The value of a variable, or null where it is not set. An empty value counts as not set.
using Lookup = std::function<const char*(const char* name)>;

// NOT_FOUND: no launcher's variables are set. INVALID_ARGUMENT: one is missing or makes no sense; the message
// names it. A place beyond loopback needs RINGATTN_SECRET, or RINGATTN_INSECURE=1 where every program that can
// reach the port may join.
Status read_launch(const Lookup& lookup, Launch& out);

}  // namespace ringattn::comm
