// What one execution costs beside its computing: one token a rank, so that there is next to nothing to compute. And how fast
// the same bytes go by a plain socket.
#pragma once
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <vector>

#include "case.h"

namespace ringattn::bench {

constexpr int kUntimed = 50;  // executions before a batch: both ranks are there, and the caches warm

// Seconds per execution, of each batch: the whole, and what of it went into tiles.
struct Batches {
  std::vector<double> whole, tiles, agree;

  void take(Case& of, int calls) {
    for (int i = 0; i < kUntimed; ++i) of.run();
    std::uint64_t tiles_ns = 0, agree_ns = 0;
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) {
      of.run();
      const ringattn_times times = of.times();  // tens of nanoseconds, which count as overhead
      tiles_ns += times.compute_ns;
      agree_ns += times.agree_ns;
    }
    const double each = 1.0 / calls;
    whole.push_back(seconds_since(start) * each);
    tiles.push_back(static_cast<double>(tiles_ns) * 1e-9 * each);
    agree.push_back(static_cast<double>(agree_ns) * 1e-9 * each);
    of.check();
  }
  nlohmann::json json() const { return {{"whole", whole}, {"tiles", tiles}, {"agree", agree}}; }
};

inline nlohmann::json measure_step(ringattn_comm* ring, ringattn_comm* alone, std::int32_t world,
                                   const Shape& shape, int pairs, int calls) {
  const std::int64_t keys = shape.tokens * world;
  Case both(ring, shape, keys, keys), compute(alone, shape, shape.tokens, keys);
  Batches both_s, compute_s;
  for (int i = 0; i < pairs; ++i) {
    both_s.take(both, calls);
    compute_s.take(compute, calls);
  }
  const std::int64_t block = std::int64_t{2} * 4 * shape.tokens * shape.kv_heads * shape.dim;
  return {{"block_bytes", block}, {"both", both_s.json()}, {"compute", compute_s.json()}};
}

// ---- a plain socket ---------------------------------------------------------------------------------------

[[noreturn]] inline void socket_failed(const char* what) {
  std::perror(what);
  std::exit(3);
}

// Without sleeping, as a waiting rank does at first.
inline void receive_all(int socket, std::vector<char>& into) {
  for (std::size_t have = 0; have < into.size();) {
    const ssize_t count = ::recv(socket, into.data() + have, into.size() - have, MSG_DONTWAIT);
    if (count == 0) std::exit(0);  // the other end is done
    if (count < 0 && errno != EAGAIN && errno != EINTR) socket_failed("recv");
    if (count > 0) have += static_cast<std::size_t>(count);
  }
}

inline void send_all(int socket, const std::vector<char>& from) {
  for (std::size_t have = 0; have < from.size();) {
    const ssize_t count = ::send(socket, from.data() + have, from.size() - have, MSG_NOSIGNAL);
    if (count < 0 && errno != EINTR) socket_failed("send");
    if (count > 0) have += static_cast<std::size_t>(count);
  }
}

// Until the other end is done.
[[noreturn]] inline void echo(int socket, std::vector<char>& message) {
  for (;;) {
    receive_all(socket, message);
    send_all(socket, message);
  }
}

// Two connected sockets over loopback.
inline void connect_both(int ends[2]) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0), on = 1;
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof at;
  auto* const any = reinterpret_cast<sockaddr*>(&at);
  if (listener < 0 || ::bind(listener, any, sizeof at) != 0 || ::listen(listener, 1) != 0 ||
      ::getsockname(listener, any, &bytes) != 0)
    socket_failed("listen");
  ends[0] = ::socket(AF_INET, SOCK_STREAM, 0);
  if (ends[0] < 0 || ::connect(ends[0], any, sizeof at) != 0) socket_failed("connect");
  ends[1] = ::accept(listener, nullptr, nullptr);
  if (ends[1] < 0) socket_failed("accept");
  ::close(listener);
  for (int end = 0; end < 2; ++end) ::setsockopt(ends[end], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// Seconds that `bytes` take one way between two processes, each on its own core: half a round trip, of each batch.
inline std::vector<double> ping_pong(std::size_t bytes, int pairs, int calls) {
  int ends[2];
  connect_both(ends);
  std::vector<char> message(bytes);
  const pid_t other = ::fork();
  if (other < 0) socket_failed("fork");
  ::close(ends[other == 0 ? 0 : 1]);
  stay_on_core(other == 0 ? 1 : 0);
  if (other == 0) echo(ends[1], message);
  std::vector<double> one_way;
  for (int i = 0; i < pairs; ++i) {
    Clock::time_point start;
    for (int call = -kUntimed; call < calls; ++call) {
      if (call == 0) start = Clock::now();
      send_all(ends[0], message);
      receive_all(ends[0], message);
    }
    one_way.push_back(seconds_since(start) / calls / 2);
  }
  ::close(ends[0]);
  ::waitpid(other, nullptr, 0);
  return one_way;
}

}  // namespace ringattn::bench
