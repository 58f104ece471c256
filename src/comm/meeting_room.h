// The host's loop: one thread that polls everybody, so that nobody who is slow or hostile holds up another.
// Ranks come through the door, take the seat of their number, and hand in their parts round by round.
#pragma once
#include <poll.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/meeting_door.h"
#include "comm/meeting_messages.h"
#include "comm/rendezvous_channel.h"

namespace ringattn::comm {

struct RoomSettings {
  std::int32_t world = 1;
  std::int64_t timeout_ms = -1;  // of the whole meeting; -1 = none
  std::uint64_t handshake_ns = 0;
  std::string place;  // for messages: "127.0.0.1:4711"
};

class MeetingRoom {
 public:
  // `wake_fd` becomes readable when the meeting has to end.
  MeetingRoom(RoomSettings settings, const Key& secret, std::vector<Socket> listeners, int wake_fd);

  // Returns when all ranks have left (OK), or with the reason that all seated ranks were told.
  Status run();

 private:
  struct Seat {
    std::optional<Channel> channel;  // none: the rank has not come, or has left
    bool left = false;
    bool gave_part = false;  // in this round
    std::vector<std::uint8_t> part;
    std::string from;                               // its address, for messages
    std::uint64_t patience_ns = ~std::uint64_t{0};  // until when it will wait
    std::uint32_t patience_ms = 0;
  };
  void turn();
  void check_time(std::uint64_t now);
  std::uint64_t next_deadline(std::uint64_t now) const;
  void accept_some(std::uint64_t now);
  void serve_seat(std::int32_t rank, short events);
  void take_frame(std::int32_t rank, Frame frame);
  void take_part(std::int32_t rank, std::vector<std::uint8_t> part);
  void finish_round();
  void arrive(MeetingDoor::Arrival arrival);
  Notice judge(const Hello& hello) const;
  void lose(std::int32_t rank, const std::string& why);
  void end(ringattn_status code, const std::string& why);
  void see_off();
  std::string who_is_missing() const;
  std::string name() const;
  template <typename Condition>
  std::vector<std::int32_t> ranks_where(Condition condition) const;

  RoomSettings settings_;
  std::vector<Socket> listeners_;
  int wake_fd_;
  MeetingDoor door_;
  std::vector<Seat> seats_;
  std::int32_t gone_ = 0, parts_ = 0;
  std::uint64_t round_ = 0, deadline_ns_, accept_again_ns_ = 0;
  bool over_ = false;
  Status status_;
};

}  // namespace ringattn::comm
