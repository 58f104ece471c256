// --host-list: which rank runs on which host, and where ranks on several hosts meet.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ringattn::tool {

// Where a rank 0 on another host listens unless --rendezvous says otherwise. Whether a port is free can only be tried on
// the machine itself; this one is below those of outgoing connections, and it is the same each time, for firewalls.
inline constexpr std::uint16_t kMeetingPort = 21117;

struct HostEntry {
  std::string target;  // as the remote shell wants it: "b", "user@b", "2001:db8::1"
  std::string host;    // without the user
  int slots = 1;
  bool here = false;  // it is this machine
};

// "a,b:2,user@c,[2001:db8::1]:4": host or host:slots. Throws BadInput.
std::vector<HostEntry> parse_host_list(const std::string& text);

// One rank's place.
struct Seat {
  std::string target;  // "" = this machine
  int local_rank = 0;

  bool here() const { return target.empty(); }
};

std::vector<Seat> seats_here(int ranks);
// In the order of the list; without `ranks` as many as there are slots. Throws BadInput where these are too few.
std::vector<Seat> seats_on(const std::vector<HostEntry>& hosts, std::optional<int> ranks);

// host:port where these ranks meet; "" = anywhere on this machine, as all of them are here. Throws BadInput for a place
// that other hosts cannot reach. `rendezvous`: what the user said, "" = nothing.
std::string meeting_place(const std::vector<HostEntry>& hosts, const std::vector<Seat>& seats,
                          const std::string& rendezvous);

}  // namespace ringattn::tool
