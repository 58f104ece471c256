// Sockets that listen at all addresses of a host, or at some, on one port.
#pragma once
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "comm/rendezvous_address.h"
#include "comm/rendezvous_socket.h"

namespace ringattn::comm {

struct Listening {
  std::vector<Socket> sockets;
  std::vector<Address> at;
  std::uint16_t port = 0;
};

// On every interface, IPv4 and IPv6 where the system has it; `at` holds the wildcard address.
Status listen_everywhere(std::uint16_t port, int backlog, Listening& out);
// At these addresses; those that this host does not have are passed over if another one is left.
Status listen_at(const std::vector<Address>& addresses, std::uint16_t port, int backlog, Listening& out);

}  // namespace ringattn::comm
