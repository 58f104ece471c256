// The environment in which a launcher starts its ranks, which ringattn_comm_create_from_environment reads.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ringattn::tool {

inline constexpr int kMostRanks = 4096;

// A port of this machine that nobody listens on. Throws RunFailed.
std::uint16_t free_port();

// This process's environment, but for what is set for the ranks: how many they are, where they meet (host:port; "" = a
// free port of 127.0.0.1) and a new secret. RINGATTN_RANK and RINGATTN_LOCAL_RANK are left to run_ranks.
std::vector<std::string> rank_environment(int ranks, const std::string& rendezvous);

}  // namespace ringattn::tool
