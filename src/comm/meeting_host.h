// The host of one meeting of `world` ranks: listens, and serves them on a thread of its own until all have left,
// a rank is lost, or the deadline has passed.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "comm/rendezvous_id.h"
#include "comm/rendezvous_socket.h"

namespace ringattn::comm {

class MeetingRoom;

struct HostOptions {
  std::int32_t world = 1;  // ranks, 1..4096
  std::uint16_t port = 0;  // 0 = the kernel chooses
  std::string interface;   // "" = every one; else a name or a numeric address
  std::vector<Address>
      addresses;  // not empty: these instead; those that are not of this host are passed over
  std::int64_t timeout_ms = 600'000;  // of the whole meeting; -1 = never
  std::int64_t handshake_ms = 5'000;  // from connection to proof
  std::optional<Key> secret;          // none = a random one
};

class MeetingHost {
 public:
  // Returns when it listens. The message of a failure has the address and the system's reason.
  static Status start(const HostOptions& options, std::unique_ptr<MeetingHost>& out);
  // Ends the meeting; ranks that are still there are told. In a forked child it ends nothing.
  ~MeetingHost();
  MeetingHost(const MeetingHost&) = delete;
  MeetingHost& operator=(const MeetingHost&) = delete;

  const UniqueId& id() const { return id_; }
  // Until the meeting is over, and how it ended: OK when all ranks have left. TIMEOUT when it still goes on
  // after timeout_ms (-1 = never). Before that the host should not be destroyed.
  Status wait(std::int64_t timeout_ms);

 private:
  MeetingHost() = default;
  Status start_thread(std::unique_ptr<MeetingRoom> room);

  UniqueId id_;
  Socket wake_;
  std::uint32_t generation_ = 0;  // of the process that made it
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  Status status_;
};

}  // namespace ringattn::comm
