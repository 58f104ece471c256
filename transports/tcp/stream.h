// One connection after its handshake: frames out and in, without ever blocking.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transports/tcp/frames.h"
#include "transports/tcp/sockets.h"

namespace ringattn::tcp {

class Stream {
 public:
  enum class State : std::uint8_t {
    none,  // not connected yet
    open,
    broken,  // end of stream or an error; the descriptor stays until the owner of the link closes it
    closed
  };
  enum class Got : std::uint8_t { nothing, frame, payload, end };

  void attach(Fd fd);

  State state() const { return state_; }
  bool open() const { return state_ == State::open; }
  int fd() const { return fd_.get(); }
  int error() const { return error_; }  // errno of a broken stream, 0 = end of stream
  void break_off() {
    if (open()) state_ = State::broken;
  }
  void close() {
    fd_.reset();
    state_ = State::closed;
  }

  // ---- out ----
  // The payload stays the caller's and must live until it is sent or dropped.
  void push(const Frame& frame, const void* payload = nullptr, std::uint64_t bytes = 0);
  bool idle() const { return first_ == queue_.size(); }  // nothing to send
  // Writes as much as the kernel takes. A failed write does not end the stream: what the peer has said before
  // can still be read, and reading finds the end.
  void flush();
  // Copies the payload of the frame with this id if some of it is not sent yet: it need not live any longer.
  void keep(std::uint64_t id);
  // Drops what has not begun. Whether the stream is at a frame's border, so that another frame can follow.
  bool drop_unsent();

  // ---- in ----
  // The next event: a frame (in `frame()`), or the end of the payload that take_payload asked for. Reads at
  // most until `budget` is used up.
  Got next(std::int64_t& budget);
  const Frame& frame() const { return frame_in_; }
  // Where the payload of the frame just got goes; bytes > 0.
  void take_payload(char* to, std::uint64_t bytes) {
    sink_ = to;
    sink_left_ = bytes;
  }
  // Reads and forgets what is there.
  void discard();

 private:
  struct Out {
    Frame frame;
    const char* payload;
    std::uint64_t bytes;
    std::unique_ptr<char[]> kept;  // what payload points to, after keep
  };
  bool fill(std::int64_t& budget);
  void advance(std::uint64_t written);

  Fd fd_;
  State state_ = State::none;
  int error_ = 0;
  bool writable_ = true;  // no write has failed for good

  std::vector<Out> queue_;
  std::size_t first_ = 0;   // in queue_
  std::uint64_t sent_ = 0;  // of the first one, its frame included

  static constexpr std::size_t kBufferBytes = 16 << 10;
  std::unique_ptr<char[]> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  Frame frame_in_;
  char* sink_ = nullptr;
  std::uint64_t sink_left_ = 0;
};

}  // namespace ringattn::tcp
