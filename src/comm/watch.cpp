// Slow is not hung: a wait ends with TIMEOUT only when the rank that it finally depends on has not moved
// for the whole timeout, however long the run takes. Who waits for whom, and how far everybody is, comes by
// the life line (transport.h: tell, ask).
#include <algorithm>

#include "base/clock.h"
#include "comm/comm.h"

namespace ringattn::comm {
namespace {

constexpr std::uint64_t kMillisecond = 1'000'000;

std::uint64_t beat_ns(const CommOptions& options) {
  // A quarter of the shorter limit, so that a rank that computes is never taken for a hung one; at most once a second.
  std::int64_t beat_ms = 1000;
  for (const std::int64_t limit_ms : {options.timeout_ms, options.arrival_timeout_ms}) {
    if (limit_ms >= 0) beat_ms = std::min(beat_ms, limit_ms / 4 + 1);
  }
  return static_cast<std::uint64_t>(beat_ms) * kMillisecond;
}

}  // namespace

void Comm::tell(std::int32_t waits_for, bool force) {
  const std::uint64_t now = now_ns();
  const std::lock_guard lock(beat_mutex_);
  const std::uint64_t counter = counter_.load(std::memory_order_relaxed);
  const bool changed = counter != told_counter_ || waits_for != beat_.waits_for;
  if (!(changed && force) && now - told_ns_ < beat_ns(options_)) return;
  told_ns_ = now;
  told_counter_ = counter;
  beat_.counter = counter;
  beat_.waits_for = waits_for;
  beat_.pulse = ++pulse_;
  table_->tell(link_, &beat_);
}

std::int32_t Comm::finally_waits_for(std::int32_t first, std::uint64_t* counter, bool* arrived) const {
  // Follow the chain of waits. A cycle proves nothing: a rank tells one of those that it waits for, and another may be the one
  // that matters. Then every rank's counter counts, so that any movement anywhere shows.
  std::int32_t rank = first, missing = -1;
  for (std::int32_t hops = 0; hops <= world_; ++hops) {
    const ringattn_beat_v1 beat = ask(rank);
    *arrived = beat.entered >= sequence_;
    if (!*arrived && missing < 0) missing = rank;
    // One that is still in an earlier call may wait for somebody there; for this rank, which has left it, only in a
    // beat that is out of date.
    const bool waits = beat.waits_for >= 0 && beat.waits_for < world_;
    if (!waits) {
      *counter = *arrived ? beat.counter : beat.entered;
      return rank;
    }
    if (beat.waits_for == rank_) break;
    rank = beat.waits_for;
  }
  *arrived = missing < 0;
  *counter = 0;
  for (std::int32_t each = 0; each < world_; ++each) *counter += ask(each).counter;
  return missing < 0 ? first : missing;
}

void Comm::take_pulses(std::uint64_t now) {
  for (std::int32_t rank = 0; rank < world_; ++rank) {
    Pulse& pulse = pulses_[static_cast<std::size_t>(rank)];
    const std::uint64_t value = ask(rank).pulse;
    if (value != pulse.value || watched_rank_ < 0) pulse = {value, now};
  }
}

// Whoever is in a call and has been silent the longest, of those that are waited for, else of all: what it told last, that it
// waits for another, is out of date. Ranks that live tell so each beat. -1 = nobody.
std::int32_t Comm::silent_one(std::int32_t first, std::uint64_t silence_ns) const {
  const std::uint64_t now = now_ns();
  std::int32_t found = -1;
  std::uint64_t longest = silence_ns;
  const auto look_at = [&](std::int32_t rank) {
    const Pulse& pulse = pulses_[static_cast<std::size_t>(rank)];
    if (rank == rank_ || pulse.value == 0 || now - pulse.since_ns < longest) return;
    longest = now - pulse.since_ns;
    found = rank;
  };
  std::int32_t rank = first;
  for (std::int32_t hops = 0; hops <= world_ && rank >= 0 && rank < world_ && rank != rank_; ++hops) {
    look_at(rank);
    rank = ask(rank).waits_for;
  }
  for (std::int32_t each = 0; found < 0 && each < world_; ++each) look_at(each);
  return found;
}

std::string Comm::timeout_reason(std::int32_t rank, bool absent, std::int32_t waits_for,
                                 std::int64_t limit_ms) const {
  const std::string limit = std::to_string(limit_ms) + " ms";
  if (absent) {
    return name_of(rank) + " did not enter collective call " + std::to_string(sequence_) + " (" + what_ +
           ") within " + limit + " (arrival_timeout_ms)";
  }
  return name_of(rank) + " made no progress for " + limit +
         (watched_arrived_ ? " (timeout_ms) in " : " (arrival_timeout_ms) in ") + what_ + ", while rank " +
         std::to_string(rank_) + " waited for rank " + std::to_string(waits_for);
}

void Comm::watch(std::int32_t waits_for) {
  const std::uint64_t now = now_ns();
  if (watched_rank_ >= 0 && now - watched_at_ns_ < beat_ns(options_) / 4) return;
  watched_at_ns_ = now;
  take_pulses(now);
  std::uint64_t counter = 0;
  bool arrived = false;
  const std::int32_t rank = finally_waits_for(waits_for, &counter, &arrived);
  if (rank != watched_rank_ || counter != watched_counter_ || arrived != watched_arrived_) {
    watched_rank_ = rank;
    watched_counter_ = counter;
    watched_arrived_ = arrived;
    watched_since_ns_ = now;
    return;
  }
  const std::int64_t limit_ms = arrived ? options_.timeout_ms : options_.arrival_timeout_ms;
  if (limit_ms < 0 || now - watched_since_ns_ < static_cast<std::uint64_t>(limit_ms) * kMillisecond) return;
  // Whoever has not come, but lives in an earlier call, is held up there. Two beats: one may be just about to be told.
  const std::uint64_t silence = 2 * beat_ns(options_);
  const Pulse& pulse = pulses_[static_cast<std::size_t>(rank)];
  const bool held_up = !arrived && pulse.value != 0 && now - pulse.since_ns < silence;
  const std::int32_t silent = arrived || held_up ? silent_one(waits_for, silence) : -1;
  abort(RINGATTN_ERR_TIMEOUT,
        timeout_reason(silent < 0 ? rank : silent, !arrived && silent < 0, waits_for, limit_ms));
}

std::string Comm::name_of(std::int32_t rank) const {
  std::string name = "rank " + std::to_string(rank);
  if (!who_.empty()) name += " (" + who_[static_cast<std::size_t>(rank)] + ")";
  return name;
}

std::int32_t Comm::whom_to_wait_for(const std::vector<std::int32_t>& candidates) const {
  for (const std::int32_t rank : candidates) {
    if (!entered(rank, sequence_)) return rank;
  }
  return candidates.empty() ? -1 : candidates.front();
}

}  // namespace ringattn::comm
