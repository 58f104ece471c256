// What the owner and other threads call. Frames are in protocol.cpp, ends of all kinds in ending.cpp.
#include "transports/tcp/link.h"

#include <sys/eventfd.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

#include "transports/tcp/structs.h"

namespace ringattn::tcp {
namespace {

using Clock = std::chrono::steady_clock;

// Longer waits end early, which the contract allows; the deadline must not overflow.
constexpr std::chrono::nanoseconds kLongestWait = std::chrono::hours(24);
// Who does not answer for so long is not inside a call, and may not be for hours.
constexpr std::chrono::milliseconds kAnswerLimit{100};

timespec time_until(Clock::time_point deadline) {
  const auto left = std::max(Clock::duration::zero(), deadline - Clock::now());
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  return {static_cast<time_t>(nanoseconds / 1'000'000'000), static_cast<long>(nanoseconds % 1'000'000'000)};
}

}  // namespace

Link::Link(const char* name, const ringattn_link_desc_v1& desc, std::unique_ptr<Carrier> carrier)
    : name_(name),
      host_(desc.host),
      ring_(desc),
      rank_(desc.rank),
      peers_(static_cast<std::size_t>(desc.world_size)),
      carrier_(std::move(carrier)) {
  for (std::int32_t rank = 0; rank < desc.world_size; ++rank) {
    peer(rank).rank = rank;
    peer(rank).beat.waits_for = -1;
  }
  beat_.waits_for = -1;
  pool_.reserve(static_cast<std::size_t>(64 + 2 * std::min(desc.world_size, 64)));
  poll_set_.reserve(2 + kChannels * peers_.size());
}

bool Link::open(std::string& error) {
  event_ = make_event();
  if (!event_) {
    error = std::string("cannot make an eventfd: ") + std::strerror(errno);
    return false;
  }
  listener_ = open_listener(self_, error);
  return static_cast<bool>(listener_);
}

// ---- for Mesh -------------------------------------------------------------------------------------------

void Link::introduce(std::int32_t rank, const LinkAddress& address) {
  const std::lock_guard lock(mutex_);
  peer(rank).who = address.who();
  peer(rank).near = address.network == self_.network;
}

bool Link::connected(std::int32_t rank, Channel channel) {
  const std::lock_guard lock(mutex_);
  return rank == rank_ || peer(rank).stream(channel).state() != Stream::State::none;
}

void Link::adopt(std::int32_t rank, Channel channel, Fd socket) {
  const std::lock_guard lock(mutex_);
  Peer& added = peer(rank);
  if (channel == Channel::life) set_lifeline_options(socket);
  added.stream(channel).attach(std::move(socket));
  if (channel == Channel::data) return;
  added.state = Peer::State::here;  // so its death is seen while others are still being connected
  added.beat_waits = told_;
}

bool Link::all_connected() {
  const std::lock_guard lock(mutex_);
  return std::all_of(peers_.begin(), peers_.end(), [this](const Peer& each) {
    const bool none = each.life.state() == Stream::State::none || each.data.state() == Stream::State::none;
    return each.rank == rank_ || !none;
  });
}

void Link::stop_listening() {
  const std::lock_guard lock(mutex_);
  listener_.reset();  // whoever comes now is a stranger
}

void Link::finish_connecting() {
  const std::lock_guard lock(mutex_);
  ready_ = true;
  if (carrier_ == nullptr || host_ == nullptr || host_->log == nullptr) return;
  const std::string text = std::string(name_) + ": large messages go over " + carrier_->description();
  host_->log(host_->self, RINGATTN_LOG_INFO, text.c_str());
}

// The event, then two entries a rank, then the carrier; poll ignores those without a descriptor.
void Link::add_to_poll(std::vector<pollfd>& set) {
  const std::lock_guard lock(mutex_);
  set.push_back({event_.get(), POLLIN, 0});
  for (Peer& each : peers_) {
    for (const Channel channel : {Channel::life, Channel::data}) {
      const Stream& stream = each.stream(channel);
      const bool wanted = each.state == Peer::State::here && stream.open();
      const short events = stream.idle() ? POLLIN : POLLIN | POLLOUT;
      set.push_back({wanted ? stream.fd() : -1, events, 0});
    }
  }
  set.push_back({carrier_ != nullptr && ready_ ? carrier_->descriptor() : -1, POLLIN, 0});
}

ringattn_status Link::advance() {
  const std::lock_guard lock(mutex_);
  progress();
  return status();
}

// ---- posting --------------------------------------------------------------------------------------------

ringattn_status Link::post(const ringattn_transfer_v1* transfers, std::int32_t count) {
  const std::lock_guard lock(mutex_);
  if (status_ != RINGATTN_OK) return status_;
  if (!ready_ && ring_.world_size > 1) {
    end(RINGATTN_ERR_TRANSPORT, "a transfer was posted before the link was connected");
    return status_;
  }
  pool_.reserve(static_cast<std::size_t>(count));
  for (std::int32_t i = 0; i < count; ++i) take(read_struct(transfers, i));
  each_peer([this](Peer& each) { flush(each); });
  return RINGATTN_OK;
}

void Link::take(const ringattn_transfer_v1& posted) {
  Transfer& record = pool_.take();
  record.kind = posted.kind;
  record.peer = posted.peer;
  record.tag = posted.tag;
  record.data = static_cast<char*>(posted.data);
  record.bytes = posted.bytes;
  record.user = posted.user;
  // An earlier transfer of the same post may have ended the ring.
  if (status_ != RINGATTN_OK) return complete(record, status_);
  if (record.peer != rank_ && peer(record.peer).state != Peer::State::here) return complete_lost(record);
  if (record.kind == RINGATTN_TRANSFER_SEND) {
    take_send(record);
  } else {
    take_receive(record);
  }
}

void Link::take_send(Transfer& send) {
  if (send.peer == rank_) {
    Transfer* const receive = table_.take(RINGATTN_TRANSFER_RECEIVE, rank_, send.tag);
    return receive != nullptr ? match_own(send, *receive) : table_.insert(send);
  }
  Peer& to = peer(send.peer);
  send.state = Transfer::State::announced;
  send.eager = send.bytes <= kEagerBytes && to.eager_out < kEagerMessages;
  Frame frame{.type = send.eager ? FrameType::eager : FrameType::offer};
  frame.tag = send.tag;
  frame.bytes = send.bytes;
  frame.id = send.name();
  if (send.eager) {
    ++to.eager_out;
    to.data.push(frame, send.data, send.bytes);
  } else {
    to.data.push(frame);
  }
}

void Link::take_receive(Transfer& receive) {
  Transfer* const send = table_.take(RINGATTN_TRANSFER_SEND, receive.peer, receive.tag);
  if (send == nullptr) return table_.insert(receive);
  if (send->own) return match_own(*send, receive);
  match_announced(receive, *send);
}

void Link::match_own(Transfer& send, Transfer& receive) {
  if (!same_size(send, receive, rank_)) return;
  if (send.bytes > 0) std::memmove(receive.data, send.data, static_cast<std::size_t>(send.bytes));
  complete(send, RINGATTN_OK);
  complete(receive, RINGATTN_OK);
}

void Link::match_announced(Transfer& receive, Transfer& announced) {
  if (!same_size(announced, receive, announced.peer)) return;
  Peer& from = peer(announced.peer);
  receive.remote = announced.remote;
  if (announced.eager) {
    if (announced.bytes > 0) std::memcpy(receive.data, announced.data, announced.bytes);
    arrived(from, receive);
  } else {
    accept(from, receive, announced.remote);
  }
  forget(announced);
}

void Link::withdraw(std::uint64_t mask, std::uint64_t value) {
  const std::lock_guard lock(mutex_);
  if (status_ != RINGATTN_OK) return;
  for (Transfer& transfer : pool_) {
    if (!transfer.own || (transfer.tag & mask) != value) continue;
    if (transfer.state == Transfer::State::unmatched) {
      table_.remove(transfer);
      complete(transfer, RINGATTN_ERR_CANCELED);
    } else if (transfer.state == Transfer::State::announced && !transfer.withdrawing) {
      withdraw_send(transfer);
    } else if (transfer.state == Transfer::State::moving && transfer.kind == RINGATTN_TRANSFER_RECEIVE) {
      transfer.withdrawing = true;  // unless its offer has been given up, it ends as usual
    }
  }
  each_peer([this](Peer& each) { flush(each); });
}

// Only the receiver knows whether the message has met its receive, so it is asked.
void Link::withdraw_send(Transfer& send) {
  send.withdrawing = true;
  answers_due_ = Clock::now() + kAnswerLimit;
  Frame frame{.type = FrameType::cancel};
  frame.tag = send.tag;
  frame.id = send.name();
  peer(send.peer).data.push(frame);
}

// ---- moving on ------------------------------------------------------------------------------------------

ringattn_status Link::test(ringattn_completion_v1* out, std::int32_t capacity, std::int32_t& count) {
  const std::lock_guard lock(mutex_);
  progress();
  for (count = 0; count < capacity && !ended_.empty(); ++count) {
    Transfer& transfer = ended_.pop();
    ringattn_completion_v1 completion{};
    completion.status = transfer.status;
    completion.kind = transfer.kind;
    completion.peer = transfer.peer;
    completion.user = transfer.user;
    completion.bytes = transfer.bytes;
    if (transfer.kind == RINGATTN_TRANSFER_RECEIVE) completion.data = transfer.data;
    write_struct(out, count, completion);
    pool_.give_back(transfer);
  }
  if (count > 0 || !ended_.empty()) return RINGATTN_OK;
  loss_untold_ = false;
  return status();
}

bool Link::has_news() const { return !ended_.empty() || woken_ || loss_untold_ || status_ != RINGATTN_OK; }

void Link::wait(std::uint64_t timeout_ns) {
  const auto longest = static_cast<std::uint64_t>(kLongestWait.count());
  const auto deadline = Clock::now() + std::chrono::nanoseconds(std::min(timeout_ns, longest));
  while (true) {
    timespec left;
    {
      const std::lock_guard lock(mutex_);
      const bool busy = carrier_ != nullptr && ready_ && !carrier_->prepare_wait();
      left = has_news() || busy ? timespec{} : time_until(std::min(deadline, answers_due_));
    }
    poll_set_.clear();
    add_to_poll(poll_set_);
    ::ppoll(poll_set_.data(), poll_set_.size(), &left, nullptr);
    const std::lock_guard lock(mutex_);
    handle(poll_set_);
    if (!has_news() && Clock::now() < deadline) continue;
    woken_ = false;
    return;
  }
}

void Link::wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  kick();
}

// Ends the owner's poll; what it finds then is its own affair.
void Link::kick() {
  const std::uint64_t one = 1;
  // Fails only when the counter is full, and then the owner will wake anyway.
  if (::write(event_.get(), &one, sizeof one) < 0) return;
}

void Link::progress() {
  poll_set_.clear();
  poll_set_.push_back({event_.get(), POLLIN, 0});
  bool any = false;
  for (Peer& each : peers_) {
    for (const Channel channel : {Channel::life, Channel::data}) {
      const bool wanted = each.state == Peer::State::here && each.stream(channel).open();
      any |= wanted;
      poll_set_.push_back({wanted ? each.stream(channel).fd() : -1, POLLIN, 0});
    }
  }
  if (any) ::poll(poll_set_.data(), poll_set_.size(), 0);
  handle(poll_set_);
}

// Lifelines first: an abort or a death explains what is about to be found on the others.
void Link::handle(const std::vector<pollfd>& set) {
  std::uint64_t kicks = 0;
  if (set[0].revents != 0 && ::read(event_.get(), &kicks, sizeof kicks) < 0) kicks = 0;
  constexpr short kReadable = POLLIN | POLLERR | POLLHUP;
  for (std::size_t rank = 0; rank < peers_.size() && status_ == RINGATTN_OK; ++rank) {
    if ((set[1 + kChannels * rank].revents & kReadable) != 0) read_life(peers_[rank]);
  }
  for (std::size_t rank = 0; rank < peers_.size() && status_ == RINGATTN_OK; ++rank) {
    if ((set[2 + kChannels * rank].revents & kReadable) != 0) read_data(peers_[rank]);
  }
  carry_on();
  if (answers_due_ != Clock::time_point::max() && Clock::now() >= answers_due_) stop_asking();
  each_peer([this](Peer& each) { flush(each); });
  reap();
}

void Link::flush(Peer& peer) {
  peer.life.flush();
  if (peer.beat_waits) send_beat(peer);
  if (status_ != RINGATTN_OK) return;
  do {
    peer.data.flush();
    if (!peer.data.idle() || peer.sending.empty()) return;
    refill(peer);
  } while (peer.data.open());
}

// The next piece, only when nothing else is to be said: so answers do not wait behind a large message.
void Link::refill(Peer& peer) {
  Transfer& send = peer.sending.front();
  Frame frame{.type = FrameType::piece};
  frame.bytes = std::min(kPieceBytes, send.bytes - send.moved);
  frame.other = send.remote;
  frame.offset = send.moved;
  peer.data.push(frame, send.data + send.moved, frame.bytes);
  send.moved += frame.bytes;
  if (send.moved == send.bytes) peer.sending.pop();
}

// Descriptors of connections that have ended. The owner's thread only.
void Link::reap() {
  for (Peer& each : peers_) {
    for (const Channel channel : {Channel::life, Channel::data}) {
      Stream& stream = each.stream(channel);
      if (stream.state() == Stream::State::broken) stream.close();
    }
  }
}

// ---- the life line --------------------------------------------------------------------------------------

void Link::tell(const ringattn_beat_v1& beat) {
  const std::lock_guard lock(mutex_);
  const bool news = beat.entered != beat_.entered || beat.canceled != beat_.canceled;
  beat_ = beat;
  told_ = true;
  if (status_ != RINGATTN_OK) return;
  bool stuck = false;
  each_peer([&](Peer& each) {
    each.beat_waits = true;
    each.beat_is_news |= news;
    // It may have taken some that we have not heard of, as nobody has called test for a while.
    if (each.beats_under_way >= kBeatsUnderWay) read_life(each);
    if (each.state == Peer::State::here) flush(each);
    stuck |= !each.life.idle();
  });
  if (stuck) kick();
}

void Link::send_beat(Peer& peer) {
  const std::uint32_t most = peer.beat_is_news ? kNewsUnderWay : kBeatsUnderWay;
  if (!peer.life.idle() || peer.beats_under_way >= most || status_ != RINGATTN_OK) return;
  Frame frame{.type = FrameType::beat};
  frame.status = beat_.waits_for;
  frame.tag = beat_.counter;
  frame.bytes = beat_.entered;
  frame.id = beat_.canceled;
  frame.other = beat_.canceled_before;
  frame.offset = beat_.pulse;
  peer.beat_waits = peer.beat_is_news = false;
  ++peer.beats_under_way;
  peer.life.push(frame);
  peer.life.flush();
}

ringattn_beat_v1 Link::ask(std::int32_t rank) {
  const std::lock_guard lock(mutex_);
  return rank == rank_ ? beat_ : peer(rank).beat;
}

}  // namespace ringattn::tcp
