#include "ring/move_queue.h"

namespace ringattn::ring {

void MoveQueue::reserve(std::int32_t most_operations) {
  open_.reserve(static_cast<std::size_t>(most_operations));
  finished_.reserve(static_cast<std::size_t>(most_operations));
}

void MoveQueue::start() {
  const std::lock_guard lock(mutex_);
  open_.clear();
  finished_.clear();
  ready_ = 0;
  running_ = 0;
}

void MoveQueue::open(std::int32_t operation, std::int64_t parts) {
  const std::lock_guard lock(mutex_);
  open_.push_back({operation, 0, parts, parts});
  ready_.fetch_add(parts, std::memory_order_release);
}

void MoveQueue::close() {
  const std::lock_guard lock(mutex_);
  for (Open& open : open_) open.next = open.parts;
  ready_ = 0;
}

bool MoveQueue::draw(Task& task) {
  if (ready() == 0) return false;
  const std::lock_guard lock(mutex_);
  for (Open& open : open_) {
    if (open.next == open.parts) continue;
    task = {open.next++, 0, open.operation};
    ready_.fetch_sub(1, std::memory_order_release);
    running_.fetch_add(1, std::memory_order_release);
    return true;
  }
  return false;
}

void MoveQueue::finish(const Task& task) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < open_.size(); ++i) {
    if (open_[i].operation != task.move) continue;
    if (--open_[i].left == 0) {
      finished_.push_back(task.move);
      open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    break;
  }
  running_.fetch_sub(1, std::memory_order_release);
}

bool MoveQueue::take_finished(std::int32_t* operation) {
  const std::lock_guard lock(mutex_);
  if (finished_.empty()) return false;
  *operation = finished_.back();
  finished_.pop_back();
  return true;
}

}  // namespace ringattn::ring
