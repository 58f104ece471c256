// From a comm's description to its options.
#pragma once
#include "base/status.h"
#include "comm/comm.h"

namespace ringattn::api {

// The struct and its world size. least_world: 1, or 0 where the world size may come from elsewhere.
Status read_comm_world(const ringattn_comm_desc* given, std::int32_t least_world, ringattn_comm_desc& desc);
Status read_comm_timeouts(const ringattn_comm_desc& desc, comm::CommOptions& options);
// Both.
Status read_comm_desc(const ringattn_comm_desc* given, std::int32_t least_world, ringattn_comm_desc& desc,
                      comm::CommOptions& options);

std::unique_ptr<ringattn_comm> make_comm_handle(ringattn_context* context, std::unique_ptr<comm::Comm> comm);
// Gives handles to the caller: from here on they are children of their context.
void hand_out(std::vector<std::unique_ptr<ringattn_comm>> handles, ringattn_comm** out);

}  // namespace ringattn::api
