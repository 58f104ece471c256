// What the host of a meeting tells ranks besides their bytes: why one was refused, why the meeting ended.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/rendezvous_crypto.h"

namespace ringattn::comm {

inline constexpr std::size_t kMostPart = 65'536;  // bytes of one rank in one round

struct Notice {
  bool try_again = false;  // the rank is from the future: this meeting is about to end
  Status status;
};
std::vector<std::uint8_t> write_notice(const Notice& notice);
Notice read_notice(Bytes bytes);

// The bytes of all ranks, in rank order: for each its length (4 bytes), then they themselves.
std::size_t most_of_all_parts(std::int32_t world);
std::vector<std::uint8_t> write_all_parts(const std::vector<std::vector<std::uint8_t>>& parts);
bool read_all_parts(Bytes bytes, std::int32_t world, std::vector<std::vector<std::uint8_t>>& out);

// "rank 3", "ranks 1, 2 and 5", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 more"
std::string name_ranks(const std::vector<std::int32_t>& ranks);

}  // namespace ringattn::comm
