#include "ring/tile_queue.h"

#include <algorithm>

namespace ringattn::ring {

void TileQueue::reserve(std::int64_t most_tiles, std::int32_t most_positions) {
  const std::size_t positions = static_cast<std::size_t>(most_positions);
  next_.resize(static_cast<std::size_t>(most_tiles));
  at_.resize(static_cast<std::size_t>(most_tiles));
  blocked_.resize(static_cast<std::size_t>(most_tiles));
  head_.resize(positions);
  waiting_.resize(positions);
  left_.resize(positions);
  open_.resize(positions);
  finished_.reserve(positions);
}

void TileQueue::start(std::int64_t tiles, std::int32_t positions, bool stay, std::int64_t chain) {
  const std::lock_guard lock(mutex_);
  tiles_ = tiles;
  chain_ = chain;
  positions_ = positions;
  stay_ = stay;
  closed_ = false;
  lowest_ = positions;
  finished_.clear();
  for (std::size_t p = 0; p < static_cast<std::size_t>(positions); ++p) {
    head_[p] = -1;
    waiting_[p] = 0;
    left_[p] = tiles;
    open_[p] = 0;
  }
  ready_ = 0;
  running_ = 0;
  // Lists give back the last pushed first: with a causal mask that is the tile with the most work.
  for (std::int64_t tile = 0; tile < tiles; ++tile) push(tile, 0);
}

bool TileQueue::behind(std::int64_t tile, std::int32_t position) const {
  return chain_ > 0 && tile % chain_ != 0 && at_[static_cast<std::size_t>(tile - 1)] <= position;
}

void TileQueue::push(std::int64_t tile, std::int32_t position) {
  const std::size_t p = static_cast<std::size_t>(position), t = static_cast<std::size_t>(tile);
  at_[t] = position;
  blocked_[t] = behind(tile, position) ? 1 : 0;
  if (blocked_[t] != 0) return;
  next_[t] = head_[p];
  head_[p] = tile;
  ++waiting_[p];
  if (open_[p] != 0 && !closed_) {
    ready_.fetch_add(1, std::memory_order_release);
    lowest_ = std::min(lowest_, position);
  }
}

void TileQueue::open(std::int32_t position) {
  const std::lock_guard lock(mutex_);
  const std::size_t p = static_cast<std::size_t>(position);
  if (open_[p] != 0) return;
  open_[p] = 1;
  if (closed_) return;
  ready_.fetch_add(waiting_[p], std::memory_order_release);
  if (waiting_[p] > 0) lowest_ = std::min(lowest_, position);
}

void TileQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  ready_ = 0;
}

bool TileQueue::draw(Task& task) {
  if (ready() == 0) return false;
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  for (; lowest_ < positions_; ++lowest_) {
    const std::size_t p = static_cast<std::size_t>(lowest_);
    if (open_[p] == 0 || head_[p] < 0) continue;
    task = {head_[p], lowest_, -1};
    head_[p] = next_[static_cast<std::size_t>(task.tile)];
    --waiting_[p];
    ready_.fetch_sub(1, std::memory_order_release);
    running_.fetch_add(1, std::memory_order_release);
    return true;
  }
  return false;
}

bool TileQueue::finish(Task& task) {
  const std::lock_guard lock(mutex_);
  const std::size_t p = static_cast<std::size_t>(task.position);
  if (--left_[p] == 0) finished_.push_back(task.position);
  const std::int32_t next = task.position + 1;
  const std::size_t t = static_cast<std::size_t>(task.tile);
  at_[t] = next;
  if (chain_ > 0 && (task.tile + 1) % chain_ != 0 && blocked_[t + 1] != 0) push(task.tile + 1, at_[t + 1]);
  if (next < positions_) {
    if (stay_ && !closed_ && open_[static_cast<std::size_t>(next)] != 0 && !behind(task.tile, next)) {
      task.position = next;
      return true;
    }
    push(task.tile, next);
  }
  running_.fetch_sub(1, std::memory_order_release);
  return false;
}

void TileQueue::put_back(const Task& task) {
  const std::lock_guard lock(mutex_);
  push(task.tile, task.position);
  running_.fetch_sub(1, std::memory_order_release);
}

bool TileQueue::all_passed() {
  const std::lock_guard lock(mutex_);
  return positions_ == 0 || left_[static_cast<std::size_t>(positions_ - 1)] == 0;
}

bool TileQueue::take_finished(std::int32_t* position) {
  const std::lock_guard lock(mutex_);
  if (finished_.empty()) return false;
  *position = finished_.back();
  finished_.pop_back();
  return true;
}

}  // namespace ringattn::ring
