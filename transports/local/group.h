// One in-process ring: what each rank has posted, who has lent what to whom, and how it ended.
//
// A send that meets its receive is *lent*: the receive ends at once and shows the sender's memory; the send
// ends when the receiver has released it. Everything is under one mutex; each link has a condition variable
// of its own, and an atomic flag that lets test() on an idle link return without the mutex.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "ringattn/transport.h"
#include "transports/local/transfers.h"

namespace ringattn::local {

class Group;

// One rank's end. It exists from the group's first moment, so that others can post to a rank that has yet to
// open.
struct Link {
  Group* group = nullptr;
  std::int32_t rank = 0;

  std::atomic<bool> ready{false};  // test() has something to say: a completion, or the end of the group

  // Under the group's mutex from here on.
  enum class State : std::uint8_t { expected, open, closed };
  State state = State::expected;
  bool woken = false;  // by wake() or by a newer cancel; ends one wait()
  std::condition_variable wakeup;
  TransferQueue ended;
  ringattn_beat_v1 beat{};
  std::int32_t lost_peer = -1;  // the first peer that closed while this rank had a transfer with it
  std::uint64_t lost_tag = 0;
};

class Group {
 public:
  explicit Group(std::int32_t world_size);

  std::int32_t world_size() const { return world_size_; }

  // Marks the rank's link open. On failure returns nullptr, with the reason in `error`.
  Link* enter(std::int32_t rank, ringattn_status& status, char* error, std::size_t capacity);
  void leave(Link& link);

  // Takes all `count` transfers, or throws std::bad_alloc before it has taken any.
  ringattn_status post(Link& link, const ringattn_transfer_v1* transfers, std::int32_t count);
  ringattn_status test(Link& link, ringattn_completion_v1* out, std::int32_t capacity, std::int32_t& count);
  void release(Link& link, std::uint64_t loan);
  void withdraw(Link& link, std::uint64_t mask, std::uint64_t value);
  void wait(Link& link, std::uint64_t timeout_ns);
  void wake(Link& link);
  void tell(Link& link, const ringattn_beat_v1& beat);
  ringattn_beat_v1 ask(std::int32_t rank);
  void abort(ringattn_status status, const char* reason);
  ringattn_status state(Link& link, char* reason, std::uint64_t capacity);

 private:
  // All of these expect the mutex to be held.
  void take(Link& link, const ringattn_transfer_v1& transfer);
  void match(Transfer& send, Transfer& receive);
  void complete(Transfer& transfer, ringattn_status status);
  void note_lost(const Transfer& transfer);
  void complete_lost(Transfer& transfer);
  void revoke(Transfer& send, ringattn_status status);
  void discard(Transfer& transfer, std::int32_t leaving);
  void lose_peer(Transfer& transfer);
  void end(ringattn_status status, const char* reason);
  ringattn_status status_of(const Link& link) const;
  Link& link_of(std::int32_t rank) { return links_[static_cast<std::size_t>(rank)]; }

  const std::int32_t world_size_;
  std::mutex mutex_;
  std::unique_ptr<Link[]> links_;
  TransferPool pool_;
  MatchTable unmatched_;
  ringattn_status status_ = RINGATTN_OK;
  char reason_[512] = "";
};

}  // namespace ringattn::local
