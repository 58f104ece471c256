// Connects to the first of several addresses that answers: they are tried one after the other, but none waits
// for its forerunner longer than a moment, so that a dead one in front costs little.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/rendezvous_address.h"
#include "comm/rendezvous_socket.h"

namespace ringattn::comm {

class Dialer {
 public:
  // `from`: where connections start, at most one address of each family counts; empty = the kernel's choice.
  Dialer(std::vector<Address> to, std::uint16_t port, std::vector<Address> from, std::uint64_t deadline_ns);

  // The next connection that is established, with its place in `to`; false when no address is left.
  bool next(Socket& socket, std::size_t& which);
  // What happened at each address last; "" = nothing yet.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Attempt {
    Socket socket;
    std::size_t which;
    std::uint64_t until_ns;
  };
  void start(std::size_t which);
  void wait_for_one();
  bool take(Attempt& attempt,
            Socket& socket);  // true: established; otherwise its socket is closed if it failed

  std::vector<Address> to_;
  std::uint16_t port_;
  std::vector<Address> from_;
  std::uint64_t deadline_ns_;
  std::size_t started_ = 0;
  std::uint64_t next_start_ns_ = 0;
  std::vector<Attempt> attempts_;
  std::vector<std::string> notes_;
};

}  // namespace ringattn::comm
