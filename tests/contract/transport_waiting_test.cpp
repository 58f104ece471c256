// The contract, part 4: wait, wake and the life line.
#include <time.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "contract/transport_suite.h"

namespace ringattn::test {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;
RINGATTN_TRANSPORT_SUITE(TransportWaiting, transport_subjects());
RINGATTN_TRANSPORT_SUITE(TransportWaitingLends, lending_subjects());

double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Runs `event` while rank 0 is in a wait of a minute; whether that ended within a second of it.
template <class Event>
bool ends_wait(TransportRing& ring, Event event) {
  std::atomic<bool> ended{false};
  std::thread waiting([&] {
    ring[0].wait(seconds(60));
    ended = true;
  });
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(ended) << "the wait ended before anything happened";
  event();
  const auto deadline = Clock::now() + seconds(1);
  while (!ended && Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
  const bool in_time = ended;
  if (!in_time) ring[0].wake();
  waiting.join();
  return in_time;
}

TEST_P(TransportWaiting, EndsWhenACompletionCanBeHad) {
  TransportRing ring(GetParam(), 2);
  const Bytes data = bytes_from(1, 8);
  Bytes buffer(8);
  ASSERT_EQ(ring[0].receive(1, 1, buffer.data(), 8, 9), RINGATTN_OK);
  EXPECT_TRUE(ends_wait(ring, [&] { ASSERT_EQ(ring[1].send(0, 1, data.data(), 8), RINGATTN_OK); }));
  EXPECT_EQ(ring.next(0).value().user, 9u);
}

TEST_P(TransportWaitingLends, EndsWhenALoanIsReturned) {
  TransportRing ring(GetParam(), 2);
  const Bytes data = bytes_from(1, 8);
  ASSERT_EQ(ring[1].receive(0, 1, nullptr, 8), RINGATTN_OK);
  ASSERT_EQ(ring[0].send(1, 1, data.data(), 8), RINGATTN_OK);
  const Completion received = ring.next(1).value();
  EXPECT_TRUE(ends_wait(ring, [&] { ring[1].release(received); }));
}

TEST_P(TransportWaiting, ReturnsAtOnceWhileACompletionIsThere) {
  TransportRing ring(GetParam(), 1);
  const Bytes data = bytes_from(1, 8);
  Bytes buffer(8);
  ASSERT_EQ(ring[0].send(0, 1, data.data(), 8), RINGATTN_OK);
  ASSERT_EQ(ring[0].receive(0, 1, buffer.data(), 8), RINGATTN_OK);
  const auto start = Clock::now();
  for (int i = 0; i < 3; ++i) ring[0].wait(seconds(60));
  EXPECT_LT(Clock::now() - start, seconds(1));
}

TEST_P(TransportWaiting, EndsByWake) {
  TransportRing ring(GetParam(), 2);
  EXPECT_TRUE(ends_wait(ring, [&] { ring[0].wake(); }));
}

TEST_P(TransportWaiting, WakeBeforeWaitEndsTheNextOne) {
  TransportRing ring(GetParam(), 2);
  ring[0].wake();
  const auto start = Clock::now();
  ring[0].wait(seconds(60));
  EXPECT_LT(Clock::now() - start, seconds(1));
}

TEST_P(TransportWaiting, EndsByAbortAndByALostPeer) {
  {
    TransportRing ring(GetParam(), 2);
    EXPECT_TRUE(ends_wait(ring, [&] { ring[1].abort(RINGATTN_ERR_ABORTED, "now"); }));
  }
  TransportRing ring(GetParam(), 2);
  Bytes buffer(8);
  ASSERT_EQ(ring[0].receive(1, 1, buffer.data(), 8), RINGATTN_OK);
  EXPECT_TRUE(ends_wait(ring, [&] { ring.close(1); }));
}

TEST_P(TransportWaiting, EndsByANewerCancelOfAPeer) {
  TransportRing ring(GetParam(), 3);
  EXPECT_TRUE(ends_wait(ring, [&] { ring[2].tell(5, 1); }));
  EXPECT_EQ(ring[0].ask(2).canceled, 1u);
  EXPECT_TRUE(ends_wait(ring, [&] { ring[1].tell(5, 3); }));
  // Told before the wait began and not yet seen by it: must not be slept over.
  ring[1].tell(6, 4);
  const auto start = Clock::now();
  ring[0].wait(seconds(60));
  EXPECT_LT(Clock::now() - start, seconds(1));
}

TEST_P(TransportWaiting, TimesOut) {
  TransportRing ring(GetParam(), 2);
  const auto start = Clock::now();
  ring[0].wait(milliseconds(50));
  EXPECT_LT(Clock::now() - start, seconds(2));
  ring[0].wait(milliseconds(0));
  ring[0].wake();
  GetParam().table->wait(ring[0].handle(), ~std::uint64_t{0});  // "for ever" must not overflow into the past
  std::thread waker([&] {
    std::this_thread::sleep_for(milliseconds(50));
    ring[0].wake();
  });
  const double before = thread_cpu_seconds();
  const auto forever = Clock::now();
  GetParam().table->wait(ring[0].handle(), ~std::uint64_t{0});
  EXPECT_GE(Clock::now() - forever, milliseconds(20));
  EXPECT_LT(thread_cpu_seconds() - before, 0.02);
  waker.join();
}

// D16: more ranks than cores must not take the cores from those that compute.
TEST_P(TransportWaiting, SixteenWaitingRanksBurnNoCpu) {
  constexpr std::int32_t kRanks = 16;
  TransportRing ring(GetParam(), kRanks);
  std::vector<double> cpu(kRanks);
  std::vector<std::uint8_t> buffers(kRanks);
  const auto start = Clock::now();
  run_ranks(kRanks, [&](std::int32_t rank) {
    TestLink& link = ring[rank];
    ASSERT_EQ(link.receive((rank + 1) % kRanks, 1, &buffers[std::size_t(rank)], 1), RINGATTN_OK);
    const double before = thread_cpu_seconds();
    while (Clock::now() - start < milliseconds(300)) {
      link.wait(milliseconds(300) - (Clock::now() - start));
      EXPECT_FALSE(link.poll());
    }
    cpu[std::size_t(rank)] = thread_cpu_seconds() - before;
  });
  const double wall = std::chrono::duration<double>(Clock::now() - start).count();
  EXPECT_LT(std::accumulate(cpu.begin(), cpu.end(), 0.0), 0.2 * wall);
}

// ---- the life line --------------------------------------------------------------------------------------

TEST_P(TransportWaiting, AskTellsWhatTheRankToldLast) {
  TransportRing ring(GetParam(), 3);
  for (std::int32_t rank = 0; rank < 3; ++rank) {
    const ringattn_beat_v1 beat = ring[0].ask(rank);
    EXPECT_EQ(beat.struct_size, sizeof beat);
    EXPECT_EQ(beat.waits_for, -1);
    EXPECT_EQ(beat.counter | beat.entered | beat.canceled, 0u);
  }
  ring[1].tell(10, 0, 2, 4);
  ring[1].tell(11, 3, 0, 5);
  ring[2].tell(7, 0, -1, 6);
  for (std::int32_t asking = 0; asking < 3; ++asking) {
    // A transport between processes may take a moment.
    const auto deadline = Clock::now() + seconds(2);
    while (ring[asking].ask(1).counter != 11 && Clock::now() < deadline) ring.quiet(asking, milliseconds(5));
    const ringattn_beat_v1 beat = ring[asking].ask(1);
    EXPECT_EQ(beat.counter, 11u);
    EXPECT_EQ(beat.canceled, 3u);
    EXPECT_EQ(beat.waits_for, 0);
    EXPECT_EQ(beat.entered, 5u);
  }
}

// Whoever has told does nothing more, as a rank between two calls; the others have looked at nothing meanwhile.
TEST_P(TransportWaiting, TheLastOfManyCallsAndCancelsIsHeardWithoutItsTeller) {
  TransportRing ring(GetParam(), 2);
  constexpr std::uint64_t kCalls = 15;
  for (std::uint64_t call = 1; call <= kCalls; ++call) {
    ring[1].tell(2 * call, call - 1, -1, call);
    ring[1].tell(2 * call + 1, call, -1, call);
  }
  const auto deadline = Clock::now() + seconds(2);
  while (ring[0].ask(1).canceled != kCalls && Clock::now() < deadline) ring.quiet(0, milliseconds(5));
  EXPECT_EQ(ring[0].ask(1).canceled, kCalls);
  EXPECT_EQ(ring[0].ask(1).entered, kCalls);
}

TEST_P(TransportWaiting, BeatsStayWholeWhileAllThreadsTellAndAsk) {
  constexpr std::int32_t kRanks = 3;
  TransportRing ring(GetParam(), kRanks);
  std::atomic<bool> stop{false};
  run_ranks(2 * kRanks, [&](std::int32_t thread) {
    TestLink& link = ring[thread % kRanks];
    if (thread < kRanks) {
      for (std::uint64_t i = 1; i <= 3000; ++i) link.tell(i, i, -1, i);
      stop = true;
      return;
    }
    std::vector<std::uint64_t> last(kRanks);
    while (!stop) {
      for (std::int32_t rank = 0; rank < kRanks; ++rank) {
        const ringattn_beat_v1 beat = link.ask(rank);
        EXPECT_EQ(beat.counter, beat.entered);
        EXPECT_EQ(beat.counter, beat.canceled);
        EXPECT_GE(beat.counter, last[std::size_t(rank)]);
        last[std::size_t(rank)] = beat.counter;
      }
    }
  });
}

// Beats and wakes of other threads while a rank's own thread waits and tests.
TEST_P(TransportWaiting, LifeLineBesideTraffic) {
  TransportRing ring(GetParam(), 2);
  std::atomic<int> running{2};
  run_ranks(4, [&](std::int32_t thread) {
    TestLink& link = ring[thread % 2];
    if (thread >= 2) {
      for (std::uint64_t i = 1; running > 0; ++i) {
        link.tell(i, i / 64);
        link.wake();
        link.ask(1 - link.rank());
        EXPECT_EQ(link.state(), RINGATTN_OK);
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
      return;
    }
    const Bytes data = bytes_from(std::uint8_t(thread), 32);
    for (std::uint64_t tag = 0; tag < 200; ++tag) {
      Bytes buffer(32);
      ASSERT_EQ(link.receive(1 - thread, tag, buffer.data(), 32), RINGATTN_OK);
      ASSERT_EQ(link.send(1 - thread, tag, data.data(), 32), RINGATTN_OK);
      for (int i = 0; i < 2; ++i) {
        const Completion completion = link.next().value();
        if (completion.kind == RINGATTN_TRANSFER_RECEIVE) {
          EXPECT_EQ(contents(completion), bytes_from(std::uint8_t(1 - thread), 32));
        }
        link.release(completion);
      }
    }
    --running;
  });
}

}  // namespace
}  // namespace ringattn::test
