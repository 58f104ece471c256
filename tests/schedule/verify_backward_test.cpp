// verify must see every kind of damage to a set of backward schedules. The damage is not chosen by hand: every operation is
// dropped, repeated and given another place, and every wait that matters is taken away, one at a time.
#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/reference.h"
#include "schedule/schedule.h"
#include "schedule/verify_parts.h"

namespace ringattn::schedule {
namespace {

struct Setting {
  PartitionKind partition;
  Mask mask;
  bool lends;
};

class VerifyGradients : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    problem_.seq_q = problem_.seq_k = 60;
    problem_.partition = GetParam().partition;
    problem_.mask = GetParam().mask;
    call_ = reference::whole(60);
    ASSERT_TRUE(layout_.build(problem_, kWorld, call_).ok());
    for (std::int32_t rank = 0; rank < kWorld; ++rank) {
      schedules_.emplace_back();
      generate_ring(problem_, layout_, rank, GetParam().lends, true, schedules_.back());
    }
    ASSERT_EQ(message(), "");
  }

  std::string message() const { return verify(problem_, call_, layout_, schedules_).message(); }

  std::string place(const Schedule& schedule, std::size_t operation) const {
    return violation(schedule, operation, "").message();
  }

  // Calls damage(schedule, i) for every operation i of every rank, expects a violation, and mends the schedule.
  template <typename Damage>
  void expect_seen(const char* what, Damage&& damage) {
    for (Schedule& schedule : schedules_) {
      const Schedule whole = schedule;
      for (std::size_t i = 0; i < whole.operations.size(); ++i) {
        if (!damage(schedule, i)) continue;
        EXPECT_NE(message(), "") << what << ": " << place(whole, i);
        schedule = whole;
      }
    }
  }

  static constexpr std::int32_t kWorld = 6;
  Problem problem_;
  Call call_;
  Layout layout_;
  std::vector<Schedule> schedules_;
};

void drop(Schedule& schedule, std::size_t dropped) {
  const Schedule old = schedule;
  schedule.operations.clear();
  schedule.after.clear();
  const auto moved = [&](std::int32_t index) {
    return index > static_cast<std::int32_t>(dropped) ? index - 1 : index;
  };
  for (std::size_t i = 0; i < old.operations.size(); ++i) {
    if (i == dropped) continue;
    Operation op = old.operations[i];
    const auto waits = old.after_of(op);
    op.source = moved(op.source);
    op.after_first = static_cast<std::int32_t>(schedule.after.size());
    op.after_count = 0;
    for (const std::int32_t before : waits) {
      if (before == static_cast<std::int32_t>(dropped)) continue;
      schedule.after.push_back(moved(before));
      ++op.after_count;
    }
    schedule.operations.push_back(op);
  }
}

TEST_P(VerifyGradients, DroppedOperations) {
  expect_seen("dropped", [](Schedule& schedule, std::size_t i) {
    drop(schedule, i);
    return true;
  });
}

TEST_P(VerifyGradients, RepeatedOperations) {
  expect_seen("repeated", [](Schedule& schedule, std::size_t i) {
    schedule.operations.push_back(schedule.operations[i]);
    return true;
  });
}

TEST_P(VerifyGradients, WrongTargets) {
  for (const std::int32_t target : {-1, 0, 1, 2, 3}) {
    expect_seen("another target", [&](Schedule& schedule, std::size_t i) {
      Operation& op = schedule.operations[i];
      const bool uses_it =
          op.kind == Kind::attend || (op.gradient && op.kind != Kind::receive && op.kind != Kind::release);
      if (!uses_it || op.target == target) return false;
      op.target = target;
      return true;
    });
  }
}

TEST_P(VerifyGradients, WrongPeersBlocksBytesAndBuffers) {
  expect_seen("another peer", [](Schedule& schedule, std::size_t i) {
    Operation& op = schedule.operations[i];
    if (op.peer < 0) return false;
    op.peer = (op.peer + 1) % kWorld;
    return true;
  });
  expect_seen("another block", [](Schedule& schedule, std::size_t i) {
    Operation& op = schedule.operations[i];
    if (op.block < 0) return false;
    op.block = (op.block + 1) % kWorld;
    return true;
  });
  expect_seen("fewer bytes", [](Schedule& schedule, std::size_t i) {
    Operation& op = schedule.operations[i];
    if (op.bytes == 0 || op.kind == Kind::finalize) return false;
    --op.bytes;
    return true;
  });
  expect_seen("another buffer", [](Schedule& schedule, std::size_t i) {
    Operation& op = schedule.operations[i];
    const bool uses_it = op.gradient && op.kind != Kind::finalize;
    if (!uses_it) return false;
    op.buffer += 1;
    return true;
  });
  expect_seen("another source", [](Schedule& schedule, std::size_t i) {
    Operation& op = schedule.operations[i];
    if (op.source < 0) return false;
    op.source -= 1;
    return true;
  });
}

// A wait whose end is implied by other waits may go; every other one must not.
TEST_P(VerifyGradients, MissingWaits) {
  for (Schedule& schedule : schedules_) {
    const Schedule whole = schedule;
    for (std::size_t i = 0; i < whole.operations.size(); ++i) {
      for (std::int32_t n = 0; n < whole.operations[i].after_count; ++n) {
        Operation& op = schedule.operations[i];
        const auto first = schedule.after.begin() + op.after_first;
        const auto before = static_cast<std::size_t>(first[n]);
        std::swap(first[n], first[op.after_count - 1]);
        --op.after_count;
        if (!Ancestors(schedule).before(before, i)) {
          EXPECT_NE(message(), "") << place(whole, i) << "does not wait for " << place(whole, before);
        }
        schedule = whole;
      }
    }
  }
}

TEST_P(VerifyGradients, MixedPasses) {
  generate_ring(problem_, layout_, 2, GetParam().lends, false, schedules_[2]);
  EXPECT_NE(message().find("its schedule is for rank 2 of 6"), std::string::npos) << message();
}

INSTANTIATE_TEST_SUITE_P(, VerifyGradients,
                         testing::Values(Setting{PartitionKind::contiguous, {}, true},
                                         Setting{PartitionKind::contiguous, {}, false},
                                         Setting{PartitionKind::contiguous, {kUnbounded, 0}, false},
                                         Setting{PartitionKind::zigzag, {1, 0}, true},
                                         Setting{PartitionKind::zigzag, {1, 0}, false}),
                         [](const auto& info) {
                           return std::string(info.param.lends ? "lends" : "copies") +
                                  std::to_string(info.index);
                         });

}  // namespace
}  // namespace ringattn::schedule
