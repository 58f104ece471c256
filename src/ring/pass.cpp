#include "ring/pass.h"

#include <algorithm>

#include "base/clock.h"
#include "base/denormals.h"
#include "ring/engine.h"

namespace ringattn::ring {
namespace {

// A poll costs microseconds of system calls. What has not come for a while may be noticed a little later: by 1/32 of that
// while, and not so late that a fast link fills the buffers of its sockets. With no transfer under way there is only the
// word of a peer to wait for (it has canceled, or is lost).
constexpr std::uint64_t kPollEveryNs = 200'000, kPollAtLeastEveryNs = 500'000,
                        kListenAtLeastEveryNs = 4'000'000;
constexpr std::uint64_t kPatience = 32;
// Below this much work a parallel loop costs more than it saves (starting one takes some microseconds).
constexpr double kInlineFlops = 2e6;

}  // namespace

bool Pass::run() {
  poll_all(false);
  double flops = 0;
  if (ready(&flops) == 0) return false;
  bodies_ = static_cast<std::int32_t>(std::min<std::int64_t>(pool_.max_workers(), width()));
  if (flops < kInlineFlops) bodies_ = 1;
  leave_ = false;
  inside_ = bodies_;
  if (bodies_ == 1) {
    work(0, 0);
  } else {
    pool_.run(bodies_, body, this);
  }
  return true;
}

void Pass::body(void* arg, std::int32_t i, std::int32_t worker) { static_cast<Pass*>(arg)->work(i, worker); }

void Pass::work(std::int32_t start, std::int32_t worker) {
  const DenormalsAreZero denormals;
  Task task;
  bool left = false;
  while (!left) {
    Execution* execution = draw(start, task);
    if (execution == nullptr) break;
    for (bool more = true; more;) {
      more = execution->run(task, worker);
      poll_between_tiles(more);
      left = one_tile_ || leave_.load(std::memory_order_relaxed);
      if (more && left) {
        execution->put_back(task);
        break;
      }
    }
  }
  inside_.fetch_sub(1);
}

Execution* Pass::draw(std::int32_t start, Task& task) {
  // Workers begin at different executions, so that ranks driven together go forward together.
  std::int32_t skipped = 0;
  Execution* early = nullptr;
  for (Request* r = adopted_; r != nullptr; r = r->next_adopted()) {
    for (Execution* part = r->parts(); part != nullptr; part = part->next_part, ++skipped) {
      if (skipped < start) {
        if (early == nullptr && part->ready() > 0) early = part;
        continue;
      }
      if (part->draw(task)) return part;
    }
  }
  if (early != nullptr && early->draw(task)) return early;
  if (early == nullptr) return nullptr;
  for (Request* r = adopted_; r != nullptr; r = r->next_adopted()) {
    for (Execution* part = r->parts(); part != nullptr; part = part->next_part) {
      if (part->draw(task)) return part;
    }
  }
  return nullptr;
}

void Pass::poll_all(bool between_tiles) {
  const std::int64_t before = state();
  for (Request* r = adopted_; r != nullptr; r = r->next_adopted()) {
    for (Execution* part = r->parts(); part != nullptr; part = part->next_part) part->poll(between_tiles);
  }
  const std::uint64_t now = now_ns();
  if (news_ns_ == 0 || state() != before) news_ns_ = now;
  const std::uint64_t most = pending() > 0 ? kPollAtLeastEveryNs : kListenAtLeastEveryNs;
  const std::uint64_t rest = std::clamp((now - news_ns_) / kPatience, kPollEveryNs, most);
  poll_next_ns_.store(now + rest, std::memory_order_relaxed);
}

std::int64_t Pass::pending() const {
  std::int64_t total = 0;
  for (Request* r = adopted_; r != nullptr; r = r->next_adopted()) {
    for (Execution* part = r->parts(); part != nullptr; part = part->next_part)
      total += part->comm().pending();
  }
  return total;
}

// What a poll that finds something changes: transfers under way, or what is ready.
std::int64_t Pass::state() const { return ready(nullptr) * 4096 + pending(); }

void Pass::poll_between_tiles(bool holds_a_tile) {
  bool agreeing = false;
  for (Request* r = adopted_; r != nullptr && !agreeing; r = r->next_adopted()) {
    for (Execution* part = r->parts(); part != nullptr; part = part->next_part)
      agreeing = agreeing || part->agreeing();
  }
  const std::uint64_t now = now_ns();
  if (deadline_ns_ != 0 && now >= deadline_ns_) leave_.store(true, std::memory_order_relaxed);
  if (!agreeing && now < poll_next_ns_.load(std::memory_order_relaxed)) return;
  std::unique_lock lock(poll_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  poll_all(true);
  if (target_ != nullptr && target_->ended()) leave_.store(true, std::memory_order_relaxed);
  // This worker goes on with its tile, or draws one of the ready ones.
  if (inside_.load(std::memory_order_relaxed) < bodies_ && ready(nullptr) > (holds_a_tile ? 0 : 1))
    leave_.store(true, std::memory_order_relaxed);
}

std::int64_t Pass::width() const {
  std::int64_t total = 0;
  for (Request* r = adopted_; r != nullptr; r = r->next_adopted()) {
    for (Execution* part = r->parts(); part != nullptr; part = part->next_part) total += part->width();
  }
  return total;
}

std::int64_t Pass::ready(double* flops) const {
  std::int64_t total = 0;
  for (Request* r = adopted_; r != nullptr; r = r->next_adopted()) {
    for (Execution* part = r->parts(); part != nullptr; part = part->next_part) {
      total += part->ready();
      if (flops != nullptr) *flops += static_cast<double>(part->width()) * part->task_flops();
    }
  }
  return total;
}

}  // namespace ringattn::ring
