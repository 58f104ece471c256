// verify must see every kind of damage: each test breaks one thing in a correct set of schedules.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "schedule/reference.h"
#include "schedule/schedule.h"

namespace ringattn::schedule {
namespace {

class Verify : public testing::TestWithParam<bool> {  // lends?
 protected:
  void SetUp() override {
    problem_.seq_q = problem_.seq_k = 60;
    call_ = reference::whole(60);
    ASSERT_TRUE(layout_.build(problem_, 6, call_).ok());
    for (std::int32_t rank = 0; rank < 6; ++rank) {
      schedules_.emplace_back();
      generate_ring(problem_, layout_, rank, GetParam(), false, schedules_.back());
    }
    const Status status = verify(problem_, call_, layout_, schedules_);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  // Index of the n-th operation of the kind at a rank.
  std::size_t find(std::int32_t rank, Kind kind, int n = 0) {
    const auto& operations = schedules_[static_cast<std::size_t>(rank)].operations;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      if (operations[i].kind == kind && n-- == 0) return i;
    }
    ADD_FAILURE() << "no such operation";
    return 0;
  }
  Operation& at(std::int32_t rank, Kind kind, int n = 0) {
    return schedules_[static_cast<std::size_t>(rank)].operations[find(rank, kind, n)];
  }

  // Makes the schedule anew from operations and what each waits for, in a new order: order[i] is what becomes
  // operation i.
  void reorder(std::int32_t rank, const std::vector<std::size_t>& order) {
    Schedule& schedule = schedules_[static_cast<std::size_t>(rank)];
    const Schedule old = schedule;
    schedule.operations.clear();
    schedule.after.clear();
    for (const std::size_t from : order) {
      Operation op = old.operations[from];
      const auto waits = old.after_of(op);
      op.after_first = static_cast<std::int32_t>(schedule.after.size());
      op.after_count = 0;
      for (const std::int32_t before : waits) {
        const auto place = std::find(order.begin(), order.end(), static_cast<std::size_t>(before));
        if (place == order.end()) continue;  // dropped
        schedule.after.push_back(static_cast<std::int32_t>(place - order.begin()));
        ++op.after_count;
      }
      schedule.operations.push_back(op);
    }
  }
  void drop(std::int32_t rank, std::size_t operation) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < schedules_[static_cast<std::size_t>(rank)].operations.size(); ++i) {
      if (i != operation) order.push_back(i);
    }
    reorder(rank, order);
  }
  void repeat(std::int32_t rank, std::size_t operation) {
    auto& operations = schedules_[static_cast<std::size_t>(rank)].operations;
    operations.push_back(operations[operation]);
  }
  void wait_for_nothing(Operation& op) { op.after_count = 0; }
  void wait_also_for(std::int32_t rank, std::size_t later, std::size_t earlier) {
    Schedule& schedule = schedules_[static_cast<std::size_t>(rank)];
    Operation& op = schedule.operations[later];
    const std::vector<std::int32_t> waits(schedule.after_of(op).begin(), schedule.after_of(op).end());
    op.after_first = static_cast<std::int32_t>(schedule.after.size());
    schedule.after.insert(schedule.after.end(), waits.begin(), waits.end());
    schedule.after.push_back(static_cast<std::int32_t>(earlier));
    ++op.after_count;
  }

  void expect_violation(const std::string& words) {
    const Status status = verify(problem_, call_, layout_, schedules_);
    EXPECT_EQ(status.code(), RINGATTN_ERR_INTERNAL);
    EXPECT_NE(status.message().find(words), std::string::npos) << words << " in: " << status.message();
  }
  bool lends() const { return GetParam(); }

  Problem problem_;
  Call call_;
  Layout layout_;
  std::vector<Schedule> schedules_;
};
INSTANTIATE_TEST_SUITE_P(CopiesAndLends, Verify, testing::Bool(),
                         [](const auto& info) { return info.param ? "Lends" : "Copies"; });

TEST_P(Verify, MissingAttend) {
  drop(2, find(2, Kind::attend, 3));
  expect_violation("rank 2: block 5 is attended 0 times; expected 1");
}

TEST_P(Verify, AttendTwice) {
  repeat(2, find(2, Kind::attend, 1));
  expect_violation("rank 2: block 1 is attended 2 times; expected 1");
}

TEST_P(Verify, AttendOfNothing) {
  problem_.mask.right = 0;  // rank 0 now sees no block but its own
  expect_violation("rank 0: block 1 is attended 1 times; expected 0");
}

TEST_P(Verify, AttendOfAnotherBlock) {
  at(2, Kind::attend, 1).block = 5;
  expect_violation("rank 2: block 1 is attended 0 times");
}

TEST_P(Verify, WrongPeer) {
  at(1, Kind::send, 2).peer = 4;
  expect_violation("operation");
  at(1, Kind::send, 2).peer = 1;
  expect_violation("no such peer");
}

TEST_P(Verify, WrongBlock) {
  at(1, Kind::send, 1).block = 1;
  expect_violation("operation");
}

TEST_P(Verify, WrongBytes) {
  at(3, Kind::receive, 1).bytes += 1;
  expect_violation("rank 3, operation");
  --at(3, Kind::receive, 1).bytes;
  at(3, Kind::send, 1).bytes = 0;
  expect_violation("0 bytes");
}

TEST_P(Verify, MissingSend) {
  drop(4, find(4, Kind::send, 4));
  expect_violation("nobody sends it");
}

TEST_P(Verify, MissingReceive) {
  drop(4, find(4, Kind::receive, 4));
  expect_violation("nobody receives it");
}

TEST_P(Verify, TransferTwice) {
  repeat(1, find(1, Kind::send, 0));
  repeat(2, find(2, Kind::receive, 0));
  expect_violation("twice");
}

TEST_P(Verify, MissingRelease) {
  drop(4, find(4, Kind::release, 4));
  expect_violation("never released");
}

TEST_P(Verify, ReleaseTwice) {
  repeat(4, find(4, Kind::release, 4));
  expect_violation("is there twice");
}

TEST_P(Verify, AttendBeforeArrival) {
  wait_for_nothing(at(5, Kind::attend, 2));
  expect_violation("may start before the block is here");
}

TEST_P(Verify, SendOnBeforeArrival) {
  wait_for_nothing(at(5, Kind::send, 2));
  expect_violation("may start before the block is here");
}

TEST_P(Verify, ReleaseBeforeTheLastUse) {
  Operation& release = at(5, Kind::release, 1);
  ASSERT_EQ(release.after_count, 2);
  --release.after_count;  // no longer waits for the send
  expect_violation("may still run when the block is released");
  ++release.after_first;  // for the send, but no longer for the attend
  expect_violation("may still run when the block is released");
}

TEST_P(Verify, FinalizeBeforeTheLastAttend) {
  --at(0, Kind::finalize).after_count;
  expect_violation("the result may be written before it ends");
}

TEST_P(Verify, MissingOrSecondFinalize) {
  repeat(0, find(0, Kind::finalize));
  expect_violation("is there twice");
  schedules_[0].operations.pop_back();
  drop(0, find(0, Kind::finalize));
  expect_violation("no operation finalizes");
}

TEST_P(Verify, OwnBlockReceived) {
  at(0, Kind::receive, 4).block = 0;
  expect_violation("rank");
}

TEST_P(Verify, WaitsForItselfOrLater) {
  const std::size_t attend = find(0, Kind::attend, 1);
  wait_also_for(0, attend, attend);
  expect_violation("which is not earlier");
}

TEST_P(Verify, WaitsOutsideTheList) {
  at(0, Kind::finalize).after_count = 1000;
  expect_violation("outside the schedule's");
}

TEST_P(Verify, StepsOutOfOrder) {
  std::swap(at(0, Kind::attend, 1).step, at(0, Kind::attend, 2).step);
  expect_violation("steps do not grow");
}

TEST_P(Verify, RanksOfAnotherRing) {
  schedules_[3].rank = 2;
  expect_violation("rank 3");
  schedules_[3].rank = 3;
  schedules_[3].lends = !lends();
  expect_violation("rank 3");
  schedules_.pop_back();
  expect_violation("5 schedules for 6 ranks");
}

TEST_P(Verify, OperationsOfOtherSchedules) {
  at(0, Kind::attend).kind = Kind::accumulate;
  expect_violation("no schedule of this kind has this operation");
  at(0, Kind::accumulate).kind = Kind::attend;
  at(0, Kind::attend).block = 6;
  expect_violation("no such block");
}

// Everyone sends its own block only once it has received one.
TEST_P(Verify, DeadlockOfSendsThatWaitForReceives) {
  for (std::int32_t rank = 0; rank < 6; ++rank) {
    const std::size_t receive = find(rank, Kind::receive), send = find(rank, Kind::send);
    std::vector<std::size_t> order(schedules_[static_cast<std::size_t>(rank)].operations.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::rotate(order.begin() + static_cast<std::ptrdiff_t>(send),
                order.begin() + static_cast<std::ptrdiff_t>(send) + 1,
                order.begin() + static_cast<std::ptrdiff_t>(receive) + 1);
    reorder(rank, order);
    wait_also_for(rank, receive, receive - 1);
    const bool last = rank == 5;
    const Status status = verify(problem_, call_, layout_, schedules_);
    EXPECT_EQ(status.ok(), !last) << status.message();  // one rank that does not wait breaks the circle
  }
  expect_violation("never ends: the ranks wait for each other");
}

class VerifyCopies : public Verify {};
INSTANTIATE_TEST_SUITE_P(Copies, VerifyCopies, testing::Values(false));

// Every single wait that protects something is needed: without it, verify finds a timing that goes wrong.
TEST_P(VerifyCopies, EveryWaitIsNeeded) {
  int waits = 0;
  for (Schedule& schedule : schedules_) {
    const Schedule correct = schedule;
    for (std::size_t i = 0; i < correct.operations.size(); ++i) {
      for (std::int32_t w = 0; w < correct.operations[i].after_count; ++w) {
        Operation& op = schedule.operations[i];
        if (op.kind == Kind::finalize)
          continue;  // waits for all attends, some of which others wait for already
        std::swap(schedule.after[static_cast<std::size_t>(op.after_first)],
                  schedule.after[static_cast<std::size_t>(op.after_first + w)]);
        ++op.after_first;
        --op.after_count;
        EXPECT_FALSE(verify(problem_, call_, layout_, schedules_).ok())
            << "rank " << schedule.rank << ", operation " << i << " (" << name_of(op.kind) << "), wait " << w;
        schedule = correct;
        ++waits;
      }
    }
  }
  EXPECT_EQ(waits,
            6 * (1 + 3 + 4 + 5 + 9));  // own send, receives from the third on, sends on, attends, releases
}

TEST_P(VerifyCopies, BufferOverwritten) {
  wait_for_nothing(at(0, Kind::receive, 2));
  expect_violation("may overwrite block 5, which may still be read");
}

TEST_P(VerifyCopies, TooFewBuffers) {
  for (Operation& op : schedules_[0].operations) {
    if (op.buffer == 1) op.buffer = 0;
  }
  schedules_[0].receive_buffers = 1;
  expect_violation("may overwrite block");
}

TEST_P(VerifyCopies, BuffersBeyondThePromise) {
  schedules_[0].receive_buffers = 1;
  expect_violation("no such buffer");
  schedules_[0].receive_buffers = 3;
  expect_violation("a receive buffer is never used");
}

TEST_P(VerifyCopies, AttendInAnotherBuffer) {
  at(0, Kind::attend, 2).buffer ^= 1;
  expect_violation("looks for the block in another buffer");
  at(0, Kind::attend, 2).buffer ^= 1;
  at(0, Kind::attend, 0).buffer = 0;
  expect_violation("the own block is in no receive buffer");
}

TEST_P(VerifyCopies, SendBeforeThePack) {
  wait_for_nothing(at(0, Kind::send));
  expect_violation("may start before the block is packed");
  drop(0, find(0, Kind::pack));
  expect_violation("may start before the block is packed");
}

TEST_P(VerifyCopies, PackOfAnotherBlock) {
  at(0, Kind::pack).block = 1;
  expect_violation("their own block");
}

// With one buffer, and every receive waiting until it is free: safe, but all ranks wait for each other (see
// ring.cpp).
TEST_P(VerifyCopies, DeadlockOfOneBuffer) {
  for (std::int32_t rank = 0; rank < 6; ++rank) {
    Schedule& schedule = schedules_[static_cast<std::size_t>(rank)];
    for (Operation& op : schedule.operations) {
      if (op.buffer == 1) op.buffer = 0;
    }
    schedule.receive_buffers = 1;
    for (int n = 1; n < 5; ++n)
      wait_also_for(rank, find(rank, Kind::receive, n), find(rank, Kind::release, n - 1));
  }
  expect_violation("never ends: the ranks wait for each other");
}

class VerifyLends : public Verify {};
INSTANTIATE_TEST_SUITE_P(Lends, VerifyLends, testing::Values(true));

TEST_P(VerifyLends, LentBlocksGoBackToWhereTheyCameFrom) {
  at(3, Kind::release, 1).peer = 5;
  expect_violation("the block came from rank 2");
}

TEST_P(VerifyLends, LendingHasNoBuffers) {
  schedules_[1].receive_buffers = 2;
  expect_violation("a receive buffer is never used");
  schedules_[1].receive_buffers = 0;
  for (Operation& op : schedules_[1].operations) op.buffer = op.block == 0 ? 0 : -1;
  expect_violation("a lent block needs no buffer");
}

// Shards, too: a layout that does not belong to the problem or the call.
TEST(VerifyShards, LayoutOfAnotherCall) {
  Problem problem;
  problem.seq_q = problem.seq_k = 60;
  problem.max_sequences = 2;
  Layout layout;
  ASSERT_TRUE(layout.build(problem, 3, reference::whole(60)).ok());
  std::vector<Schedule> schedules(3);
  for (std::int32_t rank = 0; rank < 3; ++rank) {
    generate_ring(problem, layout, rank, true, false, schedules[static_cast<std::size_t>(rank)]);
  }
  const auto message = [&](const Call& call) { return verify(problem, call, layout, schedules).message(); };
  EXPECT_EQ(message(reference::whole(60)), "");
  EXPECT_NE(message(reference::whole(61)).find("queries of sequence 0: token 60 is held by no rank"),
            std::string::npos);
  EXPECT_NE(message(reference::whole(59)).find("token 59 is outside the sequence"), std::string::npos);
  EXPECT_NE(message(reference::documents({60, 1})).find("sequence 1: token 0 is held by no rank"),
            std::string::npos);
  EXPECT_NE(message(Call()).find("which is not in row 0"), std::string::npos);
  Call rows = reference::documents({60, 60});
  rows.rows = 2;
  EXPECT_NE(message(rows).find("the layout is that of another call"), std::string::npos);
}

TEST(VerifyShards, PositionHeldTwice) {
  Problem problem;
  problem.partition = PartitionKind::explicit_runs;
  problem.seq_q = problem.seq_k = 6;
  problem.runs_k = {{{0, 3, 1}}, {{2, 4, 1}}};  // as if check_cover had not been asked
  Layout layout;
  ASSERT_TRUE(layout.build(problem, 2, reference::whole(6)).ok());
  std::vector<Schedule> schedules(2);
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    generate_ring(problem, layout, rank, true, false, schedules[static_cast<std::size_t>(rank)]);
  }
  const Status status = verify(problem, reference::whole(6), layout, schedules);
  EXPECT_NE(status.message().find("token 2 is held twice"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace ringattn::schedule
