// The contract, part 3: withdraw, abort, close and lost peers.
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#include "contract/transport_suite.h"

namespace ringattn::test {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;
RINGATTN_TRANSPORT_SUITE(TransportEnding, transport_subjects());

// ---- withdraw -------------------------------------------------------------------------------------------

TEST_P(TransportEnding, WithdrawTakesBackUnmatchedTransfersUnderTheMask) {
  TransportRing ring(GetParam(), 3);
  const Bytes data = bytes_from(1, 8);
  Bytes buffer(8 * 4);
  ASSERT_EQ(ring[0].send(1, 0x501, data.data(), 8, 1), RINGATTN_OK);
  ASSERT_EQ(ring[0].receive(2, 0x502, buffer.data(), 8, 2), RINGATTN_OK);
  ASSERT_EQ(ring[0].send(1, 0x601, data.data(), 8, 3), RINGATTN_OK);
  ASSERT_EQ(ring[0].receive(2, 0x602, buffer.data() + 8, 8, 4), RINGATTN_OK);
  ring[0].withdraw(0xff00, 0x500);
  std::map<std::uint64_t, ringattn_status> ended;
  for (int i = 0; i < 2; ++i) {
    const Completion completion = ring.next(0).value();
    ended[completion.user] = completion.status;
  }
  EXPECT_EQ(ended, (std::map<std::uint64_t, ringattn_status>{{1, RINGATTN_ERR_CANCELED},
                                                             {2, RINGATTN_ERR_CANCELED}}));
  EXPECT_TRUE(ring.quiet(0));
  // What was not withdrawn still matches, the ring lives on, and a withdrawn tag may be posted anew.
  ASSERT_EQ(ring[1].receive(0, 0x601, buffer.data() + 16, 8, 5), RINGATTN_OK);
  EXPECT_EQ(contents(ring.next(1).value()), data);
  ASSERT_EQ(ring[1].receive(0, 0x501, buffer.data() + 24, 8, 6), RINGATTN_OK);
  EXPECT_TRUE(ring.quiet(1)) << "met a send that had been withdrawn";
  const Bytes other = bytes_from(99, 8);
  ASSERT_EQ(ring[0].send(1, 0x501, other.data(), 8, 7), RINGATTN_OK);
  EXPECT_EQ(contents(ring.next(1).value()), other);
  EXPECT_EQ(ring[0].state(), RINGATTN_OK);
}

TEST_P(TransportEnding, WithdrawLeavesOtherRanksAndMatchedTransfersAlone) {
  TransportRing ring(GetParam(), 2);
  const Bytes data = bytes_from(1, 8);
  Bytes buffer(16);
  ASSERT_EQ(ring[0].send(1, 1, data.data(), 8, 1), RINGATTN_OK);
  ASSERT_EQ(ring[1].receive(0, 1, buffer.data(), 8, 2), RINGATTN_OK);  // matched
  ASSERT_EQ(ring[1].receive(0, 2, buffer.data() + 8, 8, 3), RINGATTN_OK);
  ring[0].withdraw(0, 0);  // everything of rank 0
  const Completion received = ring.next(1).value();
  EXPECT_EQ(received.status, RINGATTN_OK);
  EXPECT_EQ(contents(received), data);
  ring[1].release(received);
  EXPECT_EQ(ring.next(0).value().status, RINGATTN_OK);
  EXPECT_TRUE(ring.quiet(1)) << "another rank's receive was taken back";
  ASSERT_EQ(ring[0].send(1, 2, data.data(), 8), RINGATTN_OK);
  EXPECT_EQ(ring.next(1).value().user, 3u);
}

// The peer is in no call, perhaps for hours. What it was sent must not meet what it posts later.
TEST_P(TransportEnding, WithdrawEndsWhereThePeerDoesNothing) {
  TransportRing ring(GetParam(), 2);
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 20}) {
    const Bytes stale = bytes_from(1, bytes), fresh = bytes_from(77, bytes);
    Bytes buffer(bytes);
    ASSERT_EQ(ring[0].send(1, 5, stale.data(), bytes, 1), RINGATTN_OK);
    ring[0].withdraw(0, 0);
    const auto ended = ring[0].next(milliseconds(5000));
    ASSERT_TRUE(ended);
    EXPECT_EQ(ended->status, RINGATTN_ERR_CANCELED);
    EXPECT_EQ(ended->user, 1u);
    if (bytes == 8) {
      EXPECT_TRUE(ring.quiet(1));
    }
    ASSERT_EQ(ring[1].receive(0, 5, buffer.data(), bytes, 2), RINGATTN_OK);
    EXPECT_TRUE(ring.quiet(1)) << "met a send that had been withdrawn";
    ASSERT_EQ(ring[0].send(1, 5, fresh.data(), bytes, 3), RINGATTN_OK);
    const Completion received = ring.next(1).value();
    EXPECT_EQ(contents(received), fresh);
    ring[1].release(received);
    EXPECT_EQ(ring.next(0).value().user, 3u);
  }
}

// ---- abort ----------------------------------------------------------------------------------------------

TEST_P(TransportEnding, AbortFreesEveryRankWithinASecond) {
  constexpr std::int32_t kRanks = 4;
  TransportRing ring(GetParam(), kRanks);
  std::vector<Bytes> buffers(kRanks, Bytes(64));
  std::atomic<std::int32_t> waiting{0};
  std::atomic<Clock::rep> aborted_at{0};
  run_ranks(kRanks + 1, [&](std::int32_t rank) {
    if (rank == kRanks) {  // a thread that owns no link
      while (waiting < kRanks) std::this_thread::sleep_for(milliseconds(1));
      std::this_thread::sleep_for(milliseconds(30));
      aborted_at = Clock::now().time_since_epoch().count();
      ring[2].abort(RINGATTN_ERR_TIMEOUT, "rank 3 made no progress");
      return;
    }
    TestLink& link = ring[rank];
    Bytes& buffer = buffers[std::size_t(rank)];
    const std::int32_t next = (rank + 1) % kRanks, previous = (rank + kRanks - 1) % kRanks;
    ASSERT_EQ(link.receive(previous, 1, buffer.data(), 32, 1), RINGATTN_OK);
    ASSERT_EQ(link.send(next, 2, buffer.data() + 32, 32, 2), RINGATTN_OK);
    ++waiting;
    std::uint64_t users = 0;
    for (int i = 0; i < 2; ++i) {
      const Completion completion = link.next().value();
      EXPECT_EQ(completion.status, RINGATTN_ERR_TIMEOUT);
      EXPECT_EQ(completion.loan, 0u);
      users += completion.user;
    }
    const Clock::duration since(Clock::now().time_since_epoch().count() - aborted_at);
    EXPECT_LT(since, seconds(1));
    EXPECT_EQ(users, 3u);
  });
}

TEST_P(TransportEnding, AfterAbortTheLinkIsDeadEverywhere) {
  TransportRing ring(GetParam(), 3);
  ring[1].abort(RINGATTN_ERR_PEER_LOST, "the first reason");
  ring[0].abort(RINGATTN_ERR_ABORTED, "the second reason");
  const Bytes data = bytes_from(1, 8);
  for (std::int32_t rank = 0; rank < 3; ++rank) {
    ringattn_status status = RINGATTN_OK;
    const auto deadline = Clock::now() + seconds(1);
    while (status == RINGATTN_OK && Clock::now() < deadline) EXPECT_FALSE(ring[rank].poll(&status));
    EXPECT_EQ(status, RINGATTN_ERR_PEER_LOST);
    EXPECT_EQ(ring[rank].send(0, 1, data.data(), 8), RINGATTN_ERR_PEER_LOST);
    std::string reason;
    EXPECT_EQ(ring[rank].state(&reason), RINGATTN_ERR_PEER_LOST);
    EXPECT_NE(reason.find("the first reason"), std::string::npos) << reason;
    const auto start = Clock::now();
    for (int i = 0; i < 3; ++i) ring[rank].wait(seconds(60));
    EXPECT_LT(Clock::now() - start, seconds(1)) << "wait must return at once, again and again";
    EXPECT_FALSE(ring[rank].poll());
  }
}

// A rank that has nothing to do may ask now and then whether its ring still stands.
TEST_P(TransportEnding, StateKnowsWithoutTestOrWait) {
  TransportRing ring(GetParam(), 3);
  EXPECT_EQ(ring[0].state(), RINGATTN_OK);
  ring[1].abort(RINGATTN_ERR_TIMEOUT, "rank 2 sleeps");
  std::string reason;
  const auto deadline = Clock::now() + seconds(1);
  while (ring[0].state(&reason) == RINGATTN_OK && Clock::now() < deadline)
    std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(ring[0].state(), RINGATTN_ERR_TIMEOUT);
  EXPECT_EQ(reason, "rank 2 sleeps");
}

TEST_P(TransportEnding, StateWritesNoMoreThanCapacity) {
  TransportRing ring(GetParam(), 1);
  char text[8];
  std::memset(text, 'x', sizeof text);
  EXPECT_EQ(GetParam().table->state(ring[0].handle(), text, sizeof text), RINGATTN_OK);
  EXPECT_STREQ(text, "");
  ring[0].abort(RINGATTN_ERR_ABORTED, "0123456789");
  std::memset(text, 'x', sizeof text);
  EXPECT_EQ(GetParam().table->state(ring[0].handle(), text, 6), RINGATTN_ERR_ABORTED);
  EXPECT_STREQ(text, "01234");
  EXPECT_EQ(text[6], 'x');
}

TEST_P(TransportEnding, AbortWhileRanksPostAndTest) {
  constexpr std::int32_t kRanks = 4;
  for (int round = 0; round < 10; ++round) {
    TransportRing ring(GetParam(), kRanks);
    run_ranks(kRanks + 1, [&](std::int32_t rank) {
      if (rank == kRanks) {
        std::this_thread::sleep_for(milliseconds(1 + round));
        return ring[round % kRanks].abort(RINGATTN_ERR_ABORTED, "in the middle");
      }
      TestLink& link = ring[rank];
      Bytes source(64), buffer(64);
      std::int64_t posted = 0, ended = 0;
      for (std::uint64_t tag = 0;; ++tag) {
        const auto send = link.send_of((rank + 1) % kRanks, tag, source.data(), 64, 0);
        const auto receive = link.receive_of((rank + kRanks - 1) % kRanks, tag, buffer.data(), 64, 0);
        if (link.post({send, receive}) != RINGATTN_OK) break;
        posted += 2;
        while (ended < posted) {
          const auto completion = link.next(milliseconds(2000));
          ASSERT_TRUE(completion) << "rank " << rank << " lacks " << posted - ended << " completions";
          ++ended;
          link.release(*completion);
        }
      }
      EXPECT_EQ(ended, posted);
    });
  }
}

// ---- close and lost peers -------------------------------------------------------------------------------

TEST_P(TransportEnding, PeerThatClosesEndsWhatWasPostedWithIt) {
  TransportRing ring(GetParam(), 3);
  const Bytes data = bytes_from(1, 8);
  Bytes buffer(16);
  ASSERT_EQ(ring[0].send(2, 1, data.data(), 8, 1), RINGATTN_OK);
  ASSERT_EQ(ring[0].receive(2, 2, buffer.data(), 8, 2), RINGATTN_OK);
  ASSERT_EQ(ring[0].receive(1, 3, buffer.data() + 8, 8, 3), RINGATTN_OK);
  std::thread waiting([&] {
    std::uint64_t users = 0;
    for (int i = 0; i < 2; ++i) {
      const Completion completion = ring[0].next().value();
      EXPECT_EQ(completion.status, RINGATTN_ERR_PEER_LOST);
      EXPECT_EQ(completion.peer, 2);
      users += completion.user;
    }
    EXPECT_EQ(users, 3u);
  });
  std::this_thread::sleep_for(milliseconds(20));
  ring.close(2);
  const auto start = Clock::now();
  waiting.join();
  EXPECT_LT(Clock::now() - start, seconds(1));
  std::string reason;
  EXPECT_EQ(ring[0].state(&reason), RINGATTN_ERR_PEER_LOST);
  EXPECT_NE(reason.find("rank 2"), std::string::npos) << reason;
  ringattn_status status = RINGATTN_OK;
  EXPECT_FALSE(ring[0].poll(&status));
  EXPECT_EQ(status, RINGATTN_ERR_PEER_LOST) << "test tells it too";
  // Rank 1 had nothing with it; traffic between the two that remain goes on.
  EXPECT_EQ(ring[1].state(), RINGATTN_OK);
  ASSERT_EQ(ring[1].send(0, 3, data.data(), 8), RINGATTN_OK);
  EXPECT_EQ(contents(ring.next(0).value()), data);
}

TEST_P(TransportEnding, PostToAPeerThatHasClosedEndsPeerLost) {
  TransportRing ring(GetParam(), 2);
  const Bytes data = bytes_from(1, 8);
  Bytes buffer(8);
  ring.close(1);
  ASSERT_EQ(ring[0].send(1, 1, data.data(), 8, 1), RINGATTN_OK);
  EXPECT_EQ(ring.next(0).value().status, RINGATTN_ERR_PEER_LOST);
  ASSERT_EQ(ring[0].receive(1, 2, buffer.data(), 8, 2), RINGATTN_OK);
  EXPECT_EQ(ring.next(0).value().status, RINGATTN_ERR_PEER_LOST);
  std::string reason;
  EXPECT_EQ(ring[0].state(&reason), RINGATTN_ERR_PEER_LOST);
  EXPECT_NE(reason.find("rank 1"), std::string::npos) << reason;
}

TEST_P(TransportEnding, CleanCloseBreaksNobody) {
  TransportRing ring(GetParam(), 3);
  const Bytes data = bytes_from(1, 8);
  Bytes buffer(16);
  ASSERT_EQ(ring[2].send(0, 1, data.data(), 8), RINGATTN_OK);
  ASSERT_EQ(ring[0].receive(2, 1, buffer.data(), 8), RINGATTN_OK);
  const Completion received = ring.next(0).value();
  EXPECT_EQ(contents(received), data);
  ring[0].release(received);
  ASSERT_TRUE(ring.next(2));
  ring.close(2);
  EXPECT_TRUE(ring.quiet(0));
  EXPECT_TRUE(ring.quiet(1));
  EXPECT_EQ(ring[0].state(), RINGATTN_OK);
  ASSERT_EQ(ring[1].send(0, 2, data.data(), 8), RINGATTN_OK);
  ASSERT_EQ(ring[0].receive(1, 2, buffer.data() + 8, 8), RINGATTN_OK);
  EXPECT_EQ(contents(ring.next(0).value()), data);
}

// Whatever is outstanding, close returns, frees everything (the sanitizers look) and the next ring works.
TEST_P(TransportEnding, CloseWithTransfersOutstanding) {
  for (std::int32_t first_to_close = 0; first_to_close < 3; ++first_to_close) {
    TransportRing ring(GetParam(), 3);
    const Bytes data = bytes_from(1, 8);
    Bytes buffers(8 * 8);
    for (std::int32_t rank = 0; rank < 3; ++rank) {
      for (std::int32_t peer = 0; peer < 3; ++peer) {
        ASSERT_EQ(ring[rank].send(peer, 1, data.data(), 8), RINGATTN_OK);
        ASSERT_EQ(ring[rank].send(peer, 2, data.data(), 8), RINGATTN_OK);
      }
    }
    for (std::int32_t peer = 0; peer < 3; ++peer) {
      ASSERT_EQ(ring[0].receive(peer, 1, buffers.data() + 8 * peer, 8), RINGATTN_OK);
      ASSERT_EQ(ring[1].receive(peer, 1, buffers.data() + 24 + 8 * peer, 8), RINGATTN_OK);
    }
    ASSERT_TRUE(ring.next(0));  // one is handed out and never released
    ring[0].abort(RINGATTN_ERR_ABORTED, "leaving");
    ring.close(first_to_close);
  }
}

}  // namespace
}  // namespace ringattn::test
