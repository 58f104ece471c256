// Some dozens of random faults, kind by kind. After each, every survivor has named what happened, holds nothing of the old
// ring, and has made a new one in the same process whose results are right.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/faults/hosts.h"
#include "tests/faults/on_transport.h"
#include "tests/faults/summary.h"

namespace ringattn::faults {
namespace {

class Faults : public OnTransport {
 protected:
  // `seed` 0: the kind's own.
  void expect_well(Kind kind, int count, std::uint64_t seed = 0,
                   const std::function<void(Fault&)>& change = {}) {
    const std::set<std::string> files = shared_memory_files();
    Summary summary;
    Batch batch{.kinds = {kind}, .transports = {GetParam()}, .count = (count + kSlowdown - 1) / kSlowdown};
    batch.first_seed = seed != 0 ? seed : 1 + 1000 * static_cast<std::uint64_t>(kind);
    batch.limits.silence = std::chrono::seconds(15 * kSlowdown);
    batch.change = change;
    const bool waits = kind == Kind::stop || kind == Kind::meeting || kind == Kind::cut;
    batch.at_once = waits ? 4 : 2;
    run_batch(batch, [&](const Outcome& outcome) {
      summary.add(outcome);
      EXPECT_TRUE(outcome.ok()) << outcome.text();
      return true;
    });
    std::fputs(summary.text().c_str(), stdout);  // the times, for whoever reads the log
    // UCX has its shared memory named for a moment while it makes it: who is killed then leaves it.
    if (kind != Kind::meeting) {
      EXPECT_EQ(shared_memory_files(), files) << "left in /dev/shm";
    }
  }
};
RINGATTN_ON_EVERY_TRANSPORT(Faults);

TEST_P(Faults, AKilledRankIsNamedByAllOthers) { expect_well(Kind::kill, 6); }
TEST_P(Faults, AKilledRankThatIsAZombieIsNamedByAllOthers) { expect_well(Kind::zombie, 6); }
TEST_P(Faults, ARankThatExitsWithoutLeavingIsNamedByAllOthers) { expect_well(Kind::exit, 3); }
TEST_P(Faults, ARankThatLeavesEarlyIsNamedByAllOthers) { expect_well(Kind::leave, 4); }
TEST_P(Faults, AStoppedRankIsNamedAtTheDeadlineAndFailsWhenItWakes) { expect_well(Kind::stop, 4); }
// One token: rank 1 has none, so the only bytes are those of the agreement, and they may all have been sent when it stops.
TEST_P(Faults, ARankThatIsStoppedWhereOnlyTheAgreementIsSentIsNamed) {
  expect_well(Kind::stop, 8, 0, [](Fault& fault) {
    fault.ranks = 2;
    fault.victim = 1;
    fault.problem.queries = fault.problem.keys = 1;
    fault.problem.ranks = 2;
  });
}
TEST_P(Faults, ARankThatIsStoppedForAMomentDisturbsNobody) { expect_well(Kind::pause, 3); }
TEST_P(Faults, ARankThatTakesTenTimesTheTimeoutForAStepIsWaitedFor) { expect_well(Kind::slow, 2); }
// What a rank says it waits for is one of several, so a circle of them may have the slow one outside.
TEST_P(Faults, ASlowRankOutsideACircleOfWaitingOnesIsWaitedFor) { expect_well(Kind::slow, 1, 10707); }
TEST_P(Faults, AnAbortFromAnotherThreadEndsAllRanksWithItsReason) { expect_well(Kind::abort, 5); }
TEST_P(Faults, ARefusalIsNamedAndTheRingGoesOn) { expect_well(Kind::refuse, 3); }
TEST_P(Faults, DifferentCallsAreNamedAndTheRingGoesOn) { expect_well(Kind::mismatch, 3); }
TEST_P(Faults, ACutCableIsNamedByAllRanks) {
  const std::string reason = Network::why_not();
  if (!reason.empty()) GTEST_SKIP() << "no network namespaces: " << reason;
  expect_well(Kind::cut, 4);
}
TEST_P(Faults, ADeathWhileTheyMeetEndsTheMeetingForAll) { expect_well(Kind::meeting, 4); }

}  // namespace
}  // namespace ringattn::faults
