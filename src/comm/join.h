// How ranks of different processes become a ring: three rounds of an all-gather that somebody else provides.
#pragma once
#include <cstdint>
#include <string>

#include "base/status.h"
#include "comm/comm.h"

namespace ringattn::comm {

// Gather (comm.h): all[r] becomes what rank r gave, at most so many bytes each.
inline constexpr std::size_t kMostGathered = 8192;

struct JoinRequest {
  std::int32_t rank = 0, world = 1;
  std::string transport;  // wished; "" = the best that all ranks can run
  CommOptions options;
};

}  // namespace ringattn::comm
