// Descriptors and the options that sockets of this transport have.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

namespace ringattn::tcp {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

// An IPv4 or IPv6 address with its port.
struct SocketAddress {
  union {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6;
  };
  SocketAddress() : v6() {}
  socklen_t bytes() const { return any.sa_family == AF_INET6 ? sizeof v6 : sizeof v4; }
  std::uint16_t port() const { return ntohs(any.sa_family == AF_INET6 ? v6.sin6_port : v4.sin_port); }
  std::string text() const;  // 10.0.0.1:4711, [fe80::1]:4711
};

// All of these return an empty Fd with errno set on failure; sockets are non-blocking and close on exec.
Fd listen_on(const SocketAddress& address);  // port 0 = any that is free
Fd listen_on_all();
Fd begin_connect(const SocketAddress& address);
Fd accept_from(const Fd& listener);
Fd make_event();

std::uint16_t local_port(const Fd& socket);
int family_of(const Fd& socket);
std::string interface_of(int socket);       // the one whose address it has; "" = none
int socket_error(const Fd& socket);         // of a connect that has ended; 0 = connected
void set_common_options(const Fd& socket);  // no delay
// Finds a host that is gone: 4 s without any answer end the connection.
void set_lifeline_options(const Fd& socket);
void set_user_timeout(int socket, unsigned milliseconds);
// Bytes that are still to be sent, and those that the peer's kernel has not acknowledged (which may take
// 40 ms even next door).
int unsent(int socket);
int unacknowledged(int socket);

}  // namespace ringattn::tcp
