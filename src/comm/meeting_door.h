// The host's side of the handshake, for everybody who has connected and not yet shown that he knows the secret.
// A stranger costs one of a bounded number of places for a bounded time, and nobody waits for him.
#pragma once
#include <poll.h>

#include <cstdint>
#include <vector>

#include "comm/rendezvous_handshake.h"
#include "comm/rendezvous_socket.h"

namespace ringattn::comm {

class MeetingDoor {
 public:
  struct Arrival {
    Socket socket;
    Hello hello;
    Key session;
    std::uint64_t said_hello_ns = 0;
  };

  MeetingDoor(const Key& secret, std::size_t places, std::uint64_t handshake_ns);

  // Is there a place, if need be that of the one who has been here longest? Not within the first moments of
  // his stay, so that a flood of strangers cannot throw out a rank before it has spoken.
  bool has_place(std::uint64_t now) const;
  void admit(Socket socket, std::uint64_t now);
  // When a place becomes free or somebody's time is over, at the latest.
  std::uint64_t next_deadline(std::uint64_t now) const;

  // Fills one entry each, in the order in which `serve` expects them back.
  void poll_entries(std::vector<pollfd>& out) const;
  // Reads what has come, throws out who is wrong or late, and hands out who has finished.
  void serve(const pollfd* polled, std::uint64_t now, std::vector<Arrival>& arrivals);

 private:
  struct Guest {
    Socket socket;
    std::uint64_t since_ns = 0;
    bool greeted = false;  // a right hello came, the proof is due
    HelloBytes hello_bytes{};
    ProofBytes proof{};
    std::size_t filled = 0;
    Hello hello{};
    Key session;
    std::uint64_t said_hello_ns = 0;
  };
  enum class Verdict { stays, goes, arrives };
  Verdict listen_to(Guest& guest, std::uint64_t now);
  Verdict read_greeting(Guest& guest, std::uint64_t now);

  Key secret_;
  std::size_t places_;
  std::uint64_t handshake_ns_;
  std::vector<Guest> guests_;  // in the order in which they came
};

}  // namespace ringattn::comm
