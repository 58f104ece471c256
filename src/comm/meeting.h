// A rank's connection to a meeting.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/rendezvous_channel.h"
#include "comm/rendezvous_id.h"

namespace ringattn::comm {

struct JoinOptions {
  // For the whole meeting, from here to leave; -1 = never. When it is over for one rank, the meeting ends for
  // all, and all are told who was missing.
  std::int64_t timeout_ms = 600'000;
  std::string interface;  // connections start here: "" = any, else a name or a numeric address
};

class Meeting {
 public:
  // Takes the seat of `rank`; does not wait for the other ranks. Tries again while there is no host yet.
  // INVALID_ARGUMENT: the host has refused this rank, with its reason; TIMEOUT: no host, with what was tried.
  static Status join(const UniqueId& id, std::int32_t rank, std::int32_t world, const JoinOptions& options,
                     std::unique_ptr<Meeting>& out);
  // Without leave before, the rank counts as lost and the meeting ends for all.
  ~Meeting() = default;
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  // Collective: all[r] becomes what rank r gave, at most 64 KiB. After a failure the meeting is over, and every
  // later call returns the same.
  Status gather(Bytes own, std::vector<std::vector<std::uint8_t>>& all);
  // Not collective. Returns when the host has seen it, so that the same rank may join a new meeting at once.
  Status leave();

  std::int32_t rank() const { return rank_; }
  std::int32_t world() const { return world_; }

 private:
  Meeting(Channel channel, std::string place, std::int32_t rank, std::int32_t world,
          std::uint64_t deadline_ns);
  Status exchange(FrameType wanted, Frame& frame);
  Status fail(ringattn_status code, const std::string& why);

  Channel channel_;
  std::string place_;
  std::int32_t rank_, world_;
  std::uint64_t deadline_ns_;
  std::uint64_t round_ = 0;
  bool left_ = false;
  Status failed_;
};

}  // namespace ringattn::comm
