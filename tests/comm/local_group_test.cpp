// What the local transport promises beyond the contract: its texts, and what it does not wake for.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "support/transport_ring.h"
#include "transports/local/local.h"

namespace ringattn::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

const TransportSubject kLocal{"local", ringattn_transport_local_v1(), {}};

class LocalGroup : public testing::Test {
  Watchdog watchdog_{"LocalGroup"};
};

struct Opened {
  ringattn_status status;
  void* link;
  std::string error;
};

Opened open_local(std::int32_t rank, std::int32_t world_size, std::uint64_t group) {
  const ringattn_link_desc_v1 desc = TransportRing::describe(rank, world_size, group);
  Opened opened{};
  const char* error = "";
  opened.status = kLocal.table->open(&desc, &opened.link, &error);
  opened.error = error;
  return opened;
}

TEST_F(LocalGroup, RefusalsNameTheValues) {
  const std::uint64_t group = TransportRing::new_group();
  const Opened first = open_local(1, 4, group);
  ASSERT_EQ(first.status, RINGATTN_OK);
  const Opened twice = open_local(1, 4, group);
  EXPECT_EQ(twice.status, RINGATTN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(twice.error, "local: rank 1 of this ring is open already");
  const Opened other_size = open_local(2, 3, group);
  EXPECT_EQ(other_size.status, RINGATTN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(other_size.error, "local: rank 2 says world_size 3, this ring has 4");
  const Opened outside = open_local(4, 4, group);
  EXPECT_EQ(outside.status, RINGATTN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(outside.error, "local: rank 4 of world_size 4 does not exist");
  EXPECT_EQ(open_local(0, 0, TransportRing::new_group()).status, RINGATTN_ERR_INVALID_ARGUMENT);
  kLocal.table->close(first.link);
}

TEST_F(LocalGroup, ARankThatLeftDoesNotComeBack) {
  const std::uint64_t group = TransportRing::new_group();
  const Opened stays = open_local(0, 2, group);
  kLocal.table->close(open_local(1, 2, group).link);
  const Opened again = open_local(1, 2, group);
  EXPECT_EQ(again.status, RINGATTN_ERR_INVALID_ARGUMENT);
  EXPECT_NE(again.error.find("rank 1 has left this ring"), std::string::npos) << again.error;
  kLocal.table->close(stays.link);
  const Opened anew = open_local(1, 2, group);  // the last link took the ring with it
  EXPECT_EQ(anew.status, RINGATTN_OK);
  kLocal.table->close(anew.link);
}

TEST_F(LocalGroup, AnAbortedRingTakesNobodyIn) {
  const std::uint64_t group = TransportRing::new_group();
  const Opened first = open_local(0, 2, group);
  kLocal.table->abort(first.link, RINGATTN_ERR_TIMEOUT, "rank 1 never came");
  const Opened late = open_local(1, 2, group);
  EXPECT_EQ(late.status, RINGATTN_ERR_TIMEOUT);
  EXPECT_NE(late.error.find("rank 1 never came"), std::string::npos) << late.error;
  kLocal.table->close(first.link);
}

// Open never waits, so others may post to, and wait for, a rank that has yet to come.
TEST_F(LocalGroup, TrafficWithARankThatOpensLater) {
  const std::uint64_t group = TransportRing::new_group();
  TestLink first(kLocal.table, open_local(0, 2, group).link, 0);
  const std::uint8_t data = 77;
  ASSERT_EQ(first.send(1, 1, &data, 1), RINGATTN_OK);
  first.tell(5, 2);
  TestLink second(kLocal.table, open_local(1, 2, group).link, 1);
  const auto start = Clock::now();
  second.wait(std::chrono::seconds(60));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(1)) << "slept over a cancel from before it opened";
  ASSERT_EQ(second.receive(0, 1, nullptr, 1), RINGATTN_OK);
  const Completion received = second.next().value();
  EXPECT_EQ(received.data, &data);
  second.release(received);
  EXPECT_EQ(first.next().value().status, RINGATTN_OK);
  kLocal.table->close(first.handle());
  kLocal.table->close(second.handle());
}

TEST_F(LocalGroup, SizeMismatchNamesRanksTagAndSizes) {
  TransportRing ring(kLocal, 4);
  const std::uint8_t data[64] = {};
  ASSERT_EQ(ring[3].receive(1, 0xbeef, nullptr, 48), RINGATTN_OK);
  ASSERT_EQ(ring[0].receive(2, 1, nullptr, 8, 5), RINGATTN_OK);
  ASSERT_EQ(ring[1].send(3, 0xbeef, data, 64), RINGATTN_OK);
  std::string reason;
  EXPECT_EQ(ring[2].state(&reason), RINGATTN_ERR_TRANSPORT);
  EXPECT_EQ(reason, "size mismatch: rank 1 sends 64 bytes to rank 3, which expects 48 bytes (tag 0xbeef)");
  // It ends the whole ring: a rank that had nothing to do with it is freed too.
  EXPECT_EQ(ring[0].next().value().status, RINGATTN_ERR_TRANSPORT);
}

// The rest of an array that ends the ring halfway is taken and ends with it.
TEST_F(LocalGroup, TransfersAfterAMismatchInTheSamePostEndToo) {
  TransportRing ring(kLocal, 2);
  const std::uint8_t data[8] = {};
  ASSERT_EQ(ring[1].receive(0, 2, nullptr, 4), RINGATTN_OK);
  std::vector<ringattn_transfer_v1> sends;
  for (std::uint64_t tag = 1; tag <= 3; ++tag) sends.push_back(ring[0].send_of(1, tag, data, 8, tag));
  ASSERT_EQ(ring[0].post(sends), RINGATTN_OK);
  std::uint64_t users = 0;
  for (int i = 0; i < 3; ++i) {
    const Completion completion = ring[0].next().value();
    EXPECT_EQ(completion.status, RINGATTN_ERR_TRANSPORT);
    users += completion.user;
  }
  EXPECT_EQ(users, 6u);
  EXPECT_FALSE(ring[0].poll());
}

TEST_F(LocalGroup, LostPeerIsNamedWithTheTag) {
  TransportRing ring(kLocal, 3);
  ASSERT_EQ(ring[0].receive(2, 0x12, nullptr, 8), RINGATTN_OK);
  ring.close(2);
  std::string reason;
  EXPECT_EQ(ring[0].state(&reason), RINGATTN_ERR_PEER_LOST);
  EXPECT_EQ(reason, "rank 2 closed its link while rank 0 had a transfer with it (tag 0x12)");
}

// A rank that leaves although its send has not ended: who has not seen the memory never will.
TEST_F(LocalGroup, CloseRevokesWhatNobodyHasSeen) {
  TransportRing ring(kLocal, 2);
  std::vector<std::uint8_t> data(8);
  ASSERT_EQ(ring[1].receive(0, 1, nullptr, 8), RINGATTN_OK);
  ASSERT_EQ(ring[0].send(1, 1, data.data(), 8), RINGATTN_OK);
  ring.close(0);
  const Completion receive = ring[1].next().value();
  EXPECT_EQ(receive.status, RINGATTN_ERR_PEER_LOST);
  EXPECT_EQ(receive.data, nullptr);
  EXPECT_EQ(receive.loan, 0u);
}

// The lender left after an abort while its memory was lent; the release that follows finds no rank and does
// no harm.
TEST_F(LocalGroup, ReleaseAfterTheLenderHasClosed) {
  TransportRing ring(kLocal, 3);
  std::vector<std::uint8_t> data(8);
  std::vector<Completion> borrowed;
  for (std::int32_t rank : {1, 2}) {
    ASSERT_EQ(ring[0].send(rank, 1, data.data(), 8), RINGATTN_OK);
    ASSERT_EQ(ring[rank].receive(0, 1, nullptr, 8), RINGATTN_OK);
    borrowed.push_back(ring[rank].next().value());
  }
  ring[0].abort(RINGATTN_ERR_ABORTED, "");
  ring.close(0);
  ring[1].release(borrowed[0]);
  ring[1].release(borrowed[0]);
  ringattn_status status = RINGATTN_OK;
  EXPECT_FALSE(ring[1].poll(&status));
  EXPECT_EQ(status, RINGATTN_ERR_ABORTED);
  ring.close(2);  // with the other loan still taken
}

// Progress reports come once a second from every rank: they must not wake those that sleep.
TEST_F(LocalGroup, OnlyANewerCancelWakes) {
  TransportRing ring(kLocal, 2);
  std::thread telling([&] {
    for (std::uint64_t counter = 1; counter <= 40; ++counter) {
      ring[1].tell(counter, counter < 20 ? 0 : 1, 0, counter);
      if (counter == 19) std::this_thread::sleep_for(milliseconds(100));
    }
  });
  const auto start = Clock::now();
  ring[0].wait(std::chrono::seconds(60));
  EXPECT_GE(Clock::now() - start, milliseconds(80)) << "a beat without a newer cancel ended the wait";
  EXPECT_EQ(ring[0].ask(1).canceled, 1u);
  telling.join();
  ring[0].wait(milliseconds(0));  // the cancel may have been told between the wait's end and now
  const auto again = Clock::now();
  ring[1].tell(99, 1);  // the same cancel once more is no news
  ring[0].wait(milliseconds(50));
  EXPECT_GE(Clock::now() - again, milliseconds(45));
  ring[1].tell(99, 2);
  const auto own = Clock::now();
  ring[1].wait(milliseconds(50));  // and one's own is none to oneself
  EXPECT_GE(Clock::now() - own, milliseconds(45));
}

TEST_F(LocalGroup, AbortWithAStatusOfAnotherRangeIsAborted) {
  TransportRing ring(kLocal, 2);
  kLocal.table->abort(ring[0].handle(), RINGATTN_ERR_INVALID_ARGUMENT, nullptr);
  std::string reason;
  EXPECT_EQ(ring[1].state(&reason), RINGATTN_ERR_ABORTED);
  EXPECT_EQ(reason, "");
}

TEST_F(LocalGroup, AnIllegalTransferIsRefusedWholeAndNamed) {
  TransportRing ring(kLocal, 2);
  const std::uint8_t data = 0;
  ASSERT_EQ(ring[1].send(0, 1, &data, 1), RINGATTN_OK);
  EXPECT_EQ(ring[0].post({ring[0].receive_of(1, 1, nullptr, 1, 1), ring[0].send_of(2, 1, &data, 1, 2)}),
            RINGATTN_ERR_TRANSPORT);
  EXPECT_FALSE(ring[0].poll()) << "the legal half of a refused post was taken";
  std::string reason;
  EXPECT_EQ(ring[1].state(&reason), RINGATTN_ERR_TRANSPORT);
  EXPECT_EQ(reason, "rank 0 posted a transfer of kind 1 with rank 2 of 2");
  ringattn_beat_v1 beat{};
  beat.struct_size = sizeof beat;
  EXPECT_EQ(kLocal.table->ask(ring[0].handle(), 2, &beat), RINGATTN_ERR_INVALID_ARGUMENT);
}

// An older caller's structs are shorter: what it does not know is neither read nor written.
TEST_F(LocalGroup, ShorterStructsOfAnOlderCaller) {
  TransportRing ring(kLocal, 1);
  const std::uint8_t data = 3;
  ASSERT_EQ(ring[0].send(0, 1, &data, 1), RINGATTN_OK);
  ASSERT_EQ(ring[0].receive(0, 1, nullptr, 1, 9), RINGATTN_OK);
  Completion out;
  std::memset(&out, 0x5a, sizeof out);
  out.struct_size = offsetof(Completion, loan);
  std::int32_t count = 0;
  ASSERT_EQ(kLocal.table->test(ring[0].handle(), &out, 1, &count), RINGATTN_OK);
  ASSERT_EQ(count, 1);
  EXPECT_EQ(out.struct_size, offsetof(Completion, loan));
  EXPECT_EQ(out.user, 9u);
  EXPECT_EQ(out.loan, 0x5a5a5a5a5a5a5a5au);
}

}  // namespace
}  // namespace ringattn::test
