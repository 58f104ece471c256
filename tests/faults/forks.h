// Children that come and go while a process computes, as those of loaders of data do.
#pragma once
#include <atomic>
#include <thread>
#include <vector>

namespace ringattn::faults {

class Forks {
 public:
  // One child every so many microseconds, each for up to four times as long; 0 = none at all.
  explicit Forks(long every_us);
  ~Forks() { stop(); }
  Forks(const Forks&) = delete;
  Forks& operator=(const Forks&) = delete;

  // Waits for the children; how many there were, or -1 where one did not end in order.
  int stop();

 private:
  void work(long every_us);

  std::atomic<bool> stopped_{false};
  std::vector<int> children_;
  std::thread thread_;
};

}  // namespace ringattn::faults
