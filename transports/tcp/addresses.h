// How a link is reached: what `address` writes and `connect` reads.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "transports/tcp/sockets.h"

namespace ringattn::tcp {

struct LinkAddress {
  std::uint64_t network = 0;  // equal where loopback leads to each other: one boot and one network namespace
  std::uint32_t pid = 0;
  std::string host;
  std::vector<SocketAddress> at;  // loopback ones first

  std::string who() const;  // "host node7, pid 4711"
};

// Where to listen, by RINGATTN_TCP_ADDRESS or RINGATTN_TCP_INTERFACE, else everywhere. On failure the Fd is
// empty and `error` says why.
Fd open_listener(LinkAddress& self, std::string& error);

std::string write_address(const LinkAddress& address);
// False for anything but what write_address of this version has made.
bool read_address(const void* data, std::size_t bytes, LinkAddress& out);

// Those of the addresses of `peer` that can lead from `self` to it, in the order in which to try them.
std::vector<SocketAddress> to_try(const LinkAddress& self, const LinkAddress& peer);

}  // namespace ringattn::tcp
