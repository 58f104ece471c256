// Slow is not hung: a wait ends with TIMEOUT only when the rank that it finally depends on stands still.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/comm.h"
#include "tests/support/spawn.h"

namespace ringattn::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::int64_t kTimeoutMs = 60;

class RingWatch : public ::testing::Test {
 protected:
  void open(std::int32_t world, std::int64_t timeout_ms, std::int64_t arrival_ms) {
    CommOptions options;
    options.timeout_ms = timeout_ms;
    options.arrival_timeout_ms = arrival_ms;
    const Status status = Comm::create_local(Log(), world, "local", options, comms_);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  Comm& comm(int rank) { return *comms_[static_cast<std::size_t>(rank)]; }

  // Rank 0 waits for `peer` and watches it, `meanwhile` runs every 5 ms, until the comm dies or the time is
  // over.
  Status watch_for(std::int64_t limit_ms, int peer, const std::function<void()>& meanwhile) {
    const support::Watchdog watchdog("a watch", 60);
    const auto start = Clock::now();
    while (Clock::now() - start < milliseconds(limit_ms) && comm(0).state().ok()) {
      meanwhile();
      comm(0).tell(peer, true);
      comm(0).watch(peer);
      std::this_thread::sleep_for(milliseconds(5));
    }
    seconds_ = std::chrono::duration<double>(Clock::now() - start).count();
    return comm(0).state();
  }
  // The machine may be slow: nothing is said about how late a timeout comes, but never before its time.
  void expect_timeout(const Status& status, const std::string& words, std::int64_t least_ms) {
    EXPECT_EQ(status.code(), RINGATTN_ERR_TIMEOUT) << status.message();
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
    EXPECT_GE(seconds_, static_cast<double>(least_ms) * 1e-3);
  }

  std::vector<std::unique_ptr<Comm>> comms_;
  double seconds_ = 0;
};

void advance(Comm& comm, std::int32_t waits_for) {
  comm.progressed();
  comm.tell(waits_for, true);
}

TEST_F(RingWatch, ARankThatGoesOnForTenTimeoutsIsNotLost) {
  open(2, kTimeoutMs, kTimeoutMs);
  for (auto& comm : comms_) comm->enter("test");
  const Status status = watch_for(10 * kTimeoutMs, 1, [&] { advance(comm(1), -1); });
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(RingWatch, ARankThatStopsIsNamed) {
  open(3, kTimeoutMs, 60'000);
  for (auto& comm : comms_) comm->enter("test");
  expect_timeout(watch_for(20'000, 2, [] {}), "rank 2 made no progress for 60 ms", kTimeoutMs);
  EXPECT_EQ(comm(1).state().code(), RINGATTN_ERR_TIMEOUT) << "every rank hears of it";
  EXPECT_EQ(comm(1).state().message(), comm(0).state().message());
}

TEST_F(RingWatch, ARankThatNeverEntersHasTheArrivalTimeout) {
  open(2, 10, 150);
  comm(0).enter("test");
  expect_timeout(watch_for(20'000, 1, [] {}), "rank 1 did not enter collective call 1 (test) within 150 ms",
                 150);
}

TEST_F(RingWatch, EnteringLateIsNotLost) {
  open(2, 10'000, 10'000);
  comm(0).enter("test");
  int times = 0;
  const Status status = watch_for(300, 1, [&] {
    if (++times == 30) comm(1).enter("test");
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(RingWatch, MinusOneIsForEver) {
  open(2, -1, -1);
  comm(0).enter("test");
  EXPECT_TRUE(watch_for(200, 1, [] {}).ok());
  comm(1).enter("test");
  EXPECT_TRUE(watch_for(200, 1, [] {}).ok());
}

// 0 waits for 1, 1 for 2, 2 for 3; 3 computes: nobody is lost, although 1 and 2 stand still.
TEST_F(RingWatch, TheEndOfAChainCounts) {
  open(4, kTimeoutMs, kTimeoutMs);
  for (auto& comm : comms_) comm->enter("test");
  comm(1).progressed();
  comm(1).tell(2, true);
  comm(2).progressed();
  comm(2).tell(3, true);
  const Status status = watch_for(5 * kTimeoutMs, 1, [&] { advance(comm(3), -1); });
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(RingWatch, WhoStandsStillAtTheEndOfAChainIsNamed) {
  open(4, kTimeoutMs, 60'000);
  for (auto& comm : comms_) comm->enter("test");
  comm(1).tell(2, true);
  comm(2).tell(3, true);
  expect_timeout(watch_for(20'000, 1, [] {}), "rank 3 made no progress", kTimeoutMs);
}

// What a stopped rank told last may be out of date: 2 has what it waited for, so 3 waits for others by now, or for nobody.
TEST_F(RingWatch, ASilentRankIsNamedNotTheLivingOneThatItLastWaitedFor) {
  for (const bool circle : {true, false}) {
    open(4, 4 * kTimeoutMs, 60'000);
    for (auto& comm : comms_) comm->enter("test");
    comm(2).tell(3, true);
    comm(3).tell(1, true);
    if (!circle) comm(3).leave_call();
    const auto living = [&] {
      comm(1).tell(2, true);
      if (circle) comm(3).tell(1, true);
    };
    expect_timeout(watch_for(20'000, 1, living), "rank 2 made no progress", 4 * kTimeoutMs);
    comms_.clear();
  }
}

// 1 lives in the call before, which 2 holds up; what 2 told last makes a circle.
TEST_F(RingWatch, ASilentRankOfAnEarlierCallIsNamedNotTheOneThatItHoldsUp) {
  open(3, 60'000, 4 * kTimeoutMs);
  for (auto& comm : comms_) comm->enter("test");
  comm(2).tell(0, true);
  comm(0).leave_call();
  comm(0).enter("test");
  const auto living = [&] { comm(1).tell(2, true); };
  expect_timeout(watch_for(20'000, 1, living), "rank 2 made no progress for 240 ms (arrival_timeout_ms)",
                 4 * kTimeoutMs);
}

TEST_F(RingWatch, WhoHasNotEnteredAtTheEndOfAChainHasTheArrivalTimeout) {
  open(3, 10, 150);
  comm(0).enter("test");
  comm(1).enter("test");
  comm(1).tell(2, true);
  expect_timeout(watch_for(20'000, 1, [] {}), "rank 2 did not enter", 150);
}

// In a cycle every counter of it counts.
TEST_F(RingWatch, AnyMovementInACycleCounts) {
  open(3, kTimeoutMs, kTimeoutMs);
  for (auto& comm : comms_) comm->enter("test");
  comm(1).tell(2, true);
  const Status status = watch_for(5 * kTimeoutMs, 1, [&] { advance(comm(2), 0); });
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(RingWatch, ACycleThatStandsStillEnds) {
  open(3, kTimeoutMs, 60'000);
  for (auto& comm : comms_) comm->enter("test");
  comm(1).tell(2, true);
  comm(2).tell(0, true);
  expect_timeout(watch_for(20'000, 1, [] {}), "made no progress", kTimeoutMs);
}

TEST_F(RingWatch, ACycleThatOneWaitsForFromOutsideEnds) {
  open(3, kTimeoutMs, 60'000);
  for (auto& comm : comms_) comm->enter("test");
  comm(1).tell(2, true);
  comm(2).tell(1, true);
  expect_timeout(watch_for(20'000, 1, [] {}), "made no progress", kTimeoutMs);
}

TEST_F(RingWatch, AnAnswerStartsTheClockAnew) {
  open(2, 800, 800);
  for (auto& comm : comms_) comm->enter("test");
  EXPECT_TRUE(watch_for(450, 1, [] {}).ok());
  comm(0).stop_watching();
  EXPECT_TRUE(watch_for(450, 1, [] {}).ok());
}

}  // namespace
}  // namespace ringattn::comm
