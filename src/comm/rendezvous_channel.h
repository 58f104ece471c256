// Frames over one connection after the handshake. Each carries a MAC over its direction, its number in that
// direction, its header and its payload, so that nothing can be changed, repeated, left out or turned round.
//
//     4 bytes length of the payload   1 type   3 zero   payload   32 MAC
//
// Never blocks: the host polls hundreds of them with one thread.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "comm/rendezvous_crypto.h"
#include "comm/rendezvous_socket.h"

namespace ringattn::comm {

enum class FrameType : std::uint8_t { welcome = 1, refused, part, all, leave, end };
enum class Side : std::uint8_t { rank = 1, host = 2 };

struct Frame {
  FrameType type = FrameType::end;
  std::vector<std::uint8_t> payload;
};

// Shared by all who are sent the same: held once and hashed once.
class Payload {
 public:
  Payload() : Payload(std::vector<std::uint8_t>()) {}
  explicit Payload(std::vector<std::uint8_t> bytes);

  Bytes bytes() const { return *bytes_; }
  const Mac& digest() const { return digest_; }

 private:
  std::shared_ptr<const std::vector<std::uint8_t>> bytes_;
  Mac digest_;
};

class Channel {
 public:
  enum class Result { done, blocked, closed, broken };

  // Payloads beyond `most` bytes are refused when their header is read.
  Channel(Socket socket, const Key& session, Side side, std::size_t most);

  void queue(FrameType type, const Payload& payload);
  bool has_output() const { return !outgoing_.empty(); }
  Result flush();                 // done: everything is with the kernel
  Result receive(Frame& out);     // done: one frame
  bool discard_input();           // whatever has come; false when the other side has closed
  bool all_acknowledged() const;  // the other side's kernel has everything
  const std::string& trouble() const { return trouble_; }  // why closed or broken
  int fd() const { return socket_.fd(); }

 private:
  static constexpr std::size_t kHeadBytes = 8;
  using Head = std::array<std::uint8_t, kHeadBytes>;
  struct Outgoing {
    Head head;
    Payload payload;
    Mac tail;
    std::size_t written = 0;
    std::size_t size() const { return head.size() + payload.bytes().size() + tail.size(); }
  };
  Mac frame_mac(Side from, std::uint64_t number, const Head& head, const Mac& digest) const;
  std::span<std::uint8_t> next_room();
  Result check_head();
  Result check_frame(Frame& out);
  Result lost(int error);

  Socket socket_;
  Key session_;
  Side side_;
  std::size_t most_;
  std::uint64_t sent_ = 0, received_ = 0;
  std::deque<Outgoing> outgoing_;
  Head head_{};
  std::vector<std::uint8_t> payload_;
  Mac tail_{};
  std::size_t length_ = 0;  // of the payload under way
  std::size_t filled_ = 0;  // of head, payload and tail together
  std::string trouble_;
};

}  // namespace ringattn::comm
