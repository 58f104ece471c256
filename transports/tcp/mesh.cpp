#include "transports/tcp/mesh.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

namespace ringattn::tcp {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kHelloLimit{2000};   // from the accept to the whole hello
constexpr milliseconds kLongestSleep{500};  // for what changes without a descriptor

}  // namespace

Mesh::Mesh(Link& link, const std::vector<LinkAddress>& addresses) : link_(link), addresses_(addresses) {
  for (std::int32_t rank = 0; rank < link.world_size(); ++rank) {
    const LinkAddress& peer = addresses[static_cast<std::size_t>(rank)];
    if (rank != link.rank()) link.introduce(rank, peer);
    if (rank >= link.rank()) continue;
    for (const Channel channel : {Channel::life, Channel::data}) {
      dials_.emplace_back(link.ring(), link.rank(), rank, channel, to_try(link.address(), peer));
    }
  }
}

ringattn_status Mesh::connect(Clock::time_point deadline, std::string& error) {
  const ringattn_status status =
      wait_for([this] { return link_.all_connected(); }, deadline, [this] { return missing(); }, error);
  if (status != RINGATTN_OK) return status;
  link_.stop_listening();
  if (link_.has_carrier() && link_.world_size() > 1) return connect_carriers(deadline, error);
  link_.finish_connecting();
  return RINGATTN_OK;
}

// All ranks go through the same attempts, each until every rank has said how it went.
ringattn_status Mesh::connect_carriers(Clock::time_point deadline, std::string& error) {
  std::string why;
  for (int attempt = 0; link_.open_carrier(attempt, why); ++attempt) {
    const auto wait_for_all = [&](bool(Peer::*what)[Peer::kAttempts], const char* lacks) {
      const auto silent = [&] {
        return list_ranks([&](std::int32_t rank) { return link_.heard(rank, what, attempt) ? "" : lacks; });
      };
      return wait_for([&] { return silent().empty(); }, deadline, silent, error);
    };
    ringattn_status status = wait_for_all(&Peer::carrier_told, "has not said how it is reached");
    if (status != RINGATTN_OK) return status;
    link_.reach_carriers(attempt, why);
    status = wait_for_all(&Peer::carrier_judged, "has not said whether it reaches all ranks");
    if (status != RINGATTN_OK) return status;
    if (!link_.carriers_are_good(attempt, why)) continue;
    link_.finish_connecting();
    return RINGATTN_OK;
  }
  error = why;
  return RINGATTN_ERR_TRANSPORT;
}

ringattn_status Mesh::wait_for(const std::function<bool()>& condition, Clock::time_point deadline,
                               const std::function<std::string()>& missing, std::string& error) {
  while (!condition()) {
    wait_until(deadline);
    receive_guests();
    move_dials();
    const ringattn_status status = link_.advance();
    if (status != RINGATTN_OK) {
      char reason[kReasonBytes];
      link_.state(reason, sizeof reason);
      error = reason;
      return status;
    }
    if (peer_is_gone(error)) return RINGATTN_ERR_PEER_LOST;
    if (Clock::now() < deadline || condition()) continue;
    error = "not all ranks could be reached in time: " + missing();
    return RINGATTN_ERR_TIMEOUT;
  }
  return RINGATTN_OK;
}

void Mesh::fill_poll_set() {
  set_.clear();
  link_.add_to_poll(set_);
  listener_at_ = set_.size();
  set_.push_back({link_.listener() ? link_.listener().get() : -1, POLLIN, 0});
  guests_at_ = set_.size();
  for (const Guest& guest : guests_) set_.push_back({guest.socket.get(), POLLIN, 0});
  dials_at_ = set_.size();
  for (const Dial& dial : dials_) set_.push_back(dial.to_poll());
}

void Mesh::wait_until(Clock::time_point deadline) {
  fill_poll_set();
  Clock::time_point until = std::min(deadline, Clock::now() + kLongestSleep);
  for (const Guest& guest : guests_) until = std::min(until, guest.due);
  for (const Dial& dial : dials_) until = std::min(until, dial.due());
  const auto left = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
  ::poll(set_.data(), set_.size(), static_cast<int>(std::max<std::int64_t>(left, 0)));
}

// ---- those who dial us ----------------------------------------------------------------------------------

// Known guests first: when there are too many, the one that has been silent for the longest time has to go,
// and by then every rank that has answered is no guest any more.
void Mesh::receive_guests() {
  const auto now = Clock::now();
  std::size_t at = guests_at_;
  for (auto guest = guests_.begin(); guest != guests_.end(); ++at) {
    const bool stays = (set_[at].revents == 0 || hear(*guest)) && now < guest->due;
    guest = stays ? std::next(guest) : guests_.erase(guest);
  }
  if (set_[listener_at_].revents == 0) return;
  const std::size_t most = 2 * static_cast<std::size_t>(link_.world_size());
  for (std::size_t i = 0; i < most; ++i) {
    Guest guest{accept_from(link_.listener()), now + kHelloLimit, make_challenge(), {}, 0};
    if (!guest.socket) return;
    const ssize_t sent =
        ::send(guest.socket.get(), &guest.challenge, sizeof guest.challenge, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent != static_cast<ssize_t>(sizeof guest.challenge)) continue;
    if (guests_.size() == most) guests_.pop_front();
    guests_.push_back(std::move(guest));
  }
}

// Whether it stays a guest: not when it has become a peer, nor when it must leave.
bool Mesh::hear(Guest& guest) {
  char* const to = reinterpret_cast<char*>(&guest.hello) + guest.got;
  const ssize_t count = ::recv(guest.socket.get(), to, sizeof guest.hello - guest.got, MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
  if (count <= 0) return false;
  guest.got += static_cast<std::size_t>(count);
  if (guest.got < sizeof guest.hello) return true;
  if (is_genuine(link_.ring(), guest.challenge, guest.hello)) judge(guest);
  return false;
}

// It knows the secret, so it is told why it may not stay.
void Mesh::judge(Guest& guest) {
  const Hello& hello = guest.hello;
  const Ring& ring = link_.ring();
  const bool same_ring = std::equal(hello.group, hello.group + 2, ring.group) &&
                         hello.world_size == ring.world_size && hello.to == link_.rank() &&
                         hello.from > link_.rank() && hello.from < ring.world_size &&
                         hello.channel < kChannels;
  const auto channel = static_cast<Channel>(hello.channel);
  Verdict verdict = Verdict::other_ring;
  if (same_ring) verdict = link_.connected(hello.from, channel) ? Verdict::already_here : Verdict::welcome;
  const Welcome welcome = make_welcome(ring, guest.challenge, hello, verdict);
  const ssize_t sent = ::send(guest.socket.get(), &welcome, sizeof welcome, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (verdict != Verdict::welcome || sent != static_cast<ssize_t>(sizeof welcome)) return;
  link_.adopt(hello.from, channel, std::move(guest.socket));
}

// ---- those whom we dial ---------------------------------------------------------------------------------

void Mesh::move_dials() {
  std::size_t at = dials_at_;
  for (auto dial = dials_.begin(); dial != dials_.end(); ++at) {
    dial->advance(set_[at].revents != 0);
    if (dial->done()) link_.adopt(dial->to(), dial->channel(), dial->take_socket());
    dial = dial->done() ? dials_.erase(dial) : std::next(dial);
  }
}

// A rank listens from before its address is known until all have connected to it.
bool Mesh::peer_is_gone(std::string& error) const {
  for (const Dial& dial : dials_) {
    if (!dial.refused()) continue;
    error = "rank " + std::to_string(dial.to()) + " (" +
            addresses_[static_cast<std::size_t>(dial.to())].who() + ") is gone: " + dial.tried();
    return true;
  }
  return false;
}

std::string Mesh::missing() const {
  return list_ranks([this](std::int32_t rank) -> std::string {
    if (link_.connected(rank, Channel::life) && link_.connected(rank, Channel::data)) return "";
    const auto dial =
        std::find_if(dials_.begin(), dials_.end(), [rank](const Dial& each) { return each.to() == rank; });
    return dial == dials_.end() ? "has not called" : "not at " + dial->tried();
  });
}

std::string Mesh::list_ranks(const std::function<std::string(std::int32_t)>& lacks) const {
  std::string text;
  for (std::int32_t rank = 0; rank < link_.world_size(); ++rank) {
    const std::string what = lacks(rank);
    if (what.empty()) continue;
    if (!text.empty()) text += "; ";
    if (text.size() > 300) return text + "and more";
    text += "rank " + std::to_string(rank) + " (" + addresses_[static_cast<std::size_t>(rank)].who() + ") " +
            what;
  }
  return text;
}

}  // namespace ringattn::tcp
