#include "comm/meeting_listen.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

namespace ringattn::comm {
namespace {

constexpr int kTriesForAPort = 16;

// 0 or errno. Port 0 becomes the one that the kernel chose.
int listen_on(const Address& address, std::uint16_t& port, int backlog, bool both_families, Socket& out) {
  const int family = address.family == 4 ? AF_INET : AF_INET6;
  Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.open()) return errno;
  const int on = 1, only_v6 = both_families ? 0 : 1;
  // Connections of an earlier meeting that linger in TIME_WAIT do not hold the port.
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6 &&
      setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof only_v6) != 0) {
    return errno;
  }
  sockaddr_storage storage;
  socklen_t size = to_sockaddr(address, port, storage);
  if (bind(socket.fd(), reinterpret_cast<const sockaddr*>(&storage), size) != 0) return errno;
  if (listen(socket.fd(), backlog) != 0) return errno;
  size = sizeof storage;
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&storage), &size) != 0) return errno;
  Address bound;
  from_sockaddr(storage, bound, port);
  out = std::move(socket);
  return 0;
}

Status cannot_listen(const Address& address, std::uint16_t port, int error) {
  return {RINGATTN_ERR_TRANSPORT, "meeting: cannot listen at " + endpoint_text(address, port) + ": " +
                                      errno_text(error) +
                                      (error == EADDRINUSE ? ", expected a port that no program holds"
                                                           : ", expected an address of this host")};
}

}  // namespace

Status listen_everywhere(std::uint16_t port, int backlog, Listening& out) {
  out = {};
  out.port = port;
  out.sockets.resize(1);
  out.at.resize(1);
  out.at[0].family = 6;
  int error = listen_on(out.at[0], out.port, backlog, true, out.sockets[0]);
  if (error == EAFNOSUPPORT || error == EADDRNOTAVAIL || error == ENOPROTOOPT) {
    out.at[0].family = 4;
    error = listen_on(out.at[0], out.port, backlog, false, out.sockets[0]);
  }
  return error == 0 ? Status() : cannot_listen(out.at[0], port, error);
}

Status listen_at(const std::vector<Address>& addresses, std::uint16_t port, int backlog, Listening& out) {
  Status failure = invalid("meeting: no address to listen at, expected at least one");
  // A port that the kernel chose at the first address may be taken at the second: then once more.
  for (int i = 0; i < (port == 0 ? kTriesForAPort : 1); ++i) {
    out = {};
    out.port = port;
    bool taken = false;
    for (const Address& address : addresses) {
      Socket socket;
      const std::uint16_t wanted = out.port;
      const int error = listen_on(address, out.port, backlog, false, socket);
      if (error != 0) {
        failure = cannot_listen(address, wanted, error);
        if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT) taken = true;
        continue;
      }
      out.sockets.push_back(std::move(socket));
      out.at.push_back(address);
    }
    if (!out.sockets.empty() && !taken) return {};
  }
  return failure;
}

}  // namespace ringattn::comm
