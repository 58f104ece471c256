#include "comm/meeting_join.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "comm/meeting_messages.h"
#include "comm/rendezvous_dial.h"
#include "comm/rendezvous_handshake.h"

namespace ringattn::comm {
namespace {

constexpr std::uint64_t kMillisecond = 1'000'000;
// Until the host has shown that it is the one: what answers there may be any program.
constexpr std::uint64_t kHandshake = 5'000 * kMillisecond;
constexpr int kFirstPauseMs = 20, kLongestPauseMs = 250;

std::uint64_t later(std::uint64_t deadline_ns, std::uint64_t by) {
  return deadline_ns > ~std::uint64_t{0} - by ? deadline_ns : deadline_ns + by;
}

bool send_bytes(int fd, Bytes bytes) {
  // Less than a hundred bytes on a fresh connection always fit.
  return send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

bool receive_bytes(int fd, std::span<std::uint8_t> bytes, std::uint64_t deadline_ns, std::string& why) {
  for (std::size_t filled = 0; filled < bytes.size();) {
    pollfd polled{fd, POLLIN, 0};
    poll(&polled, 1, poll_timeout(deadline_ns, 1000));
    const ssize_t n = recv(fd, bytes.data() + filled, bytes.size() - filled, MSG_DONTWAIT);
    if (n > 0) {
      filled += static_cast<std::size_t>(n);
    } else if (n == 0) {
      why = "closed the connection before it answered, expected a host with the same secret";
      return false;
    } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
      why = errno_text(errno);
      return false;
    } else if (now_ns() >= deadline_ns) {
      why = "something listens, but does not answer, expected a host with the same secret";
      return false;
    }
  }
  return true;
}

enum class Outcome { seated, refused, try_again };

// The host's first frame: this rank has its seat, or the reason why not.
Outcome hear_verdict(Channel& channel, std::uint64_t deadline_ns, std::string& why, Status& refusal) {
  Frame frame;
  if (wait_for_frame(channel, later(deadline_ns, kGrace), frame) != Channel::Result::done) {
    why = channel.trouble().empty() ? "no answer to the proof" : channel.trouble();
    return Outcome::try_again;
  }
  if (frame.type == FrameType::welcome) return Outcome::seated;
  const Notice notice = read_notice(frame.payload);
  why = notice.status.message();
  refusal = notice.status;
  return notice.try_again ? Outcome::try_again : Outcome::refused;
}

Outcome shake_hands(Socket socket, const Key& secret, const Joining& joining, std::optional<Channel>& channel,
                    std::string& why, Status& refusal) {
  Hello hello;
  hello.rank = joining.rank;
  hello.world = joining.world;
  const std::uint64_t now = now_ns();
  if (joining.timeout_ms >= 0) {
    const std::uint64_t left = joining.deadline_ns > now ? (joining.deadline_ns - now) / kMillisecond : 0;
    hello.patience_ms = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, kPatient - 1));
  }
  fill_random(hello.nonce);
  const HelloBytes hello_bytes = write_hello(secret, hello);
  ChallengeBytes challenge;
  Nonce host_nonce;
  if (!send_bytes(socket.fd(), hello_bytes)) {
    why = errno_text(errno);
    return Outcome::try_again;
  }
  if (!receive_bytes(socket.fd(), challenge, std::min(joining.deadline_ns, now + kHandshake), why)) {
    return Outcome::try_again;
  }
  if (!read_challenge(secret, hello_bytes, challenge, host_nonce)) {
    why = "what answers does not know the secret, expected a host with the same one";
    return Outcome::try_again;
  }
  const Key session = session_key(secret, hello_bytes, host_nonce);
  if (!send_bytes(socket.fd(), write_proof(session))) {
    why = errno_text(errno);
    return Outcome::try_again;
  }
  channel.emplace(std::move(socket), session, Side::rank, most_of_all_parts(joining.world));
  return hear_verdict(*channel, joining.deadline_ns, why, refusal);
}

Status not_found(const Joining& joining, const UniqueId& id, const std::vector<std::string>& notes) {
  std::string tried;
  const std::vector<Address> addresses = id.addresses();
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    tried += (i == 0 ? "" : "; ") + endpoint_text(addresses[i], id.port()) + ": " +
             (notes[i].empty() ? "no answer" : notes[i]);
  }
  return {RINGATTN_ERR_TIMEOUT, "meeting: rank " + std::to_string(joining.rank) + " found no host within " +
                                    std::to_string(joining.timeout_ms) + " ms (" + tried + ")"};
}

}  // namespace

Channel::Result wait_for_frame(Channel& channel, std::uint64_t deadline_ns, Frame& out) {
  bool writes = true;
  for (;;) {
    if (writes) {
      // Who cannot write any more can still read why.
      writes = channel.flush() == Channel::Result::blocked;
    }
    const Channel::Result result = channel.receive(out);
    if (result != Channel::Result::blocked) return result;
    if (now_ns() >= deadline_ns) return Channel::Result::blocked;
    pollfd polled{channel.fd(), static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), 0};
    poll(&polled, 1, poll_timeout(deadline_ns, 1000));
  }
}

Status join_host(const UniqueId& id, const Joining& joining, std::optional<Channel>& channel,
                 std::string& place) {
  const std::vector<Address> addresses = id.addresses();
  const Key secret = id.secret();
  std::vector<std::string> notes(addresses.size());
  for (int pause_ms = kFirstPauseMs;; pause_ms = std::min(2 * pause_ms, kLongestPauseMs)) {
    Dialer dialer(addresses, id.port(), joining.from, joining.deadline_ns);
    std::vector<std::string> said(addresses.size());
    Socket socket;
    std::size_t which = 0;
    while (dialer.next(socket, which)) {
      Status refusal;
      const Outcome outcome = shake_hands(std::move(socket), secret, joining, channel, said[which], refusal);
      place = endpoint_text(addresses[which], id.port());
      if (outcome == Outcome::seated) return {};
      channel.reset();
      if (outcome == Outcome::refused) return refusal;
    }
    const bool over = now_ns() >= joining.deadline_ns;
    for (std::size_t i = 0; i < notes.size(); ++i) {
      const std::string& note = said[i].empty() ? dialer.notes()[i] : said[i];
      // The deadline cuts the last attempt short: what happened before tells more.
      if (!note.empty() && (notes[i].empty() || !over)) notes[i] = note;
    }
    if (over) return not_found(joining, id, notes);
    poll(nullptr, 0, poll_timeout(joining.deadline_ns, pause_ms));
  }
}

}  // namespace ringattn::comm
