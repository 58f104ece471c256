#include "transports/tcp/addresses.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace ringattn::tcp {
namespace {

constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kMostAddresses = 64;

// The blob: Head, then `count` times Entry.
struct Head {
  char magic[8] = {'r', 'a', '-', 't', 'c', 'p', '-', 'a'};
  std::uint32_t version = kVersion;
  std::uint32_t pid = 0;
  std::uint64_t network = 0;
  std::uint32_t count = 0;
  char host[64] = {};
  std::uint32_t zero = 0;
};
struct Entry {
  std::uint16_t family = 4;
  std::uint16_t port = 0;  // in network order
  std::uint8_t bytes[16] = {};
};
static_assert(sizeof(Head) == 96 && sizeof(Entry) == 20);
static_assert(sizeof(Head) + kMostAddresses * sizeof(Entry) <= 4096);

std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

std::string host_name() {
  char name[64] = "";
  if (::gethostname(name, sizeof name - 1) != 0) return "?";
  return name;
}

std::uint64_t this_network() {
  char boot[64] = "", space[PATH_MAX] = "";
  const Fd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  const bool have_boot = file && ::read(file.get(), boot, sizeof boot - 1) > 0;
  const bool have_space = ::readlink("/proc/self/ns/net", space, sizeof space - 1) > 0;
  // Without both nobody can tell; then only a link of this very process is near.
  if (!have_boot || !have_space) return hash_of(host_name() + std::to_string(::getpid()));
  return hash_of(std::string(boot) + space);
}

bool is_loopback(const SocketAddress& address) {
  if (address.any.sa_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&address.v6.sin6_addr);
  return ntohl(address.v4.sin_addr.s_addr) >> 24 == 127;
}

void set_port(SocketAddress& address, std::uint16_t port) {
  (address.any.sa_family == AF_INET6 ? address.v6.sin6_port : address.v4.sin_port) = htons(port);
}

// Addresses of all interfaces that are up, or of one. Link-local IPv6 ones mean nothing on another host.
std::vector<SocketAddress> interface_addresses(const char* only, bool with_v6) {
  std::vector<SocketAddress> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    if (only != nullptr && std::strcmp(only, each->ifa_name) != 0) continue;
    SocketAddress address;
    if (each->ifa_addr->sa_family == AF_INET) {
      std::memcpy(&address.v4, each->ifa_addr, sizeof address.v4);
    } else if (each->ifa_addr->sa_family == AF_INET6 && with_v6) {
      std::memcpy(&address.v6, each->ifa_addr, sizeof address.v6);
      if (IN6_IS_ADDR_LINKLOCAL(&address.v6.sin6_addr)) continue;
    } else {
      continue;
    }
    if (found.size() < kMostAddresses) found.push_back(address);
  }
  ::freeifaddrs(list);
  const auto v4_first = [](const SocketAddress& a) { return a.any.sa_family == AF_INET; };
  std::stable_partition(found.begin(), found.end(), v4_first);
  std::stable_partition(found.begin(), found.end(), is_loopback);
  return found;
}

bool parse_numeric(const char* text, SocketAddress& out) {
  if (::inet_pton(AF_INET, text, &out.v4.sin_addr) == 1) {
    out.any.sa_family = AF_INET;
    return true;
  }
  out = SocketAddress();
  if (::inet_pton(AF_INET6, text, &out.v6.sin6_addr) != 1) return false;
  out.any.sa_family = AF_INET6;
  return true;
}

// The one address that the environment asks for; false with an `error` when there is no such.
bool chosen_address(const char* interface, const char* numeric, SocketAddress& out, std::string& error) {
  if (numeric != nullptr) {
    if (parse_numeric(numeric, out)) return true;
    error = "RINGATTN_TCP_ADDRESS=" + std::string(numeric) + " is not a numeric IPv4 or IPv6 address";
    return false;
  }
  const auto found = interface_addresses(interface, true);
  if (!found.empty()) out = found.front();
  if (found.empty()) {
    error = "RINGATTN_TCP_INTERFACE=" + std::string(interface) + ": no such interface is up with an address";
  }
  return !found.empty();
}

const char* setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

}  // namespace

std::string LinkAddress::who() const { return "host " + host + ", pid " + std::to_string(pid); }

Fd open_listener(LinkAddress& self, std::string& error) {
  self.network = this_network();
  self.pid = static_cast<std::uint32_t>(::getpid());
  self.host = host_name();
  const char* const interface = setting("RINGATTN_TCP_INTERFACE");
  const char* const numeric = setting("RINGATTN_TCP_ADDRESS");
  Fd listener;
  if (interface != nullptr || numeric != nullptr) {
    SocketAddress address;
    if (!chosen_address(interface, numeric, address, error)) return listener;
    listener = listen_on(address);
    if (!listener) error = "cannot listen on " + address.text() + ": " + std::strerror(errno);
    self.at = {address};
  } else {
    listener = listen_on_all();
    if (!listener) error = std::string("cannot listen: ") + std::strerror(errno);
    self.at = interface_addresses(nullptr, listener && family_of(listener) == AF_INET6);
  }
  if (!listener) return listener;
  for (SocketAddress& address : self.at) set_port(address, local_port(listener));
  if (self.at.empty()) {
    error = "no network interface is up, not even loopback";
    listener.reset();
  }
  return listener;
}

std::string write_address(const LinkAddress& address) {
  Head head;
  head.pid = address.pid;
  head.network = address.network;
  head.count = static_cast<std::uint32_t>(address.at.size());
  std::memcpy(head.host, address.host.data(), std::min(address.host.size(), sizeof head.host - 1));
  std::string out(reinterpret_cast<const char*>(&head), sizeof head);
  for (const SocketAddress& at : address.at) {
    Entry entry;
    const bool is_v6 = at.any.sa_family == AF_INET6;
    entry.family = is_v6 ? 6 : 4;
    entry.port = is_v6 ? at.v6.sin6_port : at.v4.sin_port;
    if (is_v6) {
      std::memcpy(entry.bytes, &at.v6.sin6_addr, 16);
    } else {
      std::memcpy(entry.bytes, &at.v4.sin_addr, 4);
    }
    out.append(reinterpret_cast<const char*>(&entry), sizeof entry);
  }
  return out;
}

bool read_address(const void* data, std::size_t bytes, LinkAddress& out) {
  Head head;
  if (data == nullptr || bytes < sizeof head) return false;
  std::memcpy(&head, data, sizeof head);
  if (std::memcmp(head.magic, Head().magic, sizeof head.magic) != 0 || head.version != kVersion) return false;
  if (head.count == 0 || head.count > kMostAddresses) return false;
  if (bytes != sizeof head + head.count * sizeof(Entry)) return false;
  out.network = head.network;
  out.pid = head.pid;
  out.host.assign(head.host, ::strnlen(head.host, sizeof head.host - 1));
  out.at.clear();
  for (std::size_t i = 0; i < head.count; ++i) {
    Entry entry;
    std::memcpy(&entry, static_cast<const char*>(data) + sizeof head + i * sizeof entry, sizeof entry);
    SocketAddress at;
    if (entry.family == 6) {
      at.v6.sin6_family = AF_INET6;
      at.v6.sin6_port = entry.port;
      std::memcpy(&at.v6.sin6_addr, entry.bytes, 16);
    } else if (entry.family == 4) {
      at.v4.sin_family = AF_INET;
      at.v4.sin_port = entry.port;
      std::memcpy(&at.v4.sin_addr, entry.bytes, 4);
    } else {
      return false;
    }
    out.at.push_back(at);
  }
  return true;
}

std::vector<SocketAddress> to_try(const LinkAddress& self, const LinkAddress& peer) {
  std::vector<SocketAddress> out;
  for (const SocketAddress& address : peer.at) {
    if (self.network == peer.network || !is_loopback(address)) out.push_back(address);
  }
  return out;
}

}  // namespace ringattn::tcp
