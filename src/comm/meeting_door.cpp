#include "comm/meeting_door.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace ringattn::comm {
namespace {

constexpr std::uint64_t kFirstMoments = 100'000'000;  // 100 ms

}  // namespace

MeetingDoor::MeetingDoor(const Key& secret, std::size_t places, std::uint64_t handshake_ns)
    : secret_(secret), places_(places), handshake_ns_(handshake_ns) {}

bool MeetingDoor::has_place(std::uint64_t now) const {
  return guests_.size() < places_ || now >= guests_.front().since_ns + kFirstMoments;
}

void MeetingDoor::admit(Socket socket, std::uint64_t now) {
  if (guests_.size() >= places_) guests_.erase(guests_.begin());
  Guest guest;
  guest.socket = std::move(socket);
  guest.since_ns = now;
  guests_.push_back(std::move(guest));
}

std::uint64_t MeetingDoor::next_deadline(std::uint64_t now) const {
  if (guests_.empty()) return ~std::uint64_t{0};
  const std::uint64_t since = guests_.front().since_ns;
  return since + (has_place(now) ? handshake_ns_ : std::min(kFirstMoments, handshake_ns_));
}

void MeetingDoor::poll_entries(std::vector<pollfd>& out) const {
  for (const Guest& guest : guests_) out.push_back({guest.socket.fd(), POLLIN, 0});
}

void MeetingDoor::serve(const pollfd* polled, std::uint64_t now, std::vector<Arrival>& arrivals) {
  std::vector<Guest> stay;
  for (std::size_t i = 0; i < guests_.size(); ++i) {
    Guest& guest = guests_[i];
    const bool late = now >= guest.since_ns + handshake_ns_;
    Verdict verdict = Verdict::stays;
    if (polled[i].revents != 0) verdict = listen_to(guest, now);
    if (verdict == Verdict::arrives) {
      arrivals.push_back({std::move(guest.socket), guest.hello, guest.session, guest.said_hello_ns});
    } else if (verdict == Verdict::stays && !late) {
      stay.push_back(std::move(guest));
    }
  }
  guests_ = std::move(stay);
}

MeetingDoor::Verdict MeetingDoor::listen_to(Guest& guest, std::uint64_t now) {
  for (;;) {
    const std::span<std::uint8_t> whole =
        guest.greeted ? std::span<std::uint8_t>(guest.proof) : std::span<std::uint8_t>(guest.hello_bytes);
    const std::span<std::uint8_t> room = whole.subspan(guest.filled);
    const ssize_t n = recv(guest.socket.fd(), room.data(), room.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Verdict::stays;
    if (n <= 0) return Verdict::goes;
    guest.filled += static_cast<std::size_t>(n);
    // Who speaks HTTP need not end his sentence.
    if (!guest.greeted && !begins_like_hello(whole.first(guest.filled))) return Verdict::goes;
    if (guest.filled < whole.size()) continue;
    if (guest.greeted) {
      return equal_in_constant_time(guest.proof, write_proof(guest.session)) ? Verdict::arrives
                                                                             : Verdict::goes;
    }
    if (read_greeting(guest, now) == Verdict::goes) return Verdict::goes;
  }
}

MeetingDoor::Verdict MeetingDoor::read_greeting(Guest& guest, std::uint64_t now) {
  if (!read_hello(secret_, guest.hello_bytes, guest.hello)) return Verdict::goes;
  Nonce nonce;
  fill_random(nonce);
  const ChallengeBytes challenge = write_challenge(secret_, guest.hello_bytes, nonce);
  // The first bytes of a connection always find room in its buffer.
  const ssize_t n = send(guest.socket.fd(), challenge.data(), challenge.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n != static_cast<ssize_t>(challenge.size())) return Verdict::goes;
  guest.session = session_key(secret_, guest.hello_bytes, nonce);
  guest.said_hello_ns = now;
  guest.greeted = true;
  guest.filled = 0;
  return Verdict::stays;
}

}  // namespace ringattn::comm
