// A cancel asks, and a peer that stands still does not answer: what is moving to it ends when the time is over.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/ring/host_ring.h"

namespace ringattn::support {
namespace {

using std::chrono::milliseconds;

constexpr int kTimeoutMs = 1500;

// Stands still in a callback until let go: when the second of three blocks is done, and the third on its way.
struct Stopper {
  std::atomic<bool> stopped{false}, let_go{false};

  static void stop(void* user, std::int32_t, std::int32_t done, std::int32_t) {
    auto& self = *static_cast<Stopper*>(user);
    if (done < 2 || self.stopped.exchange(true)) return;
    while (!self.let_go) std::this_thread::sleep_for(milliseconds(1));
  }
};

// Few queries and many keys, which take longer to move than to attend to, and more room than sockets have. Each rank is on a
// thread that never leaves it to another: the one that stands still would hold that one too.
class StoppedRing {
 public:
  StoppedRing() : context_(0), ring_(context_, "q=4 k=24576 heads=2 dim=128 ranks=3", options()) {
    ring_.tensors(1).args.progress = Stopper::stop;
    ring_.tensors(1).args.progress_user = &stopper_;
    threads_.emplace_back([this] {
      second_ = ring_.start(1);
      finish(second_);
    });
    while (second_ == nullptr) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(100));
    for (const int rank : {0, 2}) {
      threads_.emplace_back([this, rank] {
        const ringattn_status status = ring_.execute(rank);
        EXPECT_TRUE(status == RINGATTN_OK || range_of_request(status)) << ringattn_last_error();
        ++ended_;
      });
    }
    while (!stopper_.stopped) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(200));
  }
  ~StoppedRing() {
    stopper_.let_go = true;
    for (std::thread& thread : threads_) thread.join();
  }

  int ended() const { return ended_; }
  void cancel() { EXPECT_EQ(ringattn_request_cancel(second_), RINGATTN_OK); }
  void wait_for_all_others() const {
    while (ended_ < 2) std::this_thread::sleep_for(milliseconds(1));
  }
  ringattn_status status() const { return ringattn_comm_status(ring_.comm(0)); }

 private:
  static HostRingOptions options() {
    HostRingOptions options;
    options.transport = "tcp";
    options.timeout_ms = kTimeoutMs;
    return options;
  }
  // Canceled, or ended with the ring where the time was over before the cancel came.
  static bool range_of_request(ringattn_status status) {
    return status == RINGATTN_ERR_CANCELED || status == RINGATTN_ERR_TIMEOUT;
  }

  const HostContext context_;
  HostRing ring_;
  Stopper stopper_;
  std::atomic<ringattn_request*> second_{nullptr};
  std::atomic<int> ended_{0};
  std::vector<std::thread> threads_;
};

TEST(RingCancelStopped, ATransferThatIsMovingToAStoppedRankEndsInTime) {
  const Watchdog watchdog("cancel towards a stopped rank", 120);
  bool shown = false;
  for (int tries = 0; tries < 20 && !shown;
       ++tries) {  // what is moving at the moment of the cancel is chance
    StoppedRing ring;
    if (ring.ended() != 0 || ring.status() != RINGATTN_OK) continue;
    ring.cancel();
    ring.wait_for_all_others();
    if (ring.status() == RINGATTN_OK) continue;
    shown = true;
    EXPECT_EQ(ring.status(), RINGATTN_ERR_TIMEOUT);
    const std::string reason = ringattn_last_error();
    EXPECT_NE(reason.find("rank 1 made no progress"), std::string::npos) << reason;
  }
  EXPECT_TRUE(shown) << "nothing was on its way in any try";
}

}  // namespace
}  // namespace ringattn::support
