#include "transports/local/group.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>

#include "transports/local/structs.h"

namespace ringattn::local {
namespace {

// Records made when a rank opens: enough for a ring's step and a plan's exchange, so that a warm call
// allocates nothing however the threads happen to run. Very large worlds get fewer each; they grow on demand.
std::size_t initial_records(std::int32_t world_size) {
  const std::int32_t wanted = 64 + 2 * std::min(world_size, 64);
  return static_cast<std::size_t>(std::clamp(65536 / world_size, 8, wanted));
}

// What the mutex guards takes less than a microsecond, and to sleep for it several: its owner is most likely about to go.
constexpr int kTries = 100;

std::unique_lock<std::mutex> lock_soon(std::mutex& mutex) {
  for (int i = 0; i < kTries; ++i) {
    if (mutex.try_lock()) return {mutex, std::adopt_lock};
  }
  return std::unique_lock(mutex);
}

// Longer waits end early, which the contract allows; the deadline must not overflow.
constexpr std::chrono::nanoseconds kLongestWait = std::chrono::hours(24);

}  // namespace

Group::Group(std::int32_t world_size)
    : world_size_(world_size),
      links_(std::make_unique<Link[]>(static_cast<std::size_t>(world_size))),
      unmatched_(static_cast<std::size_t>(world_size)) {
  for (std::int32_t rank = 0; rank < world_size; ++rank) {
    Link& link = link_of(rank);
    link.group = this;
    link.rank = rank;
    link.beat.waits_for = -1;
  }
}

Link* Group::enter(std::int32_t rank, ringattn_status& status, char* error, std::size_t capacity) {
  const auto lock = lock_soon(mutex_);
  Link& link = link_of(rank);
  status = RINGATTN_ERR_INVALID_ARGUMENT;
  if (link.state == Link::State::open) {
    std::snprintf(error, capacity, "local: rank %d of this ring is open already", rank);
    return nullptr;
  }
  // Peers may still be told of the first link's end; a second one under the same name would confuse them.
  if (link.state == Link::State::closed) {
    std::snprintf(error, capacity, "local: rank %d has left this ring, which other ranks still hold", rank);
    return nullptr;
  }
  if (status_ != RINGATTN_OK) {
    status = status_;
    std::snprintf(error, capacity, "local: this ring has ended: %s", reason_);
    return nullptr;
  }
  pool_.grow(initial_records(world_size_));
  link.state = Link::State::open;
  status = RINGATTN_OK;
  return &link;
}

void Group::leave(Link& link) {
  const auto lock = lock_soon(mutex_);
  link.state = Link::State::closed;
  for (Transfer& transfer : pool_) {
    if (transfer.state == Transfer::State::free) continue;
    if (transfer.owner == link.rank) {
      discard(transfer, link.rank);
    } else if (transfer.peer == link.rank) {
      lose_peer(transfer);
    }
  }
  link.ended.clear();
}

// Drops a transfer of the rank that leaves.
void Group::discard(Transfer& transfer, std::int32_t leaving) {
  if (transfer.state == Transfer::State::unmatched) unmatched_.remove(transfer);
  if (transfer.state == Transfer::State::lent && transfer.peer != leaving) {
    if (transfer.partner == nullptr) {  // the borrower reads it: the record stays until its release
      transfer.owner = -1;
      return;
    }
    Transfer& receive = *transfer.partner;  // nobody has seen the memory yet, and nobody shall
    receive.data = nullptr;
    receive.partner = nullptr;
    receive.status = RINGATTN_ERR_PEER_LOST;
    note_lost(receive);
  }
  pool_.give_back(transfer);
}

// Ends another rank's transfer with the rank that leaves, unless that has ended or been read already.
void Group::lose_peer(Transfer& transfer) {
  if (transfer.state == Transfer::State::unmatched) {
    unmatched_.remove(transfer);
    complete_lost(transfer);
  } else if (transfer.state == Transfer::State::lent) {
    if (transfer.owner < 0) {
      pool_.give_back(transfer);
    } else if (transfer.partner == nullptr) {
      complete(transfer, status_);  // a loan that had been taken is returned
    } else {
      complete_lost(transfer);
    }
  }
}

ringattn_status Group::post(Link& link, const ringattn_transfer_v1* transfers, std::int32_t count) {
  const auto lock = lock_soon(mutex_);
  if (status_ != RINGATTN_OK) return status_;
  pool_.reserve(static_cast<std::size_t>(count));
  for (std::int32_t i = 0; i < count; ++i) take(link, read_struct(transfers, i));
  return RINGATTN_OK;
}

void Group::take(Link& link, const ringattn_transfer_v1& transfer) {
  Transfer& record = pool_.take();
  record.kind = transfer.kind;
  record.owner = link.rank;
  record.peer = transfer.peer;
  record.tag = transfer.tag;
  record.data = transfer.kind == RINGATTN_TRANSFER_SEND ? transfer.data : nullptr;
  record.bytes = transfer.bytes;
  record.user = transfer.user;
  record.partner = nullptr;

  // An earlier transfer of the same post may have ended the group.
  if (status_ != RINGATTN_OK) return complete(record, status_);
  if (link_of(record.peer).state == Link::State::closed) return complete_lost(record);
  Transfer* other = unmatched_.take_counterpart(record);
  if (other == nullptr) {
    record.state = Transfer::State::unmatched;
    unmatched_.insert(record);
  } else if (record.kind == RINGATTN_TRANSFER_SEND) {
    match(record, *other);
  } else {
    match(*other, record);
  }
}

void Group::match(Transfer& send, Transfer& receive) {
  if (send.bytes != receive.bytes) {
    // The ranks disagree about the schedule: nothing that follows can be trusted.
    char reason[sizeof reason_];
    std::snprintf(reason, sizeof reason,
                  "size mismatch: rank %d sends %" PRIu64 " bytes to rank %d, which expects %" PRIu64
                  " bytes (tag 0x%" PRIx64 ")",
                  send.owner, send.bytes, receive.owner, receive.bytes, send.tag);
    complete(send, RINGATTN_ERR_TRANSPORT);
    complete(receive, RINGATTN_ERR_TRANSPORT);
    return end(RINGATTN_ERR_TRANSPORT, reason);
  }
  send.state = Transfer::State::lent;
  send.partner = &receive;
  receive.partner = &send;
  receive.data = send.data;
  complete(receive, RINGATTN_OK);
}

void Group::complete(Transfer& transfer, ringattn_status status) {
  Link& link = link_of(transfer.owner);
  transfer.status = status;
  transfer.state = Transfer::State::ended;
  link.ended.push(transfer);
  link.ready.store(true, std::memory_order_release);
  link.wakeup.notify_one();
}

// The first loss of a link is what its state() tells.
void Group::note_lost(const Transfer& transfer) {
  Link& link = link_of(transfer.owner);
  if (link.lost_peer >= 0) return;
  link.lost_peer = transfer.peer;
  link.lost_tag = transfer.tag;
}

void Group::complete_lost(Transfer& transfer) {
  note_lost(transfer);
  complete(transfer, RINGATTN_ERR_PEER_LOST);
}

// Takes a lent send back whose receive has not been handed out: nobody has seen the memory.
void Group::revoke(Transfer& send, ringattn_status status) {
  Transfer& receive = *send.partner;
  receive.status = status;
  receive.data = nullptr;
  receive.partner = nullptr;
  send.partner = nullptr;
  complete(send, status);
}

ringattn_status Group::test(Link& link, ringattn_completion_v1* out, std::int32_t capacity,
                            std::int32_t& count) {
  count = 0;
  if (!link.ready.load(std::memory_order_acquire)) return RINGATTN_OK;
  const auto lock = lock_soon(mutex_);
  while (count < capacity && !link.ended.empty()) {
    Transfer& transfer = link.ended.pop();
    ringattn_completion_v1 completion{};
    completion.status = transfer.status;
    completion.kind = transfer.kind;
    completion.peer = transfer.peer;
    completion.user = transfer.user;
    completion.bytes = transfer.bytes;
    if (transfer.kind == RINGATTN_TRANSFER_RECEIVE) completion.data = transfer.data;
    if (transfer.kind == RINGATTN_TRANSFER_RECEIVE && transfer.partner != nullptr) {
      completion.loan = TransferPool::loan_of(*transfer.partner);
      transfer.partner->partner = nullptr;  // from here on only the release can end the send
    }
    write_struct(out, count++, completion);
    pool_.give_back(transfer);
  }
  const ringattn_status status = status_of(link);
  link.ready.store(!link.ended.empty() || status != RINGATTN_OK, std::memory_order_relaxed);
  // Also while a send is still lent: two ranks that hold each other's memory learn from this that they should
  // let go.
  return count == 0 ? status : RINGATTN_OK;
}

void Group::release(Link& link, std::uint64_t loan) {
  const auto lock = lock_soon(mutex_);
  Transfer* send = pool_.find_loan(loan);
  if (send == nullptr || send->peer != link.rank || send->partner != nullptr) return;
  if (send->owner < 0) {
    pool_.give_back(*send);
  } else {
    complete(*send, status_);
  }
}

void Group::withdraw(Link& link, std::uint64_t mask, std::uint64_t value) {
  const auto lock = lock_soon(mutex_);
  for (Transfer& transfer : pool_) {
    if (transfer.state != Transfer::State::unmatched || transfer.owner != link.rank) continue;
    if ((transfer.tag & mask) != value) continue;
    unmatched_.remove(transfer);
    complete(transfer, RINGATTN_ERR_CANCELED);
  }
}

void Group::wait(Link& link, std::uint64_t timeout_ns) {
  const auto longest = static_cast<std::uint64_t>(kLongestWait.count());
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::nanoseconds(std::min(timeout_ns, longest));
  auto lock = lock_soon(mutex_);
  link.wakeup.wait_until(lock, deadline,
                         [&] { return !link.ended.empty() || link.woken || status_ != RINGATTN_OK; });
  link.woken = false;
}

void Group::wake(Link& link) {
  const auto lock = lock_soon(mutex_);
  link.woken = true;
  link.wakeup.notify_one();
}

void Group::tell(Link& link, const ringattn_beat_v1& beat) {
  const auto lock = lock_soon(mutex_);
  const bool newer_cancel = beat.canceled > link.beat.canceled;
  link.beat = beat;
  if (!newer_cancel) return;  // progress alone wakes nobody
  for (std::int32_t rank = 0; rank < world_size_; ++rank) {
    if (rank == link.rank) continue;
    link_of(rank).woken = true;
    link_of(rank).wakeup.notify_one();
  }
}

ringattn_beat_v1 Group::ask(std::int32_t rank) {
  const auto lock = lock_soon(mutex_);
  return link_of(rank).beat;
}

void Group::abort(ringattn_status status, const char* reason) {
  const auto lock = lock_soon(mutex_);
  end(status, reason);
}

void Group::end(ringattn_status status, const char* reason) {
  if (status_ != RINGATTN_OK) return;
  status_ = status;
  std::snprintf(reason_, sizeof reason_, "%s", reason);
  unmatched_.clear();
  for (Transfer& transfer : pool_) {
    if (transfer.state == Transfer::State::unmatched) {
      complete(transfer, status);
    } else if (transfer.state == Transfer::State::lent && transfer.partner != nullptr) {
      revoke(transfer, status);
    }
  }
  for (std::int32_t rank = 0; rank < world_size_; ++rank) {
    link_of(rank).ready.store(true, std::memory_order_release);
    link_of(rank).wakeup.notify_one();
  }
}

// A link that has lost a peer says so, and still serves the others.
ringattn_status Group::status_of(const Link& link) const {
  if (status_ != RINGATTN_OK) return status_;
  return link.lost_peer >= 0 ? RINGATTN_ERR_PEER_LOST : RINGATTN_OK;
}

ringattn_status Group::state(Link& link, char* reason, std::uint64_t capacity) {
  const auto lock = lock_soon(mutex_);
  const ringattn_status status = status_of(link);
  if (reason != nullptr && status != status_) {
    std::snprintf(reason, capacity,
                  "rank %d closed its link while rank %d had a transfer with it (tag 0x%" PRIx64 ")",
                  link.lost_peer, link.rank, link.lost_tag);
  } else if (reason != nullptr) {
    std::snprintf(reason, capacity, "%s", reason_);
  }
  return status;
}

}  // namespace ringattn::local
