// What moves large messages between ranks that are connected already, in place of the data connection. Who meets
// whom, withdrawals, sizes and ends stay with the link, which tells the carrier only what both sides have agreed
// on: every message that it is given has its receive on the other side.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "transports/tcp/transfers.h"

namespace ringattn::tcp {

struct CarrierPeer {
  std::int32_t rank = 0;
  bool near = false;   // on this host
  std::string device;  // the interface that leads to it
};

class Carrier {
 public:
  struct Ended {
    Transfer* transfer;
    const char* error;  // null = all bytes have moved
  };

  virtual ~Carrier() = default;

  // ---- while the link is being connected; on failure `error` says why ----
  // Tries the `attempt`-th way (0, 1, ...) to reach these peers and tells how this rank is reached. Called again when
  // any rank could not use the last one. False with `error` empty: there is no such way.
  virtual bool open(int attempt, const std::vector<CarrierPeer>& peers, std::string& address,
                    std::string& error) = 0;
  virtual bool connect(std::int32_t rank, const std::string& address, std::string& error) = 0;
  virtual std::string description() const = 0;  // for the log: over which lanes

  // ---- once connected ----
  virtual void send(Transfer& send, std::uint64_t key) = 0;
  virtual void receive(Transfer& receive, std::uint64_t key) = 0;
  // Nothing will come for this receive: it ends soon.
  virtual void cancel(Transfer& receive) = 0;
  // Moves things on; what has ended since the last call is added to `ended`. True: another call may move more.
  virtual bool progress(std::vector<Ended>& ended) = 0;
  // The transfers with this rank end soon, with an error unless all their bytes have moved.
  virtual void drop(std::int32_t rank) = 0;
  virtual bool busy() const = 0;  // some transfer has not ended
  // They do not end: from here on nothing is called but this object's destructor, and memory of transfers may still be
  // read or written. `ended` gets them all.
  virtual void abandon(std::vector<Ended>& ended) = 0;

  // Readable when progress may move something; only after prepare_wait has returned true.
  virtual int descriptor() const = 0;
  virtual bool prepare_wait() = 0;
};

}  // namespace ringattn::tcp
