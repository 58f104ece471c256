// How transfers, peers and the link end.
#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <thread>

#include "transports/tcp/link.h"

namespace ringattn::tcp {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kCloseLimit{1000};
constexpr std::chrono::microseconds kLongestPause{2000};

}  // namespace

// ---- transfers ------------------------------------------------------------------------------------------

void Link::complete(Transfer& transfer, ringattn_status status) {
  transfer.status = status;
  transfer.state = Transfer::State::ended;
  ended_.push(transfer);
}

// Where the carrier has it, it ends when that has let go.
void Link::complete_lost(Transfer& transfer) {
  if (transfer.acknowledged) return doom(transfer, RINGATTN_OK);
  if (lost_.empty()) {
    char tag[32];
    std::snprintf(tag, sizeof tag, "0x%" PRIx64, transfer.tag);
    const Peer& gone = peer(transfer.peer);
    lost_ = "rank " + std::to_string(gone.rank) + " (" + gone.who + ") closed its link while rank " +
            std::to_string(rank_) + " had a transfer with it (tag " + tag + ")";
  }
  if (transfer.carried) return doom(transfer, RINGATTN_ERR_PEER_LOST);
  complete(transfer, RINGATTN_ERR_PEER_LOST);
}

// Told CANCELED, but the record waits: the peer will answer by its name, some day.
void Link::stop_asking() {
  answers_due_ = Clock::time_point::max();
  const auto is_asked = [](const Transfer& send) {
    return send.state == Transfer::State::announced && send.withdrawing;
  };
  pool_.reserve(static_cast<std::size_t>(std::count_if(pool_.begin(), pool_.end(), is_asked)));
  for (Transfer& send : pool_) {
    if (!is_asked(send)) continue;
    Peer& to = peer(send.peer);
    to.data.keep(send.name());  // from here on the memory is its owner's
    Frame frame{.type = FrameType::cancel};
    frame.status = 1;
    frame.tag = send.tag;
    frame.id = send.name();
    to.data.push(frame);
    Transfer& told = pool_.take();
    told.kind = send.kind;
    told.peer = send.peer;
    told.tag = send.tag;
    told.bytes = send.bytes;
    told.user = send.user;
    complete(told, RINGATTN_ERR_CANCELED);
    send.state = Transfer::State::given_up;
  }
}

// A message of a peer that has found its receive, or will not find one any more.
void Link::forget(Transfer& announced) {
  if (announced.eager) {
    rooms_.give_back(announced.data);
    --peer(announced.peer).eager_in;
  }
  pool_.give_back(announced);
}

// Unequal sizes end the ring: the ranks disagree about the schedule, so nothing that follows can be trusted.
bool Link::same_size(const Transfer& send, const Transfer& receive, std::int32_t sender) {
  if (send.bytes == receive.bytes) return true;
  char reason[kReasonBytes];
  std::snprintf(reason, sizeof reason,
                "size mismatch: rank %d sends %" PRIu64 " bytes to rank %d, which expects %" PRIu64
                " bytes (tag 0x%" PRIx64 ")",
                sender, send.bytes, rank_, receive.bytes, send.tag);
  end(RINGATTN_ERR_TRANSPORT, reason);
  broadcast_abort();
  return false;
}

// ---- peers ----------------------------------------------------------------------------------------------

void Link::die(Peer& peer, const std::string& how) {
  if (lost_.empty()) {
    const int error = peer.life.error() != 0 ? peer.life.error() : peer.data.error();
    lost_ = "lost rank " + std::to_string(peer.rank) + " (" + peer.who + "): " + how + " without a goodbye";
    if (error != 0) lost_ += std::string(" (") + std::strerror(error) + ")";
  }
  part(peer, Peer::State::lost);
  loss_untold_ = true;
  kick();
}

// From here on the peer is not there; what was posted with it ends.
void Link::part(Peer& peer, Peer::State state) {
  peer.state = state;
  peer.life.break_off();
  peer.data.break_off();
  peer.sending.clear();
  peer.incoming = nullptr;
  for (Transfer& transfer : pool_) {
    const bool over = transfer.state == Transfer::State::free || transfer.state == Transfer::State::ended;
    if (over || transfer.peer != peer.rank) continue;
    if (transfer.state == Transfer::State::given_up) {
      pool_.give_back(transfer);
      continue;
    }
    if (transfer.state == Transfer::State::unmatched) table_.remove(transfer);
    if (transfer.own) {
      complete_lost(transfer);
    } else {
      forget(transfer);
    }
  }
}

// ---- the link -------------------------------------------------------------------------------------------

ringattn_status Link::status() const {
  if (status_ != RINGATTN_OK) return status_;
  return lost_.empty() ? RINGATTN_OK : RINGATTN_ERR_PEER_LOST;
}

void Link::hear_lifelines() {
  bool stuck = false;
  each_peer([&](Peer& each) {
    read_life(each);
    if (each.state == Peer::State::here) flush(each);  // beats want an answer
    stuck |= !each.life.idle();
  });
  if (stuck) kick();
}

// Also of a rank that has nothing to do and so does not call test: what has arrived counts.
ringattn_status Link::state(char* reason, std::uint64_t capacity) {
  const std::lock_guard lock(mutex_);
  hear_lifelines();
  const char* const text = status_ != RINGATTN_OK ? reason_ : lost_.c_str();
  if (reason != nullptr) std::snprintf(reason, capacity, "%s", text);
  return status();
}

void Link::abort(ringattn_status status, const char* reason) {
  const std::lock_guard lock(mutex_);
  if (status_ != RINGATTN_OK) return;
  hear_lifelines();  // a reason that has arrived was first
  if (status_ != RINGATTN_OK) return;
  end(status, reason);
  broadcast_abort();
}

void Link::end(ringattn_status status, const char* reason) {
  if (status_ != RINGATTN_OK) return;
  status_ = status;
  std::snprintf(reason_, sizeof reason_, "%s", reason);
  table_.clear();
  for (Peer& each : peers_) {
    each.sending.clear();
    each.incoming = nullptr;
    each.data.drop_unsent();  // it refers to memory that is its owner's again from now on
  }
  for (Transfer& transfer : pool_) {
    if (transfer.state == Transfer::State::free || transfer.state == Transfer::State::ended) continue;
    if (transfer.state == Transfer::State::given_up) {
      pool_.give_back(transfer);
    } else if (!transfer.own) {
      forget(transfer);
    } else if (transfer.carried) {
      doom(transfer, status);
    } else {
      complete(transfer, status);
    }
  }
  kick();
}

void Link::give_up(const char* reason) noexcept {
  const std::lock_guard lock(mutex_);
  end(RINGATTN_ERR_TRANSPORT, reason);
  for (Peer& each : peers_) {
    each.life.break_off();
    each.data.break_off();
  }
}

void Link::broadcast_abort() {
  Frame frame{.type = FrameType::abort};
  frame.status = status_;
  frame.bytes = std::strlen(reason_);
  each_peer([&](Peer& each) {
    each.life.push(frame, reason_, frame.bytes);
    each.life.flush();
  });
}

// What has been said must arrive: closing a socket that has unread bytes throws away what is still under way.
// So this reads on, and waits, for a while, until the peers' kernels have everything.
void Link::close() {
  const std::lock_guard lock(mutex_);
  close_carrier();
  each_peer([this](Peer& each) { say_goodbye(each); });
  const auto deadline = Clock::now() + kCloseLimit;
  for (std::chrono::microseconds pause(20); Clock::now() < deadline;
       pause = std::min(2 * pause, kLongestPause)) {
    bool all_arrived = true;
    each_peer([&](Peer& each) {
      for (const Channel channel : {Channel::life, Channel::data}) {
        Stream& stream = each.stream(channel);
        stream.flush();
        stream.discard();
        if (!stream.open()) continue;
        all_arrived &= stream.idle() && (each.near ? unsent(stream.fd()) : unacknowledged(stream.fd())) == 0;
      }
    });
    if (all_arrived) break;
    std::this_thread::sleep_for(pause);
  }
  for (Peer& each : peers_) {
    each.life.close();
    each.data.close();
  }
}

// On data only where the last frame is whole; the one on life says it anyway.
void Link::say_goodbye(Peer& peer) {
  peer.life.push({.type = FrameType::goodbye});
  if (status_ == RINGATTN_OK) peer.data.push({.type = FrameType::goodbye});
}

}  // namespace ringattn::tcp
