// A meeting in one process: a host, ranks on threads, and strangers who speak raw bytes.
#pragma once
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/meeting.h"
#include "comm/meeting_host.h"
#include "comm/rendezvous_handshake.h"
#include "tests/support/spawn.h"

namespace ringattn::comm {

inline Address address_of(const std::string& text) {
  Address address;
  EXPECT_TRUE(parse_address(text, address)) << text;
  return address;
}

inline HostOptions loopback_host(std::int32_t world) {
  HostOptions options;
  options.world = world;
  options.addresses = {address_of("127.0.0.1")};
  options.timeout_ms = 20'000;
  return options;
}

inline JoinOptions patience(std::int64_t timeout_ms) {
  JoinOptions options;
  options.timeout_ms = timeout_ms;
  return options;
}

// What rank `rank` gives in round `round`: sizes from 0 to 64 KiB.
inline std::vector<std::uint8_t> part_of(int rank, int round) {
  const std::size_t sizes[] = {0, 1, 93, 4096, 65536};
  return std::vector<std::uint8_t>(sizes[(rank + round) % 5], static_cast<std::uint8_t>(16 * rank + round));
}

inline Status gather_rounds(Meeting& meeting, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::vector<std::uint8_t>> all;
    RINGATTN_TRY(meeting.gather(part_of(meeting.rank(), round), all));
    EXPECT_EQ(all.size(), static_cast<std::size_t>(meeting.world()));
    for (int rank = 0; rank < meeting.world(); ++rank) {
      EXPECT_EQ(all[static_cast<std::size_t>(rank)], part_of(rank, round)) << "rank " << rank;
    }
  }
  return {};
}

inline Status whole_meeting(const UniqueId& id, int rank, int world, int rounds = 1,
                            const JoinOptions& options = patience(20'000)) {
  std::unique_ptr<Meeting> meeting;
  RINGATTN_TRY(Meeting::join(id, rank, world, options, meeting));
  RINGATTN_TRY(gather_rounds(*meeting, rounds));
  return meeting->leave();
}

inline void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }

inline void expect_failure(const Status& status, ringattn_status code,
                           const std::vector<std::string>& words) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
  for (const std::string& word : words) {
    EXPECT_NE(status.message().find(word), std::string::npos) << word << " in: " << status.message();
  }
}

// All ranks meet, gather and leave, and the host agrees.
inline void expect_meeting(MeetingHost& host, int world, int rounds = 1) {
  support::run_threads(
      world, [&](int rank) { expect_ok(whole_meeting(host.id(), rank, world, rounds)); }, 60, "ranks");
  expect_ok(host.wait(5'000));
}

// Somebody who is connected and has no manners.
class Stranger {
 public:
  explicit Stranger(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_storage storage;
    const socklen_t size = to_sockaddr(address_of("127.0.0.1"), port, storage);
    EXPECT_EQ(connect(socket_.fd(), reinterpret_cast<sockaddr*>(&storage), size), 0);
    timeval limit{10, 0};
    setsockopt(socket_.fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  bool say(Bytes bytes) {
    return send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  bool say(const std::string& text) {
    return say(Bytes(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
  }
  // At most `most` bytes; what has come when the connection ends or 10 s have passed.
  std::vector<std::uint8_t> hear(std::size_t most = 100'000) {
    std::vector<std::uint8_t> heard(most);
    std::size_t filled = 0;
    ssize_t n = 0;
    while (filled < most && (n = recv(socket_.fd(), &heard[filled], most - filled, 0)) > 0) {
      filled += static_cast<std::size_t>(n);
    }
    thrown_out_ = n == 0 || (n < 0 && errno == ECONNRESET);
    heard.resize(filled);
    return heard;
  }
  bool thrown_out() const { return thrown_out_; }
  Socket take() { return std::move(socket_); }

 private:
  Socket socket_;
  bool thrown_out_ = false;
};

inline std::size_t entries(const char* folder) {
  const auto all = std::filesystem::directory_iterator(folder);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace ringattn::comm
