// One attempt after another to reach one rank on one channel.
#pragma once
#include <poll.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "transports/tcp/handshake.h"
#include "transports/tcp/sockets.h"

namespace ringattn::tcp {

using Clock = std::chrono::steady_clock;

class Dial {
 public:
  Dial(const Ring& ring, std::int32_t from, std::int32_t to, Channel channel,
       std::vector<SocketAddress> addresses)
      : ring_(&ring), from_(from), to_(to), channel_(channel), addresses_(std::move(addresses)) {}

  std::int32_t to() const { return to_; }
  Channel channel() const { return channel_; }
  bool done() const { return state_ == State::done; }
  Fd take_socket() { return std::move(socket_); }

  // What to poll for, and when to call advance at the latest.
  pollfd to_poll() const;
  Clock::time_point due() const { return due_; }
  // Moves on after a poll, or because it is due.
  void advance(bool ready);

  // Nobody listens at any of its addresses, tried often enough to be sure: the process is gone.
  bool refused() const;
  // "127.0.0.1:4711 (Connection refused), 10.0.0.1:4711 (no answer)".
  std::string tried() const;

 private:
  enum class State : std::uint8_t { pausing, connecting, challenged, answered, done };
  void start();
  void connected();
  void answer();
  void judge();
  void fail(const std::string& why, bool nobody_listens = false);
  // Whether the message is there; false also when the attempt has failed.
  bool read_whole(void* message, std::size_t bytes);

  const Ring* ring_;
  std::int32_t from_, to_;
  Channel channel_;
  std::vector<SocketAddress> addresses_;
  std::vector<std::string> errors_ = std::vector<std::string>(addresses_.size());

  State state_ = State::pausing;
  Fd socket_;
  std::size_t at_ = 0;        // the address being tried
  int round_ = 0;             // how often all have been tried
  bool only_refused_ = true;  // in this round
  int refused_rounds_ = 0;
  Clock::time_point due_ = Clock::now();

  std::size_t got_ = 0;  // of the message being read
  Challenge challenge_;
  Hello hello_;
  Welcome welcome_;
};

}  // namespace ringattn::tcp
