#include "comm/rendezvous_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "base/clock.h"

namespace ringattn::comm {

void Socket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void set_meeting_options(int fd) {
  // Each is a help only: a system that lacks one still works.
  const auto set = [fd](int level, int name, int value) {
    (void)setsockopt(fd, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 4);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

std::string errno_text(int error) { return std::generic_category().message(error); }

int poll_timeout(unsigned long long deadline_ns, int most) {
  const unsigned long long now = now_ns();
  if (deadline_ns <= now) return 0;
  return static_cast<int>(std::min<unsigned long long>((deadline_ns - now) / 1'000'000 + 1,
                                                       static_cast<unsigned long long>(most)));
}

}  // namespace ringattn::comm
