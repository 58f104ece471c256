// The tiles of one execution on their way through a chain of positions: the attends in the schedule's
// order, then finalize. A tile is at one position at a time and passes them in order, whatever the order in
// which blocks arrive: so the result never depends on timing.
//
// Backward: tiles of one kv head form a chain, in which a tile stays behind the one before it at every
// position. So the sum that a position stands for (dK and dV of some keys) gets its parts in the tiles' order,
// from one tile at a time, while tiles of a chain work on different positions side by side.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace ringattn::ring {

struct Task {
  std::int64_t tile = -1;
  std::int32_t position = 0;
  std::int32_t move = -1;  // not a tile: a part of this operation, which moves memory; `tile` is its number
};

class TileQueue {
 public:
  void reserve(std::int64_t most_tiles, std::int32_t most_positions);
  // All tiles wait at position 0; every position is closed. stay = a worker goes on with its tile while the
  // next position is open (its queries and state are in cache); otherwise earlier positions come first, so
  // that their K/V buffer is free sooner. chain = tiles of a chain, one chain after the other; 0 = no chains.
  void start(std::int64_t tiles, std::int32_t positions, bool stay, std::int64_t chain);
  void open(std::int32_t position);  // its K/V has arrived; again is harmless
  void close();                      // nothing is drawn any more

  bool draw(Task& task);
  // The task's position has been done for its tile. True: go on with `task` (its next position).
  bool finish(Task& task);
  void put_back(const Task& task);  // not done yet: somebody else may go on
  bool all_passed();                // every tile has passed every position

  // A position that all tiles have passed, each once.
  bool take_finished(std::int32_t* position);

  std::int64_t ready() const { return ready_.load(std::memory_order_acquire); }
  std::int64_t running() const { return running_.load(std::memory_order_acquire); }
  // As many as may come to be ready while the ready ones run.
  std::int64_t width() const { return chain_ > 0 && ready() > 0 ? tiles_ : ready(); }
  std::int64_t tiles() const { return tiles_; }
  std::uint64_t bytes() const {  // memory held
    return 8 * (next_.capacity() + head_.capacity() + waiting_.capacity() + left_.capacity()) +
           4 * (finished_.capacity() + at_.capacity()) + open_.capacity() + blocked_.capacity();
  }

 private:
  void push(std::int64_t tile, std::int32_t position);
  bool behind(std::int64_t tile, std::int32_t position) const;  // would it overtake the one before it?

  std::mutex mutex_;
  std::int64_t tiles_ = 0, chain_ = 0;
  std::int32_t positions_ = 0;
  bool stay_ = false, closed_ = true;
  std::vector<std::int64_t> next_;  // by tile: the one behind it in the same list
  std::vector<std::int64_t> head_, waiting_,
      left_;                      // by position: list, its length, tiles that have not passed
  std::vector<std::int32_t> at_;  // by tile, in chains: its position
  std::vector<char> blocked_;     // by tile: it waits for the one before it, in no list
  std::vector<char> open_;
  std::vector<std::int32_t> finished_;
  std::int32_t lowest_ = 0;  // no open position below it has a tile
  std::atomic<std::int64_t> ready_{0}, running_{0};
};

}  // namespace ringattn::ring
