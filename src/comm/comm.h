// One rank's place in a ring: the owner of its link, its sequence of collective calls, and the watch over
// slow peers.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "ringattn/transport.h"

namespace ringattn::comm {

struct CommOptions {
  std::int64_t timeout_ms = 60'000;           // -1 = never
  std::int64_t arrival_timeout_ms = 600'000;  // -1 = never
};

// A transfer that somebody waits for. Lives until it is done.
struct Transfer {
  void (*on_done)(Transfer&) = nullptr;  // called inside poll
  void* owner = nullptr;
  std::int32_t index = 0;  // the owner's own
  std::int32_t peer = -1;
  bool pending = false;
  ringattn_status status = RINGATTN_OK;
  const void* data = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t loan = 0;
};

struct JoinRequest;
using Gather = std::function<Status(const std::string& own, std::vector<std::string>& all)>;

// What tells the links of one ring from all others.
struct LinkGroup {
  std::uint64_t id[2];
  std::string secret;  // "" = none
};

class Comm {
 public:
  static Status create_local(const Log& log, std::int32_t world, const std::string& transport,
                             const CommOptions& options, std::vector<std::unique_ptr<Comm>>& out);
  // One rank of a ring of processes; collective over `gather` (join.h).
  static Status join(const Log& log, const JoinRequest& request, const Gather& gather,
                     std::unique_ptr<Comm>& out);
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  std::int32_t rank() const { return rank_; }
  std::int32_t world() const { return world_; }
  bool lends() const { return (table_->caps & RINGATTN_TRANSPORT_LENDS) != 0; }
  std::uint64_t ring_id() const { return ring_id_; }  // equal on all ranks of one ring in this process
  const char* transport_name() const { return table_->name; }
  std::string name_of(std::int32_t rank) const;  // "rank 2 (host node7, pid 4711)"
  const CommOptions& options() const { return options_; }
  const Log& log() const { return log_; }

  // Every collective call takes the next number; enter tells the peers. From then on they may hear
  // cancel(number).
  std::uint64_t enter(const char* what);
  void leave_call();  // its end: from here on this rank is in no call
  std::uint64_t sequence() const { return sequence_; }
  void cancel(std::uint64_t sequence);         // any thread
  bool canceled_here(std::uint64_t sequence);  // by this rank itself
  // Has any rank canceled this call? Peers are asked at most once a millisecond, as that takes a look at
  // each of them; at once before a rest, from which a cancel that came before it does not wake.
  bool newly_canceled(std::uint64_t sequence, std::int32_t* rank, bool at_once = false);

  // Posts one transfer; `transfer` gets the answer from a later poll. A dead link answers in `transfer` at
  // once.
  void post(std::int32_t kind, std::int32_t peer, std::uint64_t tag, void* data, std::uint64_t bytes,
            Transfer& transfer);
  // Hands out what has completed. Returns how many.
  int poll();
  void give_back(Transfer& transfer);  // what a receive has borrowed, if anything
  void withdraw(std::uint64_t sequence);
  std::int64_t pending() const { return pending_; }

  void progressed() { counter_.fetch_add(1, std::memory_order_relaxed); }
  // Tells the peers where this rank stands, and that it lives: once a beat (a second, or less where the timeout is short),
  // and what is new at once when forced.
  void tell(std::int32_t waits_for, bool force);
  // While waiting: has the rank that this one finally depends on stopped for too long? Then the comm is
  // aborted with TIMEOUT.
  void watch(std::int32_t waits_for);
  void stop_watching() { watched_rank_ = -1; }
  // A rank of `candidates` that has not entered this call, else the first.
  std::int32_t whom_to_wait_for(const std::vector<std::int32_t>& candidates) const;
  bool entered(std::int32_t rank, std::uint64_t sequence) const;
  // Has it canceled a call so much later that its beats no longer tell of this one?
  bool canceled_long_after(std::int32_t rank, std::uint64_t sequence) const;

  void wait(std::uint64_t timeout_ns) { table_->wait(link_, timeout_ns); }
  void wake() { table_->wake(link_); }
  void abort(ringattn_status status, const std::string& reason) {
    table_->abort(link_, status, reason.c_str());
  }
  Status state() const;
  // After a poll found the link dead: why; every rank and every posted transfer hears of it, also where only one peer was lost.
  Status end_dead();
  bool dead() const {
    return link_status_.load(std::memory_order_acquire) != RINGATTN_OK;
  }  // as the last poll saw it

  std::atomic<bool> busy{false};  // a collective call is under way

 private:
  static constexpr std::size_t kMostAddressBytes = 4096;

  Comm() = default;
  Status open_link(const Log& log, const ringattn_transport_v1* table, std::int32_t rank, std::int32_t world,
                   const CommOptions& options, const LinkGroup& group);
  Status tell_address(std::string& out);
  Status connect_link(const std::vector<std::string>& addresses);
  static Status connect_all(std::vector<std::unique_ptr<Comm>>& comms);
  ringattn_beat_v1 ask(std::int32_t rank) const;
  std::int32_t finally_waits_for(std::int32_t first, std::uint64_t* counter, bool* arrived) const;
  void take_pulses(std::uint64_t now);
  std::int32_t silent_one(std::int32_t first, std::uint64_t silence_ns) const;
  std::string timeout_reason(std::int32_t rank, bool absent, std::int32_t waits_for,
                             std::int64_t limit_ms) const;

  const ringattn_transport_v1* table_ = nullptr;
  void* link_ = nullptr;
  ringattn_host_v1 host_{};
  Log log_;
  std::int32_t rank_ = 0, world_ = 1;
  std::vector<std::string> who_;  // by rank, where they are processes
  std::uint64_t ring_id_ = 0;
  CommOptions options_;
  std::uint64_t sequence_ = 0;
  const char* what_ = "";  // the collective call that is under way
  std::int64_t pending_ = 0;
  std::atomic<std::uint64_t> counter_{0};
  std::atomic<ringattn_status> link_status_{RINGATTN_OK};

  std::mutex beat_mutex_;  // cancel comes from any thread
  ringattn_beat_v1 beat_{};
  std::uint64_t told_ns_ = 0, told_counter_ = 0, asked_ns_ = 0, pulse_ = 0;

  std::int32_t watched_rank_ = -1;  // who was found to be waited for, how far it was, and since when
  std::uint64_t watched_counter_ = 0, watched_since_ns_ = 0, watched_at_ns_ = 0;
  bool watched_arrived_ = false;
  struct Pulse {
    std::uint64_t value = 0, since_ns = 0;
  };
  std::vector<Pulse> pulses_;  // by rank, as last seen while watching, and since when
};

// Tags: sequence number in the upper 40 bits, then what, then which.
enum class TagKind : std::uint64_t { digest = 1, record_size = 2, record = 3, block = 4, gradient = 5 };
inline std::uint64_t tag_of(std::uint64_t sequence, TagKind kind, std::uint64_t which) {
  return (sequence << 24) | (static_cast<std::uint64_t>(kind) << 16) | which;
}
inline constexpr std::uint64_t kSequenceMask = ~std::uint64_t{0xffffff};

}  // namespace ringattn::comm
