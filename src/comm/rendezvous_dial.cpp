#include "comm/rendezvous_dial.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"

namespace ringattn::comm {
namespace {

constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kHeadStart = 150 * kMillisecond;  // of an address before the one behind it
constexpr std::uint64_t kMostForOne =
    3'000 * kMillisecond;  // a SYN that was lost is sent again after one second

// A dialer whose port the kernel happens to choose as the source port, while nobody listens, is connected to
// itself; it would keep the host from ever listening there.
bool connected_to_itself(int fd) {
  sockaddr_storage here{}, there{};
  socklen_t size = sizeof here;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size) != 0) return false;
  size = sizeof there;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&there), &size) != 0) return false;
  Address a, b;
  std::uint16_t port_a = 0, port_b = 0;
  return from_sockaddr(here, a, port_a) && from_sockaddr(there, b, port_b) && a == b && port_a == port_b;
}

int bind_source(int fd, const std::vector<Address>& from, std::uint8_t family) {
  if (from.empty()) return 0;
  for (const Address& address : from) {
    if (address.family != family) continue;
    sockaddr_storage source;
    const socklen_t size = to_sockaddr(address, 0, source);
    return bind(fd, reinterpret_cast<const sockaddr*>(&source), size) == 0 ? 0 : errno;
  }
  return EAFNOSUPPORT;  // the chosen interface has no address of this family
}

}  // namespace

Dialer::Dialer(std::vector<Address> to, std::uint16_t port, std::vector<Address> from,
               std::uint64_t deadline_ns)
    : to_(std::move(to)),
      port_(port),
      from_(std::move(from)),
      deadline_ns_(deadline_ns),
      notes_(to_.size()) {}

void Dialer::start(std::size_t which) {
  const Address& address = to_[which];
  const int family = address.family == 4 ? AF_INET : AF_INET6;
  const std::uint64_t now = now_ns();
  next_start_ns_ = now;  // at once, unless this one is on its way
  Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error = socket.open() ? bind_source(socket.fd(), from_, address.family) : errno;
  if (error == 0) {
    set_meeting_options(socket.fd());
    sockaddr_storage target;
    const socklen_t size = to_sockaddr(address, port_, target);
    if (connect(socket.fd(), reinterpret_cast<const sockaddr*>(&target), size) != 0) error = errno;
  }
  if (error != 0 && error != EINPROGRESS) {
    notes_[which] = errno_text(error);
    return;
  }
  next_start_ns_ = now + kHeadStart;
  attempts_.push_back({std::move(socket), which, std::min(deadline_ns_, now + kMostForOne)});
}

void Dialer::wait_for_one() {
  std::vector<pollfd> polled;
  std::uint64_t until = started_ < to_.size() ? next_start_ns_ : deadline_ns_;
  for (const Attempt& attempt : attempts_) {
    polled.push_back({attempt.socket.fd(), POLLOUT, 0});
    until = std::min(until, attempt.until_ns);
  }
  poll(polled.data(), polled.size(), poll_timeout(until, 1000));
}

bool Dialer::take(Attempt& attempt, Socket& socket) {
  pollfd polled{attempt.socket.fd(), POLLOUT, 0};
  std::string& note = notes_[attempt.which];
  if (poll(&polled, 1, 0) == 1) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(attempt.socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0 && !connected_to_itself(attempt.socket.fd())) {
      socket = std::move(attempt.socket);
      return true;
    }
    note = errno_text(error == 0 ? ECONNREFUSED : error);
    attempt.socket.close();
  } else if (now_ns() >= attempt.until_ns) {
    note = "no answer";
    attempt.socket.close();
  }
  return false;
}

bool Dialer::next(Socket& socket, std::size_t& which) {
  for (;;) {
    while (started_ < to_.size() && (attempts_.empty() || now_ns() >= next_start_ns_)) start(started_++);
    if (attempts_.empty()) return false;
    wait_for_one();
    for (std::size_t i = 0; i < attempts_.size();) {
      const bool established = take(attempts_[i], socket);
      which = attempts_[i].which;
      if (!attempts_[i].socket.open())
        attempts_.erase(attempts_.begin() + static_cast<std::ptrdiff_t>(i));
      else
        ++i;
      if (established) return true;
    }
  }
}

}  // namespace ringattn::comm
