#include "transports/tcp/sockets.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstring>

namespace ringattn::tcp {
namespace {

constexpr int kFlags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
constexpr int kBacklog = 1024;  // the kernel lowers it to its own limit

void set_option(int socket, int level, int name, int value) {
  ::setsockopt(socket, level, name, &value, sizeof value);
}

Fd bind_and_listen(Fd socket, const SocketAddress& address) {
  if (!socket) return socket;
  if (::bind(socket.get(), &address.any, address.bytes()) != 0 || ::listen(socket.get(), kBacklog) != 0) {
    const int error = errno;
    socket.reset();
    errno = error;
  }
  return socket;
}

SocketAddress local_address(const Fd& socket) {
  SocketAddress address;
  socklen_t bytes = sizeof address.v6;
  if (::getsockname(socket.get(), &address.any, &bytes) != 0) address = SocketAddress();
  return address;
}

}  // namespace

std::string SocketAddress::text() const {
  char name[INET6_ADDRSTRLEN] = "?";
  const bool is_v6 = any.sa_family == AF_INET6;
  if (is_v6) {
    ::inet_ntop(AF_INET6, &v6.sin6_addr, name, sizeof name);
  } else {
    ::inet_ntop(AF_INET, &v4.sin_addr, name, sizeof name);
  }
  return (is_v6 ? "[" + std::string(name) + "]" : std::string(name)) + ":" + std::to_string(port());
}

Fd listen_on(const SocketAddress& address) {
  return bind_and_listen(Fd(::socket(address.any.sa_family, kFlags, 0)), address);
}

Fd listen_on_all() {
  SocketAddress any;
  any.v6.sin6_family = AF_INET6;
  any.v6.sin6_addr = in6addr_any;
  Fd socket(::socket(AF_INET6, kFlags, 0));
  if (socket) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);  // takes IPv4 as well
  socket = bind_and_listen(std::move(socket), any);
  if (socket) return socket;
  SocketAddress any_v4;
  any_v4.v4.sin_family = AF_INET;
  return listen_on(any_v4);
}

Fd begin_connect(const SocketAddress& address) {
  Fd socket(::socket(address.any.sa_family, kFlags, 0));
  if (!socket) return socket;
  set_common_options(socket);
  if (::connect(socket.get(), &address.any, address.bytes()) != 0 && errno != EINPROGRESS) {
    const int error = errno;
    socket.reset();
    errno = error;
  }
  return socket;
}

Fd accept_from(const Fd& listener) {
  Fd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) set_common_options(socket);
  return socket;
}

Fd make_event() { return Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)); }

std::uint16_t local_port(const Fd& socket) { return local_address(socket).port(); }

int family_of(const Fd& socket) { return local_address(socket).any.sa_family; }

std::string interface_of(int socket) {
  SocketAddress own;
  socklen_t bytes = sizeof own.v6;
  ifaddrs* list = nullptr;
  if (::getsockname(socket, &own.any, &bytes) != 0 || ::getifaddrs(&list) != 0) return "";
  const bool mapped = own.any.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&own.v6.sin6_addr);
  std::string name;
  for (const ifaddrs* at = list; at != nullptr && name.empty(); at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
    const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(at->ifa_addr);
    bool same = false;
    if (at->ifa_addr->sa_family == AF_INET6 && own.any.sa_family == AF_INET6) {
      same = std::memcmp(&v6->sin6_addr, &own.v6.sin6_addr, 16) == 0;
    } else if (at->ifa_addr->sa_family == AF_INET) {
      const void* const address =
          mapped ? own.v6.sin6_addr.s6_addr + 12 : static_cast<const void*>(&own.v4.sin_addr);
      const bool is_v4 = mapped || own.any.sa_family == AF_INET;
      same = is_v4 && std::memcmp(&v4->sin_addr, address, 4) == 0;
    }
    if (same) name = at->ifa_name;
  }
  ::freeifaddrs(list);
  return name;
}

int socket_error(const Fd& socket) {
  int error = 0;
  socklen_t bytes = sizeof error;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 ? error : errno;
}

void set_common_options(const Fd& socket) { set_option(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1); }

void set_lifeline_options(const Fd& socket) {
  set_option(socket.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket.get(), IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set_option(socket.get(), IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(socket.get(), IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_user_timeout(socket.get(), 4000);
}

void set_user_timeout(int socket, unsigned milliseconds) {
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
}

int unsent(int socket) {
  int bytes = 0;
  return ::ioctl(socket, SIOCOUTQNSD, &bytes) == 0 ? bytes : 0;
}

int unacknowledged(int socket) {
  int bytes = 0;
  return ::ioctl(socket, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

}  // namespace ringattn::tcp
