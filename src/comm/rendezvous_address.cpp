#include "comm/rendezvous_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <system_error>
#include <thread>

#include "base/clock.h"

namespace ringattn::comm {
namespace {

Address ipv4(const void* bytes) {
  Address address;
  address.family = 4;
  std::memcpy(address.bytes.data(), bytes, 4);
  return address;
}

Address ipv6(const void* bytes) {
  Address address;
  address.family = 6;
  std::memcpy(address.bytes.data(), bytes, 16);
  return address;
}

bool is_link_local(const Address& address) {
  if (address.family == 4) return address.bytes[0] == 169 && address.bytes[1] == 254;
  return address.bytes[0] == 0xfe && (address.bytes[1] & 0xc0) == 0x80;
}

bool from_sockaddr(const sockaddr* in, Address& address) {
  if (in == nullptr) return false;
  if (in->sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, in, sizeof v4);
    address = ipv4(&v4.sin_addr);
  } else if (in->sa_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, in, sizeof v6);
    address = IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) ? ipv4(v6.sin6_addr.s6_addr + 12) : ipv6(&v6.sin6_addr);
  } else {
    return false;
  }
  return true;
}

// The interface that leads to the rest of the world; "" where no route does. It is the one that other hosts
// most likely reach: bridges of containers and dummies have none.
std::string default_interface() {
  std::ifstream routes("/proc/net/route");
  std::string line;
  while (std::getline(routes, line)) {
    std::istringstream fields(line);
    std::string interface, destination;
    if (fields >> interface >> destination && destination == "00000000") return interface;
  }
  return {};
}

struct Found {
  int order;  // lower first
  Address address;
};

// Appends what `entry` offers, if anything.
void consider(const ifaddrs& entry, const std::string& wanted, const std::string& default_route,
              std::vector<Found>& found) {
  Address address;
  if ((entry.ifa_flags & IFF_UP) == 0 || !from_sockaddr(entry.ifa_addr, address)) return;
  if (is_link_local(address)) return;
  if (!wanted.empty() && wanted != entry.ifa_name) return;
  const bool loopback = (entry.ifa_flags & IFF_LOOPBACK) != 0;
  const int order = loopback ? 4 : default_route == entry.ifa_name ? 0 : 2;
  found.push_back({order + (address.family == 6 ? 1 : 0), address});
}

}  // namespace

bool parse_address(const std::string& text, Address& out) {
  std::uint8_t bytes[16];
  if (inet_pton(AF_INET, text.c_str(), bytes) == 1) {
    out = ipv4(bytes);
  } else if (inet_pton(AF_INET6, text.c_str(), bytes) == 1) {
    out = ipv6(bytes);
  } else {
    return false;
  }
  return true;
}

std::string to_text(const Address& address) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(address.family == 4 ? AF_INET : AF_INET6, address.bytes.data(), text, sizeof text);
  return text;
}

std::string endpoint_text(const Address& address, std::uint16_t port) {
  const std::string host = to_text(address);
  return (address.family == 6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool is_loopback(const Address& address) {
  return address.family == 4 ? address.bytes[0] == 127 : address == ipv6(&in6addr_loopback);
}

bool is_wildcard(const Address& address) {
  return std::all_of(address.bytes.begin(), address.bytes.end(), [](std::uint8_t byte) { return byte == 0; });
}

bool names_loopback(const std::string& host) {
  Address address;
  return host == "localhost" || (parse_address(host, address) && is_loopback(address));
}

socklen_t to_sockaddr(const Address& address, std::uint16_t port, sockaddr_storage& out) {
  out = {};
  if (address.family == 4) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&v4.sin_addr, address.bytes.data(), 4);
    std::memcpy(&out, &v4, sizeof v4);
    return sizeof v4;
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  std::memcpy(&v6.sin6_addr, address.bytes.data(), 16);
  std::memcpy(&out, &v6, sizeof v6);
  return sizeof v6;
}

bool from_sockaddr(const sockaddr_storage& in, Address& address, std::uint16_t& port) {
  if (!from_sockaddr(reinterpret_cast<const sockaddr*>(&in), address)) return false;
  // The port has the same place in both families.
  port = ntohs(reinterpret_cast<const sockaddr_in*>(&in)->sin_port);
  return true;
}

std::string peer_text(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  Address address;
  std::uint16_t port = 0;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0 ||
      !from_sockaddr(storage, address, port)) {
    return "an unknown address";
  }
  return endpoint_text(address, port);
}

Status own_addresses(const std::string& interface, std::vector<Address>& out) {
  out.clear();
  Address numeric;
  if (parse_address(interface, numeric)) {
    out.push_back(numeric);
    return {};
  }
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return {RINGATTN_ERR_TRANSPORT,
            "interfaces of this host: cannot be listed: " + std::generic_category().message(errno)};
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<Found> found;
  const std::string default_route = default_interface();
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    consider(*entry, interface, default_route, found);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) { return a.order < b.order; });
  for (const Found& one : found) {
    if (one.order >= 4 && !out.empty() && !is_loopback(out.front())) break;
    out.push_back(one.address);
  }
  if (!out.empty()) return {};
  return {RINGATTN_ERR_NOT_FOUND,
          interface.empty() ? "interfaces of this host: none is up with an address, expected one"
                            : "interface: \"" + interface +
                                  "\" is not up with an address that is not link-local, expected the "
                                  "name of an interface or a numeric address of this host"};
}

Status resolve(const std::string& host, std::uint64_t deadline_ns, std::vector<Address>& out) {
  out.clear();
  Address numeric;
  if (parse_address(host, numeric)) {
    out.push_back(numeric);
    return {};
  }
  if (host == "localhost") {
    const std::uint8_t v4[4] = {127, 0, 0, 1};
    out = {ipv4(v4), ipv6(&in6addr_loopback)};
    return {};
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  for (;;) {
    addrinfo* list = nullptr;
    const int error = getaddrinfo(host.c_str(), nullptr, &hints, &list);
    if (error == 0) {
      const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
      for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
        Address address;
        if (!from_sockaddr(entry->ai_addr, address) || is_link_local(address)) continue;
        if (std::find(out.begin(), out.end(), address) == out.end()) out.push_back(address);
      }
      if (!out.empty()) return {};
    }
    const bool may_come = error == 0 || error == EAI_AGAIN || error == EAI_NONAME;
    if (!may_come || now_ns() >= deadline_ns) {
      return {RINGATTN_ERR_NOT_FOUND, "host: \"" + host + "\" has no address (" +
                                          (error == 0 ? "link-local ones only" : gai_strerror(error)) +
                                          "), expected a name that every rank can resolve"};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

}  // namespace ringattn::comm
