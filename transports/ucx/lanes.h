// Over what UCX moves bytes: which of its transports it may use, and which it has taken.
#pragma once
#include <string>
#include <vector>

#include "transports/tcp/carrier.h"
#include "transports/ucx/context.h"

namespace ringattn::ucx {

// Attempt 0: shared memory to ranks of this host, else the network. Attempt 1, for hosts whose ranks may not share memory
// (other users, containers): the network alone. False: there is no such attempt.
bool settings_of(int attempt, const std::vector<tcp::CarrierPeer>& peers, Settings& settings);

// Adds the names of what this endpoint uses, each once: "posix, cma".
void add_lanes(ucp_ep_h endpoint, std::string& lanes);

}  // namespace ringattn::ucx
