// A rank's place in a ring: sequence numbers, transfers, cancel, death.
#include "comm/comm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/spawn.h"

namespace ringattn::comm {
namespace {

class RingComm : public ::testing::Test {
 protected:
  void open(std::int32_t world) {
    const Status status = Comm::create_local(Log(), world, "local", CommOptions(), comms_);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  Comm& comm(int rank) { return *comms_[static_cast<std::size_t>(rank)]; }
  void settle() {
    const support::Watchdog watchdog("transfers of a comm", 30);
    for (bool open = true; open;) {
      open = false;
      for (auto& comm : comms_) {
        comm->poll();
        open = open || comm->pending() != 0;
      }
    }
  }

  std::vector<std::unique_ptr<Comm>> comms_;
};

TEST_F(RingComm, RanksOfOneRingShareAnIdThatNoOtherHas) {
  open(3);
  std::vector<std::unique_ptr<Comm>> others;
  ASSERT_TRUE(Comm::create_local(Log(), 1, "", CommOptions(), others).ok());
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(comm(rank).rank(), rank);
    EXPECT_EQ(comm(rank).world(), 3);
    EXPECT_EQ(comm(rank).ring_id(), comm(0).ring_id());
  }
  EXPECT_NE(others[0]->ring_id(), comm(0).ring_id());
  EXPECT_TRUE(comm(0).lends());
}

TEST_F(RingComm, CallsAreNumberedFromOneAndPeersHearOfThem) {
  open(2);
  EXPECT_FALSE(comm(0).entered(1, 1));
  EXPECT_EQ(comm(1).enter("test"), 1u);
  EXPECT_TRUE(comm(0).entered(1, 1));
  EXPECT_FALSE(comm(0).entered(1, 2));
  EXPECT_EQ(comm(1).enter("test"), 2u);
  EXPECT_EQ(comm(1).sequence(), 2u);
  EXPECT_TRUE(comm(0).entered(1, 2));
}

TEST_F(RingComm, WhomToWaitForIsFirstWhoHasNotEntered) {
  open(4);
  comm(0).enter("test");
  comm(1).enter("test");
  EXPECT_EQ(comm(0).whom_to_wait_for({1, 3}), 3);
  EXPECT_EQ(comm(0).whom_to_wait_for({1}), 1);
  EXPECT_EQ(comm(0).whom_to_wait_for({}), -1);
}

TEST_F(RingComm, ATransferIsAnsweredInsidePoll) {
  open(2);
  char text[] = "block";
  Transfer send, receive;
  int answered = 0;
  receive.owner = &answered;
  receive.on_done = [](Transfer& transfer) { ++*static_cast<int*>(transfer.owner); };
  comm(0).post(RINGATTN_TRANSFER_SEND, 1, 9, text, sizeof text, send);
  comm(1).post(RINGATTN_TRANSFER_RECEIVE, 0, 9, nullptr, sizeof text, receive);
  EXPECT_EQ(answered, 0);
  EXPECT_EQ(comm(1).poll(), 1);
  EXPECT_EQ(answered, 1);
  EXPECT_EQ(receive.status, RINGATTN_OK);
  EXPECT_FALSE(receive.pending);
  ASSERT_NE(receive.loan, 0u);
  EXPECT_STREQ(static_cast<const char*>(receive.data), "block");
  EXPECT_EQ(comm(0).poll(), 0) << "the memory is still lent";
  comm(1).give_back(receive);
  EXPECT_EQ(receive.loan, 0u);
  comm(1).give_back(receive);  // again does nothing
  EXPECT_EQ(comm(0).poll(), 1);
  EXPECT_EQ(comm(0).pending(), 0);
}

TEST_F(RingComm, MoreCompletionsThanOneLookTakes) {
  open(2);
  std::vector<Transfer> sends(100), receives(100);
  for (std::size_t i = 0; i < sends.size(); ++i) {
    comm(0).post(RINGATTN_TRANSFER_SEND, 1, i, nullptr, 0, sends[i]);
    comm(1).post(RINGATTN_TRANSFER_RECEIVE, 0, i, nullptr, 0, receives[i]);
  }
  EXPECT_EQ(comm(1).poll(), 100);
  for (Transfer& receive : receives) comm(1).give_back(receive);
  settle();
  for (const Transfer& send : sends) EXPECT_EQ(send.status, RINGATTN_OK);
}

TEST_F(RingComm, WithdrawTakesOnlyTheCallsOwnTransfers) {
  open(2);
  Transfer old_send, new_send;
  char byte = 1;
  comm(0).post(RINGATTN_TRANSFER_SEND, 1, tag_of(1, TagKind::block, 0), &byte, 1, old_send);
  comm(0).post(RINGATTN_TRANSFER_SEND, 1, tag_of(2, TagKind::block, 0), &byte, 1, new_send);
  comm(0).withdraw(1);
  EXPECT_EQ(comm(0).poll(), 1);
  EXPECT_EQ(old_send.status, RINGATTN_ERR_CANCELED);
  EXPECT_TRUE(new_send.pending);
  comm(0).withdraw(2);
  settle();
}

TEST_F(RingComm, ACancelIsHeardByEveryRankOfItsCallAlone) {
  open(3);
  const std::uint64_t sequence = comm(1).enter("test");
  comm(1).cancel(sequence);
  EXPECT_TRUE(comm(1).canceled_here(sequence));
  EXPECT_FALSE(comm(0).canceled_here(sequence));
  std::int32_t rank = -1;
  EXPECT_TRUE(comm(2).newly_canceled(sequence, &rank));
  EXPECT_EQ(rank, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));  // peers are asked once a millisecond
  EXPECT_FALSE(comm(2).newly_canceled(sequence + 1, &rank));
}

TEST_F(RingComm, AnOlderCancelDoesNotReplaceANewerOne) {
  open(2);
  comm(0).cancel(5);
  comm(0).cancel(3);
  EXPECT_TRUE(comm(0).canceled_here(5));
}

// A rank that cancels several calls before a late peer looks: each is known, those between are not canceled.
TEST_F(RingComm, EarlierCancelsAreStillKnown) {
  open(2);
  std::vector<std::uint64_t> canceled = {3, 4, 7, 40, 71, 72};
  for (const std::uint64_t sequence : canceled) comm(0).cancel(sequence);
  for (std::uint64_t sequence = 1; sequence <= 80; ++sequence) {
    // 3, 4 and 7 are more than 64 before 72
    const bool expected = sequence > 7 && std::count(canceled.begin(), canceled.end(), sequence) == 1;
    EXPECT_EQ(comm(0).canceled_here(sequence), expected) << sequence;
    std::int32_t rank = -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_EQ(comm(1).newly_canceled(sequence, &rank), expected) << sequence;
    EXPECT_EQ(comm(1).canceled_long_after(0, sequence), sequence + 64 < 72) << sequence;
  }
  comm(0).cancel(1000);
  EXPECT_FALSE(comm(0).canceled_here(72));
  EXPECT_TRUE(comm(0).canceled_here(1000));
}

TEST_F(RingComm, CancelFromAnotherThreadWakesAWaitingRank) {
  open(2);
  const support::Watchdog watchdog("cancel wakes", 30);
  const std::uint64_t sequence = comm(0).enter("test");
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    comm(1).cancel(sequence);
  });
  std::int32_t rank = -1;
  while (!comm(0).newly_canceled(sequence, &rank)) comm(0).wait(20'000'000'000ull);
  EXPECT_EQ(rank, 1);
  other.join();
}

TEST_F(RingComm, AnAbortedCommAnswersEveryPostAtOnce) {
  open(2);
  Transfer waiting;
  char byte = 0;
  comm(1).post(RINGATTN_TRANSFER_RECEIVE, 0, 1, nullptr, 1, waiting);
  EXPECT_TRUE(comm(1).state().ok());
  EXPECT_FALSE(comm(1).dead());
  comm(0).abort(RINGATTN_ERR_ABORTED, "why not");
  settle();
  EXPECT_EQ(waiting.status, RINGATTN_ERR_ABORTED);
  EXPECT_EQ(comm(1).state().code(), RINGATTN_ERR_ABORTED);
  EXPECT_NE(comm(1).state().message().find("why not"), std::string::npos);
  comm(1).poll();
  EXPECT_TRUE(comm(1).dead());
  Transfer late;
  int answered = 0;
  late.owner = &answered;
  late.on_done = [](Transfer& transfer) { ++*static_cast<int*>(transfer.owner); };
  comm(1).post(RINGATTN_TRANSFER_SEND, 0, 2, &byte, 1, late);
  EXPECT_EQ(answered, 1);
  EXPECT_EQ(late.status, RINGATTN_ERR_ABORTED);
  EXPECT_EQ(comm(1).pending(), 0);
}

TEST_F(RingComm, TagsOfDifferentThingsDiffer) {
  EXPECT_NE(tag_of(1, TagKind::digest, 5), tag_of(1, TagKind::block, 5));
  EXPECT_NE(tag_of(1, TagKind::block, 5), tag_of(2, TagKind::block, 5));
  EXPECT_EQ(tag_of(7, TagKind::block, 4095) & kSequenceMask, std::uint64_t{7} << 24);
  EXPECT_EQ(tag_of(7, TagKind::block, 4095), tag_of(7, TagKind::block, 4095));
}

}  // namespace
}  // namespace ringattn::comm
