// The contract, part 2: whose memory a receive shows, and when a send has ended (D17).
#include "contract/transport_suite.h"

namespace ringattn::test {
namespace {

using Bytes = std::vector<std::uint8_t>;
RINGATTN_TRANSPORT_SUITE(TransportLending, transport_subjects());
RINGATTN_TRANSPORT_SUITE(TransportLoans, lending_subjects());

TEST_P(TransportLending, ReceiveShowsTheSendersMemoryOrItsOwnBuffer) {
  TransportRing ring(GetParam(), 2);
  const Bytes data = bytes_from(1, 1000);
  Bytes buffer(1000);
  ASSERT_EQ(ring[0].send(1, 1, data.data(), 1000), RINGATTN_OK);
  ASSERT_EQ(ring[1].receive(0, 1, buffer.data(), 1000), RINGATTN_OK);
  const Completion received = ring.next(1).value();
  if (lends()) {
    EXPECT_EQ(received.data, data.data());
    EXPECT_NE(received.loan, 0u);
  } else {
    EXPECT_EQ(received.data, buffer.data());
    EXPECT_EQ(received.loan, 0u);
    EXPECT_EQ(buffer, data);
  }
  ring[1].release(received);
  EXPECT_EQ(ring.next(0).value().status, RINGATTN_OK);
}

TEST_P(TransportLending, SendEndsOnlyWhenNobodyReadsItsMemory) {
  TransportRing ring(GetParam(), 2);
  Bytes data = bytes_from(1, 100);
  Bytes buffer(100);
  ASSERT_EQ(ring[1].receive(0, 1, buffer.data(), 100), RINGATTN_OK);
  EXPECT_TRUE(ring.quiet(1));
  ASSERT_EQ(ring[0].send(1, 1, data.data(), 100), RINGATTN_OK);
  const Completion received = ring.next(1).value();
  if (lends()) {
    EXPECT_TRUE(ring.quiet(0)) << "the send ended while its memory was lent";
    ring[1].release(received);
    EXPECT_EQ(ring.next(0).value().status, RINGATTN_OK);
    return;
  }
  // A copying send ends by itself, and then its memory is the sender's again.
  EXPECT_EQ(ring.next(0).value().status, RINGATTN_OK);
  data.assign(100, 0xff);
  EXPECT_EQ(contents(received), bytes_from(1, 100));
}

TEST_P(TransportLoans, AForeignOrRepeatedReleaseDoesNothing) {
  TransportRing ring(GetParam(), 2);
  const Bytes data = bytes_from(1, 10);
  ASSERT_EQ(ring[0].send(1, 1, data.data(), 10, 1), RINGATTN_OK);
  ASSERT_EQ(ring[0].send(1, 2, data.data(), 10, 2), RINGATTN_OK);
  ASSERT_EQ(ring[1].receive(0, 1, nullptr, 10, 1), RINGATTN_OK);
  const Completion first = ring.next(1).value();
  ring[1].release(first);
  EXPECT_EQ(ring.next(0).value().user, 1u);
  ASSERT_EQ(ring[1].receive(0, 2, nullptr, 10, 2), RINGATTN_OK);
  const Completion second = ring.next(1).value();
  EXPECT_NE(second.loan, first.loan);
  ring[1].release(first);
  EXPECT_TRUE(ring.quiet(0)) << "a stale loan ended another send";
  ring[1].release(second);
  EXPECT_EQ(ring.next(0).value().user, 2u);
}

// Rank 0's block goes through 4 ranks and back, each passing on what it was lent: it never moves, and rank
// 0's send ends when rank 1 releases it, whatever the others still hold of theirs.
TEST_P(TransportLending, ForwardingChainThroughFourRanks) {
  TransportRing ring(GetParam(), 4);
  const Bytes data = bytes_from(50, 256);
  std::vector<Bytes> buffers(4, Bytes(256));
  const void* block = data.data();
  std::vector<Completion> held;
  for (std::int32_t hop = 0; hop < 4; ++hop) {
    const std::int32_t next = (hop + 1) % 4;
    ASSERT_EQ(ring[hop].send(next, 10, block, 256, 100 + hop), RINGATTN_OK);
    ASSERT_EQ(ring[next].receive(hop, 10, buffers[std::size_t(next)].data(), 256, 200 + next), RINGATTN_OK);
    std::optional<Completion> received = ring.next(next);
    while (received && received->kind == RINGATTN_TRANSFER_SEND) received = ring.next(next);
    ASSERT_TRUE(received);
    EXPECT_EQ(contents(*received), data);
    if (lends()) {
      EXPECT_EQ(received->data, data.data());
    }
    held.push_back(*received);
    block = received->data;
  }
  if (!lends()) return;
  // A borrower that passed the block on keeps its loan until its own send has ended: last in, first out.
  for (std::int32_t hop = 3; hop >= 0; --hop) {
    EXPECT_TRUE(ring.quiet(hop));
    ring[(hop + 1) % 4].release(held[std::size_t(hop)]);
    const Completion sent = ring.next(hop).value();
    EXPECT_EQ(sent.kind, RINGATTN_TRANSFER_SEND);
    EXPECT_EQ(sent.user, 100u + static_cast<std::uint64_t>(hop));
  }
}

// One block lent to several ranks at once is several sends, each with its own end.
TEST_P(TransportLending, OneBlockLentToAll) {
  TransportRing ring(GetParam(), 4);
  const Bytes data = bytes_from(5, 64);
  std::vector<Bytes> buffers(4, Bytes(64));
  for (std::int32_t peer = 1; peer < 4; ++peer) {
    ASSERT_EQ(ring[0].send(peer, 1, data.data(), 64, std::uint64_t(peer)), RINGATTN_OK);
    ASSERT_EQ(ring[peer].receive(0, 1, buffers[std::size_t(peer)].data(), 64), RINGATTN_OK);
  }
  std::vector<Completion> received(4);
  for (std::int32_t peer = 1; peer < 4; ++peer) received[std::size_t(peer)] = ring.next(peer).value();
  std::uint64_t ended = 0;
  for (std::int32_t peer : {2, 3, 1}) {
    EXPECT_EQ(contents(received[std::size_t(peer)]), data);
    ring[peer].release(received[std::size_t(peer)]);
    const std::uint64_t user = ring.next(0).value().user;
    if (lends()) {
      EXPECT_EQ(user, std::uint64_t(peer));
    }
    ended += user;
  }
  EXPECT_EQ(ended, 6u);
}

// Close returns what was borrowed, so the lender's call can end.
TEST_P(TransportLending, CloseReturnsLoans) {
  TransportRing ring(GetParam(), 2);
  const Bytes data = bytes_from(1, 10);
  Bytes buffer(10);
  ASSERT_EQ(ring[0].send(1, 1, data.data(), 10, 77), RINGATTN_OK);
  ASSERT_EQ(ring[1].receive(0, 1, buffer.data(), 10), RINGATTN_OK);
  ASSERT_TRUE(ring.next(1));
  if (lends()) {
    EXPECT_TRUE(ring.quiet(0));
  }
  ring.close(1);
  const Completion sent = ring.next(0).value();
  EXPECT_EQ(sent.user, 77u);
  EXPECT_EQ(sent.status, RINGATTN_OK);
  EXPECT_EQ(ring[0].state(), RINGATTN_OK) << "a clean close is not a loss";
}

// After abort a send whose memory somebody reads ends with the release and not before, though the link
// says at once that it is dead: two ranks that lend to each other would otherwise wait for each other.
TEST_P(TransportLoans, AbortWaitsForBorrowers) {
  TransportRing ring(GetParam(), 2);
  const Bytes data = bytes_from(1, 10);
  ASSERT_EQ(ring[0].send(1, 1, data.data(), 10, 77), RINGATTN_OK);
  ASSERT_EQ(ring[1].receive(0, 1, nullptr, 10), RINGATTN_OK);
  const Completion borrowed = ring.next(1).value();
  ring[1].abort(RINGATTN_ERR_ABORTED, "while lent");
  ringattn_status status = RINGATTN_OK;
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(ring[0].poll(&status)) << "the send ended while its memory was lent";
    EXPECT_EQ(status, RINGATTN_ERR_ABORTED)
        << "a rank that only waits for a borrower must learn of the abort";
  }
  ring[1].release(borrowed);
  const Completion sent = ring.next(0).value();
  EXPECT_EQ(sent.user, 77u);
  EXPECT_EQ(sent.status, RINGATTN_ERR_ABORTED);
  EXPECT_FALSE(ring[0].poll(&status));
  EXPECT_EQ(status, RINGATTN_ERR_ABORTED);
}

// A match that the receiver has not seen yet is taken back by abort: nobody may begin to read after it.
TEST_P(TransportLoans, AbortRevokesWhatNobodyHasSeen) {
  TransportRing ring(GetParam(), 2);
  const Bytes data = bytes_from(1, 10);
  ASSERT_EQ(ring[1].receive(0, 1, nullptr, 10), RINGATTN_OK);
  ASSERT_EQ(ring[0].send(1, 1, data.data(), 10, 77), RINGATTN_OK);
  ring[0].abort(RINGATTN_ERR_ABORTED, "before test");
  EXPECT_EQ(ring[0].next().value().status, RINGATTN_ERR_ABORTED);  // rank 1 has done nothing
  const Completion receive = ring[1].next().value();
  EXPECT_EQ(receive.status, RINGATTN_ERR_ABORTED);
  EXPECT_EQ(receive.data, nullptr);
  EXPECT_EQ(receive.loan, 0u);
}

}  // namespace
}  // namespace ringattn::test
