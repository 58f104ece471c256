// What each frame of a peer does. A frame that no correct peer can send ends the peer: nothing that follows
// can be trusted.
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "transports/tcp/link.h"

namespace ringattn::tcp {
namespace {

// What one call reads from one connection at most, so that all get their turn.
constexpr std::int64_t kLifeBudget = 64 << 10;
constexpr std::int64_t kDataBudget = 4 << 20;

// The peer has yet to say what became of it.
bool is_announced(const Transfer& send) {
  return send.state == Transfer::State::announced || send.state == Transfer::State::given_up;
}

}  // namespace

// ---- life -----------------------------------------------------------------------------------------------

void Link::read_life(Peer& peer) {
  std::int64_t budget = kLifeBudget;
  while (peer.state == Peer::State::here && status_ == RINGATTN_OK) {
    switch (peer.life.next(budget)) {
      case Stream::Got::nothing:
        return;
      case Stream::Got::frame:
        on_life(peer);
        break;
      case Stream::Got::payload:
        return pass_on_abort(peer);
      case Stream::Got::end:
        if (!peer.goodbye) return die(peer, "its lifeline ended");
        // What it sent before its goodbye may still be under way; a host that goes now must not hold us up.
        if (peer.data.open()) set_user_timeout(peer.data.fd(), 4000);
        return;
    }
  }
}

void Link::on_life(Peer& peer) {
  const Frame& frame = peer.life.frame();
  if (frame.magic != Frame().magic) return nonsense(peer, frame);
  switch (frame.type) {
    case FrameType::beat:
      return on_beat(peer, frame);
    case FrameType::beat_taken:
      if (peer.beats_under_way == 0) return nonsense(peer, frame);
      --peer.beats_under_way;
      return;
    case FrameType::abort:
      if (frame.bytes >= sizeof peer.abort_reason) return nonsense(peer, frame);
      peer.abort_status = frame.status <= -200 && frame.status > -300
                              ? static_cast<ringattn_status>(frame.status)
                              : RINGATTN_ERR_ABORTED;
      std::memset(peer.abort_reason, 0, sizeof peer.abort_reason);
      if (frame.bytes == 0) return pass_on_abort(peer);
      return peer.life.take_payload(peer.abort_reason, frame.bytes);
    case FrameType::goodbye:
      peer.goodbye = true;
      return;
    default:
      return nonsense(peer, frame);
  }
}

// To all, though each was told by the one who began it: we may leave before that has reached somebody, who
// would take our leave for the reason.
void Link::pass_on_abort(const Peer& peer) {
  end(peer.abort_status, peer.abort_reason);
  broadcast_abort();
}

void Link::on_beat(Peer& peer, const Frame& frame) {
  if (frame.id > peer.beat.canceled) {
    woken_ = true;
    kick();
  }
  peer.beat.waits_for = frame.status;
  peer.beat.counter = frame.tag;
  peer.beat.entered = frame.bytes;
  peer.beat.canceled = frame.id;
  peer.beat.canceled_before = frame.other;
  peer.beat.pulse = frame.offset;
  peer.life.push({.type = FrameType::beat_taken});
}

// ---- data -----------------------------------------------------------------------------------------------

void Link::read_data(Peer& peer) {
  std::int64_t budget = kDataBudget;
  while (peer.state == Peer::State::here && status_ == RINGATTN_OK) {
    switch (peer.data.next(budget)) {
      case Stream::Got::nothing:
        return;
      case Stream::Got::frame:
        on_data(peer);
        break;
      case Stream::Got::payload:
        on_payload(peer);
        break;
      case Stream::Got::end:
        read_life(peer);  // says whether it aborted, left or died
        if (peer.state != Peer::State::here || status_ != RINGATTN_OK) return;
        if (peer.goodbye) return part(peer, Peer::State::left);
        return die(peer, "its connection ended");
    }
  }
}

void Link::on_data(Peer& peer) {
  const Frame& frame = peer.data.frame();
  if (frame.magic != Frame().magic) return nonsense(peer, frame);
  switch (frame.type) {
    case FrameType::eager:
      return on_eager(peer, frame);
    case FrameType::offer:
      return on_offer(peer, frame);
    case FrameType::accept:
      return on_accept(peer, frame);
    case FrameType::piece:
      return on_piece(peer, frame);
    case FrameType::done:
      return on_done(peer, frame);
    case FrameType::cancel:
      return on_cancel(peer, frame);
    case FrameType::canceled:
      return on_canceled(peer, frame);
    case FrameType::goodbye:
      return part(peer, Peer::State::left);
    case FrameType::carrier_address:
    case FrameType::carrier_verdict:
      if (!on_carrier(peer, frame)) nonsense(peer, frame);
      return;
    default:
      return nonsense(peer, frame);
  }
}

void Link::on_eager(Peer& peer, const Frame& frame) {
  if (frame.bytes > kEagerBytes) return nonsense(peer, frame);
  Transfer* target = table_.take(RINGATTN_TRANSFER_RECEIVE, peer.rank, frame.tag);
  if (target != nullptr) {
    Transfer send;
    send.peer = rank_;
    send.tag = frame.tag;
    send.bytes = frame.bytes;
    if (!same_size(send, *target, peer.rank)) return;
    target->state = Transfer::State::moving;
    target->remote = frame.id;
    target->moved = frame.bytes;
  } else {
    if (peer.eager_in == kEagerMessages) return nonsense(peer, frame);
    ++peer.eager_in;
    target = &pool_.take();
    target->own = false;
    target->eager = true;
    target->state = Transfer::State::filling;
    target->kind = RINGATTN_TRANSFER_SEND;
    target->peer = peer.rank;
    target->tag = frame.tag;
    target->bytes = frame.bytes;
    target->remote = frame.id;
    target->data = rooms_.take();
  }
  peer.incoming = target;
  if (frame.bytes == 0) return on_payload(peer);
  peer.data.take_payload(target->data, frame.bytes);
}

void Link::on_offer(Peer& peer, const Frame& frame) {
  Transfer& offered = pool_.take();
  offered.own = false;
  offered.kind = RINGATTN_TRANSFER_SEND;
  offered.peer = peer.rank;
  offered.tag = frame.tag;
  offered.bytes = frame.bytes;
  offered.remote = frame.id;
  Transfer* const receive = table_.take(RINGATTN_TRANSFER_RECEIVE, peer.rank, frame.tag);
  if (receive == nullptr) return table_.insert(offered);
  match_announced(*receive, offered);
}

void Link::accept(Peer& peer, Transfer& receive, std::uint64_t send) {
  receive.state = Transfer::State::moving;
  if (by_carrier(receive)) carry(receive, receive.name());
  Frame frame{.type = FrameType::accept};
  frame.id = send;
  frame.other = receive.name();
  peer.data.push(frame);
}

void Link::on_accept(Peer& peer, const Frame& frame) {
  Transfer* const send = pool_.find(frame.id, peer.rank);
  const bool valid = send != nullptr && send->own && is_announced(*send) && !send->eager;
  if (!valid) return nonsense(peer, frame);
  if (send->state == Transfer::State::given_up) return;  // the peer is about to read that
  send->state = Transfer::State::moving;
  send->withdrawing = false;
  send->remote = frame.other;
  if (by_carrier(*send)) return carry(*send, frame.other);
  peer.sending.push(*send);
}

void Link::on_piece(Peer& peer, const Frame& frame) {
  Transfer* const receive = pool_.find(frame.other, peer.rank);
  const bool valid = receive != nullptr && receive->own && !by_carrier(*receive) &&
                     receive->kind == RINGATTN_TRANSFER_RECEIVE &&
                     receive->state == Transfer::State::moving && frame.offset == receive->moved &&
                     frame.bytes <= kPieceBytes && frame.bytes <= receive->bytes - receive->moved &&
                     (frame.bytes > 0 || receive->bytes == 0);
  if (!valid) return nonsense(peer, frame);
  peer.incoming = receive;
  char* const to = receive->data + receive->moved;
  receive->moved += frame.bytes;
  if (frame.bytes == 0) return on_payload(peer);
  peer.data.take_payload(to, frame.bytes);
}

void Link::on_payload(Peer& peer) {
  if (peer.carrier_reading >= 0) {
    peer.carrier_told[peer.carrier_reading] = true;
    peer.carrier_reading = -1;
    return;
  }
  Transfer& target = *peer.incoming;
  peer.incoming = nullptr;
  if (target.own) {
    if (target.moved == target.bytes) arrived(peer, target);
    return;
  }
  // Its receive may have been posted while it was being read.
  Transfer* const receive = table_.take(RINGATTN_TRANSFER_RECEIVE, peer.rank, target.tag);
  if (receive == nullptr) return table_.insert(target);
  target.state = Transfer::State::unmatched;
  match_announced(*receive, target);
}

void Link::arrived(Peer& peer, Transfer& receive) {
  Frame frame{.type = FrameType::done};
  frame.id = receive.remote;
  peer.data.push(frame);
  complete(receive, RINGATTN_OK);
}

void Link::on_done(Peer& peer, const Frame& frame) {
  Transfer* const send = pool_.find(frame.id, peer.rank);
  const bool known = send != nullptr && send->own && send->kind == RINGATTN_TRANSFER_SEND;
  const bool valid = known && (send->eager ? is_announced(*send)
                                           : send->state == Transfer::State::moving &&
                                                 (by_carrier(*send) || send->moved == send->bytes));
  if (!valid) return nonsense(peer, frame);
  send->acknowledged = true;
  if (send->carried) return;  // its memory is still in use
  if (send->eager) --peer.eager_out;
  answered(*send, RINGATTN_OK);
}

void Link::answered(Transfer& send, ringattn_status status) {
  if (send.state == Transfer::State::given_up) return pool_.give_back(send);
  complete(send, status);
}

// What has met its receive already is on its way or has ended: the sender hears of that, and of nothing else,
// unless it no longer listens.
void Link::on_cancel(Peer& peer, const Frame& frame) {
  Transfer* const announced = table_.take(RINGATTN_TRANSFER_SEND, peer.rank, frame.tag);
  if (announced != nullptr && announced->remote == frame.id) {
    forget(*announced);
  } else {
    if (announced != nullptr) table_.insert(*announced);
    if (frame.status == 0 || !take_back_accept(peer, frame)) return;
  }
  Frame answer{.type = FrameType::canceled};
  answer.id = frame.id;
  peer.data.push(answer);
}

// The receive of an offer that was given up before our accept came: it looks for another send, if it may.
bool Link::take_back_accept(Peer& peer, const Frame& frame) {
  for (Transfer& receive : pool_) {
    const bool waits = receive.own && receive.kind == RINGATTN_TRANSFER_RECEIVE &&
                       receive.state == Transfer::State::moving && receive.moved == 0;
    if (!waits || receive.peer != peer.rank || receive.remote != frame.id) continue;
    receive.remote = 0;
    if (receive.carried) {
      receive.unmet = true;
      carrier_->cancel(receive);
    } else {
      unmeet(receive);
    }
    return true;
  }
  return false;
}

void Link::on_canceled(Peer& peer, const Frame& frame) {
  Transfer* const send = pool_.find(frame.id, peer.rank);
  const bool valid = send != nullptr && send->own && is_announced(*send) && send->withdrawing;
  if (!valid) return nonsense(peer, frame);
  if (send->eager) --peer.eager_out;
  answered(*send, RINGATTN_ERR_CANCELED);
}

void Link::nonsense(Peer& peer, const Frame& frame) {
  char text[96];
  std::snprintf(text, sizeof text, "it sent a frame that makes no sense (type %u, %" PRIu64 " bytes)",
                static_cast<unsigned>(frame.type), frame.bytes);
  die(peer, text);
}

// Back to where it was before it met the send that is gone.
void Link::unmeet(Transfer& receive) {
  receive.unmet = false;
  if (receive.withdrawing) return complete(receive, RINGATTN_ERR_CANCELED);
  take_receive(receive);
}

}  // namespace ringattn::tcp
