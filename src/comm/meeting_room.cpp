#include "comm/meeting_room.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "comm/rendezvous_address.h"

namespace ringattn::comm {
namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};
constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kFarewell = 500 * kMillisecond;  // for the last words to arrive

std::uint64_t after_ms(std::uint64_t now, std::int64_t ms) {
  return ms < 0 ? kNever : now + static_cast<std::uint64_t>(ms) * kMillisecond;
}

}  // namespace

MeetingRoom::MeetingRoom(RoomSettings settings, const Key& secret, std::vector<Socket> listeners, int wake_fd)
    : settings_(std::move(settings)),
      listeners_(std::move(listeners)),
      wake_fd_(wake_fd),
      door_(secret, 2 * static_cast<std::size_t>(settings_.world), settings_.handshake_ns),
      seats_(static_cast<std::size_t>(settings_.world)),
      deadline_ns_(after_ms(now_ns(), settings_.timeout_ms)) {}

Status MeetingRoom::run() {
  while (!over_) turn();
  listeners_.clear();
  see_off();
  return status_;
}

void MeetingRoom::turn() {
  std::uint64_t now = now_ns();
  std::vector<pollfd> polled = {{wake_fd_, POLLIN, 0}};
  const bool accepts = now >= accept_again_ns_ && door_.has_place(now);
  for (const Socket& listener : listeners_) polled.push_back({accepts ? listener.fd() : -1, POLLIN, 0});
  const std::size_t first_guest = polled.size();
  door_.poll_entries(polled);
  const std::size_t first_seat = polled.size();
  for (const Seat& seat : seats_) {
    const bool writes = seat.channel && seat.channel->has_output();
    polled.push_back(
        {seat.channel ? seat.channel->fd() : -1, static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), 0});
  }
  poll(polled.data(), polled.size(), poll_timeout(next_deadline(now), 10'000));

  now = now_ns();
  if (polled[0].revents != 0) return end(RINGATTN_ERR_ABORTED, "its host has ended it");
  // Seats come before the door: who leaves and joins the next meeting is seen leaving first.
  for (std::int32_t rank = 0; rank < settings_.world && !over_; ++rank) {
    serve_seat(rank, polled[first_seat + static_cast<std::size_t>(rank)].revents);
  }
  std::vector<MeetingDoor::Arrival> arrivals;
  door_.serve(&polled[first_guest], now, arrivals);
  for (auto& arrival : arrivals) {
    if (!over_) arrive(std::move(arrival));
  }
  if (accepts) accept_some(now);
  if (!over_) check_time(now);
}

std::uint64_t MeetingRoom::next_deadline(std::uint64_t now) const {
  std::uint64_t next = std::min(deadline_ns_, door_.next_deadline(now));
  for (const Seat& seat : seats_) {
    if (seat.channel) next = std::min(next, seat.patience_ns);
  }
  if (accept_again_ns_ > now) next = std::min(next, accept_again_ns_);
  return next;
}

void MeetingRoom::check_time(std::uint64_t now) {
  const auto over = [this](const std::string& whose, std::int64_t ms) {
    end(RINGATTN_ERR_TIMEOUT, whose + " time of " + std::to_string(ms) + " ms is over; " + who_is_missing());
  };
  if (now >= deadline_ns_) return over("the host's", settings_.timeout_ms);
  for (std::size_t rank = 0; rank < seats_.size(); ++rank) {
    const Seat& seat = seats_[rank];
    if (seat.channel && now >= seat.patience_ns) {
      return over("rank " + std::to_string(rank) + "'s", seat.patience_ms);
    }
  }
}

// A few at a time, so that those who are here are heard in between.
void MeetingRoom::accept_some(std::uint64_t now) {
  for (const Socket& listener : listeners_) {
    for (int i = 0; i < 16 && door_.has_place(now); ++i) {
      Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.open()) {
        // Out of descriptors or memory: the connection waits in the kernel, and so must this loop.
        if (errno != EAGAIN && errno != EWOULDBLOCK) accept_again_ns_ = now + 20 * kMillisecond;
        break;
      }
      set_meeting_options(socket.fd());
      door_.admit(std::move(socket), now);
    }
  }
}

void MeetingRoom::serve_seat(std::int32_t rank, short events) {
  Seat& seat = seats_[static_cast<std::size_t>(rank)];
  if (events == 0 || !seat.channel) return;
  if (seat.channel->has_output() && seat.channel->flush() == Channel::Result::closed) {
    return lose(rank, seat.channel->trouble());
  }
  Frame frame;
  switch (seat.channel->receive(frame)) {
    case Channel::Result::done:
      return take_frame(rank, std::move(frame));
    case Channel::Result::blocked:
      return;
    case Channel::Result::closed:
    case Channel::Result::broken:
      return lose(rank, seat.channel->trouble());
  }
}

void MeetingRoom::take_frame(std::int32_t rank, Frame frame) {
  Seat& seat = seats_[static_cast<std::size_t>(rank)];
  if (frame.type == FrameType::part && !seat.gave_part) return take_part(rank, std::move(frame.payload));
  if (frame.type != FrameType::leave || seat.gave_part) return lose(rank, "frame that nobody expected");
  seat.channel.reset();  // the rank takes the closed connection for the answer
  seat.left = true;
  ++gone_;
  if (parts_ > 0) {
    const auto waiting = ranks_where([](const Seat& other) { return other.gave_part; });
    return end(RINGATTN_ERR_PEER_LOST, "rank " + std::to_string(rank) + " has left before round " +
                                           std::to_string(round_) + ", in which " + name_ranks(waiting) +
                                           " took part");
  }
  over_ = gone_ == settings_.world;
}

void MeetingRoom::take_part(std::int32_t rank, std::vector<std::uint8_t> part) {
  Seat& seat = seats_[static_cast<std::size_t>(rank)];
  seat.part = std::move(part);
  seat.gave_part = true;
  ++parts_;
  if (gone_ > 0) {
    const auto left = ranks_where([](const Seat& other) { return other.left; });
    return end(RINGATTN_ERR_PEER_LOST, name_ranks(left) + " left before round " + std::to_string(round_) +
                                           ", in which rank " + std::to_string(rank) + " took part");
  }
  if (parts_ == settings_.world) finish_round();
}

void MeetingRoom::finish_round() {
  std::vector<std::vector<std::uint8_t>> parts;
  for (Seat& seat : seats_) {
    parts.push_back(std::move(seat.part));
    seat.part.clear();
    seat.gave_part = false;
  }
  parts_ = 0;
  ++round_;
  const Payload all(write_all_parts(parts));
  for (Seat& seat : seats_) {
    seat.channel->queue(FrameType::all, all);
    seat.channel->flush();  // a lost one is seen when it is polled
  }
}

Notice MeetingRoom::judge(const Hello& hello) const {
  const std::string rank = std::to_string(hello.rank), world = std::to_string(settings_.world);
  if (hello.version != kMeetingVersion) {
    return {false,
            invalid(name() + ": version " + std::to_string(hello.version) + " of the protocol, expected " +
                    std::to_string(kMeetingVersion) + ": the same library on all ranks")};
  }
  if (hello.world != settings_.world) {
    return {false, invalid(name() + ": world " + std::to_string(hello.world) + " of rank " + rank +
                           ", expected " + world)};
  }
  if (hello.rank < 0 || hello.rank >= settings_.world) {
    return {false,
            invalid(name() + ": rank " + rank + ", expected 0.." + std::to_string(settings_.world - 1))};
  }
  const Seat& seat = seats_[static_cast<std::size_t>(hello.rank)];
  if (seat.left) return {true, invalid(name() + ": rank " + rank + " has left it already")};
  if (seat.channel) {
    return {false,
            invalid(name() + ": rank " + rank + " is taken by " + seat.from + ", expected every rank once")};
  }
  return {};
}

void MeetingRoom::arrive(MeetingDoor::Arrival arrival) {
  const std::string from = peer_text(arrival.socket.fd());
  const Notice notice = judge(arrival.hello);
  Channel channel(std::move(arrival.socket), arrival.session, Side::host, kMostPart);
  if (!notice.status.ok()) {
    channel.queue(FrameType::refused, Payload(write_notice(notice)));
    channel.flush();  // some hundred bytes: they fit, and who does not take them does not hear them
    return;
  }
  channel.queue(FrameType::welcome, Payload());
  channel.flush();
  Seat& seat = seats_[static_cast<std::size_t>(arrival.hello.rank)];
  seat.channel.emplace(std::move(channel));
  seat.from = from;
  seat.patience_ms = arrival.hello.patience_ms;
  seat.patience_ns = arrival.hello.patience_ms == kPatient
                         ? kNever
                         : after_ms(arrival.said_hello_ns, arrival.hello.patience_ms);
}

void MeetingRoom::lose(std::int32_t rank, const std::string& why) {
  Seat& seat = seats_[static_cast<std::size_t>(rank)];
  const std::string text = "rank " + std::to_string(rank) + " (" + seat.from + ") was lost in round " +
                           std::to_string(round_) + ": " + why;
  seat.channel.reset();  // `why` may be its own
  end(RINGATTN_ERR_PEER_LOST, text);
}

void MeetingRoom::end(ringattn_status code, const std::string& why) {
  over_ = true;
  status_ = Status(code, name() + ": " + why);
  const Payload notice(write_notice({false, status_}));
  for (Seat& seat : seats_) {
    if (seat.channel) seat.channel->queue(FrameType::end, notice);
  }
}

// To close a connection while the other side still sends makes the kernel forget what was on its way there: so
// stay until the last words have arrived.
void MeetingRoom::see_off() {
  const std::uint64_t until = now_ns() + kFarewell;
  for (bool waits = true; waits && now_ns() < until;) {
    waits = false;
    for (Seat& seat : seats_) {
      if (!seat.channel) continue;
      const bool lost = !seat.channel->discard_input() || seat.channel->flush() == Channel::Result::closed;
      if (lost || (!seat.channel->has_output() && seat.channel->all_acknowledged())) {
        seat.channel.reset();
      } else {
        waits = true;
      }
    }
    if (waits) poll(nullptr, 0, 2);
  }
}

template <typename Condition>
std::vector<std::int32_t> MeetingRoom::ranks_where(Condition condition) const {
  std::vector<std::int32_t> ranks;
  for (std::size_t rank = 0; rank < seats_.size(); ++rank) {
    if (condition(seats_[rank])) ranks.push_back(static_cast<std::int32_t>(rank));
  }
  return ranks;
}

std::string MeetingRoom::who_is_missing() const {
  const auto absent = ranks_where([](const Seat& seat) { return !seat.channel && !seat.left; });
  if (!absent.empty()) return name_ranks(absent) + " did not come";
  if (parts_ > 0) {
    const auto silent = ranks_where([](const Seat& seat) { return !seat.gave_part; });
    return name_ranks(silent) + " did not take part in round " + std::to_string(round_);
  }
  return name_ranks(ranks_where([](const Seat& seat) { return !seat.left; })) + " did not leave";
}

std::string MeetingRoom::name() const {
  return "meeting of " + std::to_string(settings_.world) + (settings_.world == 1 ? " rank" : " ranks") +
         " at " + settings_.place;
}

}  // namespace ringattn::comm
