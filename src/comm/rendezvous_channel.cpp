#include "comm/rendezvous_channel.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace ringattn::comm {
namespace {

constexpr const char* kFrameLabel = "ringattn meeting 1 frame";
constexpr const char* kPayloadLabel = "ringattn meeting 1 payload";
// A header is believed only with its frame's MAC: until then memory grows with what has really come.
constexpr std::size_t kReadStep = 65'536;

}  // namespace

Payload::Payload(std::vector<std::uint8_t> bytes)
    : bytes_(std::make_shared<const std::vector<std::uint8_t>>(std::move(bytes))),
      digest_(sha256(kPayloadLabel, {*bytes_})) {}

Channel::Channel(Socket socket, const Key& session, Side side, std::size_t most)
    : socket_(std::move(socket)), session_(session), side_(side), most_(most) {}

Mac Channel::frame_mac(Side from, std::uint64_t number, const Head& head, const Mac& digest) const {
  std::vector<std::uint8_t> place;
  put(place, static_cast<std::uint8_t>(from));
  put(place, number);
  return hmac(session_, kFrameLabel, {place, head, digest});
}

void Channel::queue(FrameType type, const Payload& payload) {
  std::vector<std::uint8_t> head;
  put(head, static_cast<std::uint32_t>(payload.bytes().size()));
  put(head, static_cast<std::uint32_t>(type));
  Outgoing outgoing{{}, payload, {}};
  std::copy(head.begin(), head.end(), outgoing.head.begin());
  outgoing.tail = frame_mac(side_, sent_++, outgoing.head, payload.digest());
  outgoing_.push_back(std::move(outgoing));
}

Channel::Result Channel::lost(int error) {
  if (trouble_.empty()) trouble_ = error == 0 ? "connection closed" : errno_text(error);
  return Result::closed;
}

Channel::Result Channel::flush() {
  while (!outgoing_.empty()) {
    Outgoing& first = outgoing_.front();
    const Bytes pieces[] = {first.head, first.payload.bytes(), first.tail};
    iovec parts[3];
    std::size_t count = 0, skip = first.written;
    for (const Bytes piece : pieces) {
      const std::size_t jump = std::min(skip, piece.size());
      skip -= jump;
      if (jump == piece.size()) continue;
      parts[count++] = {const_cast<std::uint8_t*>(piece.data() + jump), piece.size() - jump};
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    const ssize_t n = sendmsg(socket_.fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Result::blocked;
    if (n < 0) return lost(errno);
    first.written += static_cast<std::size_t>(n);
    if (first.written == first.size()) outgoing_.pop_front();
  }
  return Result::done;
}

std::span<std::uint8_t> Channel::next_room() {
  if (filled_ < kHeadBytes) return std::span(head_).subspan(filled_);
  const std::size_t in_payload = filled_ - kHeadBytes;
  if (in_payload < length_) {
    payload_.resize(std::min(length_, in_payload + kReadStep));
    return std::span(payload_).subspan(in_payload);
  }
  return std::span(tail_).subspan(in_payload - length_);
}

Channel::Result Channel::check_head() {
  length_ = get<std::uint32_t>(head_.data());
  if (length_ <= most_) return Result::done;
  trouble_ = "frame of " + std::to_string(length_) + " bytes, expected at most " + std::to_string(most_);
  return Result::broken;
}

Channel::Result Channel::check_frame(Frame& out) {
  const Side from = side_ == Side::rank ? Side::host : Side::rank;
  const Mac mac = frame_mac(from, received_, head_, sha256(kPayloadLabel, {payload_}));
  const std::uint32_t type = get<std::uint32_t>(&head_[4]);
  if (!equal_in_constant_time(mac, tail_) || type < static_cast<std::uint32_t>(FrameType::welcome) ||
      type > static_cast<std::uint32_t>(FrameType::end)) {
    trouble_ = "frame that is not authentic";
    return Result::broken;
  }
  ++received_;
  filled_ = length_ = 0;
  out.type = static_cast<FrameType>(type);
  out.payload = std::exchange(payload_, {});
  return Result::done;
}

Channel::Result Channel::receive(Frame& out) {
  for (;;) {
    const std::span<std::uint8_t> room = next_room();
    const ssize_t n = recv(socket_.fd(), room.data(), room.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Result::blocked;
    if (n <= 0) return lost(n == 0 ? 0 : errno);
    filled_ += static_cast<std::size_t>(n);
    if (filled_ == kHeadBytes && check_head() == Result::broken) return Result::broken;
    if (filled_ == kHeadBytes + length_ + kMacBytes) return check_frame(out);
  }
}

bool Channel::discard_input() {
  std::uint8_t waste[4096];
  ssize_t n = 0;
  do {
    n = recv(socket_.fd(), waste, sizeof waste, MSG_DONTWAIT);
  } while (n > 0);
  return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

bool Channel::all_acknowledged() const {
  int unsent = 0;
  return ioctl(socket_.fd(), SIOCOUTQ, &unsent) != 0 || unsent == 0;
}

}  // namespace ringattn::comm
