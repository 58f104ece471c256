// Connects a link with all ranks: the higher rank dials the lower one, once for each channel.
#pragma once
#include <poll.h>

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include "transports/tcp/dial.h"
#include "transports/tcp/link.h"

namespace ringattn::tcp {

class Mesh {
 public:
  // `addresses` by rank.
  Mesh(Link& link, const std::vector<LinkAddress>& addresses);

  // Ends at the deadline, or when the link does. On failure `error` says why.
  ringattn_status connect(Clock::time_point deadline, std::string& error);

 private:
  // Somebody who has dialed and not yet shown who it is.
  struct Guest {
    Fd socket;
    Clock::time_point due;
    Challenge challenge;
    Hello hello;
    std::size_t got = 0;
  };

  ringattn_status connect_carriers(Clock::time_point deadline, std::string& error);
  // Moves everything on until the condition holds.
  ringattn_status wait_for(const std::function<bool()>& condition, Clock::time_point deadline,
                           const std::function<std::string()>& missing, std::string& error);
  void fill_poll_set();
  void wait_until(Clock::time_point deadline);
  void receive_guests();
  bool hear(Guest& guest);
  void judge(Guest& guest);
  void move_dials();
  bool peer_is_gone(std::string& error) const;
  std::string missing() const;
  // "rank 1 (host a, pid 7) <what it lacks>; ..." of those for which that is not empty.
  std::string list_ranks(const std::function<std::string(std::int32_t rank)>& lacks) const;

  Link& link_;
  const std::vector<LinkAddress>& addresses_;
  std::list<Dial> dials_;
  std::list<Guest> guests_;
  std::vector<pollfd> set_;
  std::size_t listener_at_ = 0, guests_at_ = 0, dials_at_ = 0;  // in set_
};

}  // namespace ringattn::tcp
