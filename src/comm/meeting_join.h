// A rank's way into a meeting: finds the host, goes through the handshake, hears what the host says to it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/rendezvous_channel.h"
#include "comm/rendezvous_id.h"

namespace ringattn::comm {

// How long a rank waits for the host's last word once its own time is over.
inline constexpr std::uint64_t kGrace = 1'000'000'000;

struct Joining {
  std::int32_t rank = 0, world = 1;
  std::int64_t timeout_ms = -1;
  std::uint64_t deadline_ns = ~std::uint64_t{0};
  std::vector<Address> from;  // where connections start; empty = anywhere
};

// `place` becomes the address at which the host was found.
Status join_host(const UniqueId& id, const Joining& joining, std::optional<Channel>& channel,
                 std::string& place);

// Writes what is queued and waits for one frame until the deadline.
Channel::Result wait_for_frame(Channel& channel, std::uint64_t deadline_ns, Frame& out);

}  // namespace ringattn::comm
