// Numeric internet addresses, from text, from names, and of this host's interfaces.
#pragma once
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace ringattn::comm {

struct Address {
  std::uint8_t family = 0;  // 4 or 6; 0 = none
  std::array<std::uint8_t, 16> bytes{};

  bool operator==(const Address&) const = default;
};

bool parse_address(const std::string& text, Address& out);  // numeric only; false = it is something else
std::string to_text(const Address& address);
std::string endpoint_text(const Address& address, std::uint16_t port);  // 192.0.2.1:80, [2001:db8::1]:80
bool is_loopback(const Address& address);
bool is_wildcard(const Address& address);
// "localhost" or a numeric address of loopback; other names may mean anything.
bool names_loopback(const std::string& host);

socklen_t to_sockaddr(const Address& address, std::uint16_t port, sockaddr_storage& out);
// An IPv4 address inside IPv6 becomes IPv4.
bool from_sockaddr(const sockaddr_storage& in, Address& address, std::uint16_t& port);
// "192.0.2.1:80", the other end of a connected socket; "an unknown address" where it has none.
std::string peer_text(int fd);

// What others may dial to reach this host, the interface of the default route first: addresses of interfaces
// that are up, without link-local ones (these mean nothing on another host). Loopback only where there is
// nothing else. `interface` = "" (all), the name of one, or a numeric address of this host.
Status own_addresses(const std::string& interface, std::vector<Address>& out);

// All addresses of a name or a numeric address. "localhost" needs no name service. Tries again until the
// deadline, as the name of a host that is just starting may not be known yet.
Status resolve(const std::string& host, std::uint64_t deadline_ns, std::vector<Address>& out);

}  // namespace ringattn::comm
