#include "transports/tcp/stream.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace ringattn::tcp {
namespace {

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

void Stream::attach(Fd fd) {
  buffer_ = std::make_unique<char[]>(kBufferBytes);
  queue_.reserve(64);
  fd_ = std::move(fd);
  state_ = State::open;
}

// ---- out ------------------------------------------------------------------------------------------------

void Stream::push(const Frame& frame, const void* payload, std::uint64_t bytes) {
  if (!open() || !writable_) return;
  if (first_ == queue_.size()) {
    queue_.clear();
    first_ = 0;
  } else if (first_ >= 64 && first_ >= queue_.size() / 2) {  // a queue that never runs empty must not grow
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  queue_.push_back({frame, static_cast<const char*>(payload), bytes, nullptr});
}

void Stream::keep(std::uint64_t id) {
  for (std::size_t i = first_; i < queue_.size(); ++i) {
    Out& out = queue_[i];
    if (out.frame.id != id || out.bytes == 0) continue;
    out.kept = std::make_unique<char[]>(static_cast<std::size_t>(out.bytes));
    std::memcpy(out.kept.get(), out.payload, static_cast<std::size_t>(out.bytes));
    out.payload = out.kept.get();
  }
}

void Stream::flush() {
  while (open() && writable_ && !idle()) {
    const Out& out = queue_[first_];
    iovec parts[2];
    std::size_t count = 0;
    std::uint64_t skip = sent_;
    if (skip < sizeof out.frame) {
      parts[count++] = {reinterpret_cast<char*>(const_cast<Frame*>(&out.frame)) + skip,
                        sizeof out.frame - static_cast<std::size_t>(skip)};
      skip = 0;
    } else {
      skip -= sizeof out.frame;
    }
    if (out.bytes > skip) {
      parts[count++] = {const_cast<char*>(out.payload) + skip, out.bytes - skip};
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    const ssize_t written = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written >= 0) {
      advance(static_cast<std::uint64_t>(written));
    } else if (errno != EINTR) {
      if (would_block(errno) || errno == ENOBUFS || errno == ENOMEM) return;
      error_ = errno;
      writable_ = false;
      queue_.clear();
      first_ = 0;
    }
  }
}

void Stream::advance(std::uint64_t written) {
  sent_ += written;
  if (sent_ < sizeof(Frame) + queue_[first_].bytes) return;
  sent_ = 0;
  ++first_;
}

bool Stream::drop_unsent() {
  const bool at_border = sent_ == 0;
  queue_.clear();
  first_ = 0;
  sent_ = 0;
  if (!at_border) writable_ = false;
  return at_border;
}

// ---- in -------------------------------------------------------------------------------------------------

Stream::Got Stream::next(std::int64_t& budget) {
  while (open()) {
    if (sink_left_ > 0) {
      const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(end_ - begin_, sink_left_));
      if (count > 0) std::memcpy(sink_, buffer_.get() + begin_, count);
      begin_ += count;
      sink_ += count;
      sink_left_ -= count;
      if (sink_left_ == 0) return Got::payload;
    } else if (end_ - begin_ >= sizeof(Frame)) {
      std::memcpy(&frame_in_, buffer_.get() + begin_, sizeof(Frame));
      begin_ += sizeof(Frame);
      return Got::frame;
    }
    const bool wanted_payload = sink_left_ > 0;
    if (!fill(budget)) return open() ? Got::nothing : Got::end;
    if (wanted_payload && sink_left_ == 0) return Got::payload;
  }
  return Got::end;
}

// One read: the payload straight to where it belongs, what follows it into the buffer. Whether any came.
bool Stream::fill(std::int64_t& budget) {
  if (budget <= 0) return false;
  if (begin_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const auto wanted = static_cast<std::size_t>(sink_left_);
  iovec parts[2] = {{sink_, wanted}, {buffer_.get() + end_, kBufferBytes - end_}};
  ssize_t count;
  do {
    count = wanted == 0 ? ::readv(fd_.get(), parts + 1, 1) : ::readv(fd_.get(), parts, 2);
  } while (count < 0 && errno == EINTR);
  if (count > 0) {
    budget -= count;
    const auto to_sink = std::min(static_cast<std::size_t>(count), wanted);
    if (to_sink > 0) sink_ += to_sink;
    sink_left_ -= to_sink;
    end_ += static_cast<std::size_t>(count) - to_sink;
    return true;
  }
  if (count < 0 && would_block(errno)) return false;
  if (count < 0) error_ = errno;  // else a failed write may have told why already
  state_ = State::broken;
  return false;
}

void Stream::discard() {
  while (open()) {
    char scratch[4096];
    const ssize_t count = ::recv(fd_.get(), scratch, sizeof scratch, MSG_DONTWAIT);
    if (count > 0 || (count < 0 && errno == EINTR)) continue;
    if (count < 0 && would_block(errno)) return;
    state_ = State::broken;
  }
}

}  // namespace ringattn::tcp
