// How far every rank process is, in memory that the driver shares with them: a rank never waits to tell it, and it can be
// read of one that hangs.
#pragma once
#include <atomic>
#include <cstdint>

namespace ringattn::faults {

struct Progress {
  std::atomic<std::uint64_t> begun{0};  // executions begun, over all streams
  std::atomic<std::uint64_t> ended{0};
  std::atomic<std::int64_t> acted_ns{0};   // when the rank did to itself what it was told to do
  std::atomic<std::int64_t> failed_ns{0};  // when its stream's failing call returned
};

inline constexpr int kMostProcesses = 32;

class Board {
 public:
  Board();                 // the driver's: makes the memory
  explicit Board(int fd);  // a rank's: maps what it was given
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  Progress& of(int process) { return all_[process]; }
  int fd() const { return fd_; }

 private:
  void map();

  int fd_;
  Progress* all_ = nullptr;
};

}  // namespace ringattn::faults
