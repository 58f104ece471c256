// What goes well, but for long or amid much else: many small steps, children that are forked while messages move, what an
// aborted step has left under way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "ringattn.h"
#include "tests/faults/crew.h"
#include "tests/faults/on_transport.h"

namespace ringattn::faults {
namespace {

class Traffic : public OnTransport {
 protected:
  RingOrder ring() const { return {.transport = GetParam()}; }
  void prepare(Crew& crew, const std::string& problem) const {
    crew.within(std::chrono::minutes(30), std::chrono::seconds(30));
    crew.prepare(Message("context").with("threads", 1), problem, GetParam());
  }
};
RINGATTN_ON_EVERY_TRANSPORT(Traffic);

constexpr int kRepeats = 50;  // checking takes longer than a step

// RINGATTN_FAULTS_STEPS asks for more, such as 100000, however long they take.
struct Steps {
  int count = 5000 / kSlowdown;
  std::chrono::seconds longest{8};
};
Steps steps() {
  const char* const given = std::getenv("RINGATTN_FAULTS_STEPS");
  return given == nullptr ? Steps() : Steps{std::max(std::atoi(given), 1000), std::chrono::hours(24)};
}

// Messages just large enough to go by the carrier, where there is one.
TEST_P(Traffic, ManySmallStepsNeedNoMoreAndMoreMemory) {
  constexpr int kRanks = 2;
  Crew crew(kRanks);
  prepare(crew, "n=32 heads=2 dim=64 mask=causal partition=zigzag");
  const Members all = crew.everybody();
  crew.make_ring(all, ring());
  const auto run = [&](int count) {
    const Message order = Message("run").with("ring", ring().name).with("repeat", kRepeats);
    for (const Message& answer : crew.ask(all, Message(order).with("count", count / kRepeats))) {
      EXPECT_EQ(answer.number("status", -1), RINGATTN_OK) << text_of(0, answer);
      EXPECT_FALSE(answer.has("wrong")) << answer.text("wrong");
    }
  };
  const Steps wanted = steps();
  constexpr int kChunk = 500;
  run(kChunk);
  const std::vector<Holdings> before = crew.holdings(all);
  const auto start = Clock::now();
  int made = 0;
  for (; made < wanted.count && Clock::now() - start < wanted.longest; made += kChunk) run(kChunk);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const std::vector<Holdings> after = crew.holdings(all, before);
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    const std::int64_t grown = after[rank].resident_kib - before[rank].resident_kib;
    std::printf("%s: rank %zu: %d steps in %.1f s, %lld KiB more than the %lld KiB before\n",
                GetParam().c_str(), rank, made, seconds, static_cast<long long>(grown),
                static_cast<long long>(before[rank].resident_kib));
    EXPECT_LT(grown, 256) << "a loss of 52 bytes a step makes that of 5000 steps, of 3 bytes that of 100 000";
    EXPECT_EQ(after[rank].more_than(before[rank]), "");
  }
  crew.leave(all, ring());
  crew.dismiss(all);
}

// Megabytes are on their way for most of the time. A fork makes every page of the parent copy-on-write, also those that
// are being read or written for a peer.
TEST_P(Traffic, AForkInMidTransferChangesNoByte) {
  constexpr int kRanks = 2;
  Crew crew(kRanks);
  prepare(crew, "n=32 batch=128 heads=4 dim=64 mask=causal partition=zigzag");
  const Members all = crew.everybody();
  crew.make_ring(all, ring());
  const Message order = Message("run").with("ring", ring().name).with("count", 6).with("fork_us", 3000);
  for (const Message& answer : crew.ask(all, order)) {
    EXPECT_EQ(answer.number("status", -1), RINGATTN_OK) << text_of(0, answer);
    EXPECT_FALSE(answer.has("wrong")) << answer.text("wrong");
    EXPECT_GT(answer.number("children"), 20);
    std::printf("%s: %s children\n", GetParam().c_str(), answer.text("children").c_str());
  }
  crew.leave(all, ring());
  crew.dismiss(all);
}

// What was under way when the step was aborted has the same ranks and tags as what the next ring sends at once: its first
// steps have the same numbers in both.
TEST_P(Traffic, LateMessagesOfAnAbortedStepDoNotReachTheNextRing) {
  constexpr int kRanks = 3;
  Crew crew(kRanks);
  prepare(crew, "n=96 batch=64 heads=2 dim=32 mask=causal partition=zigzag");
  const Members all = crew.everybody();
  for (int round = 0; round < 10 / kSlowdown; ++round) {
    crew.make_ring(all, ring());
    const int rank = round % kRanks;
    crew.must({rank}, Message("abort_later").with("ring", ring().name).with("in_us", 500 + 700 * round));
    const Message order =
        Message("run").with("ring", ring().name).with("first", 2 * round).with("count", 1 << 20);
    for (const Message& answer : crew.ask(all, order))
      EXPECT_EQ(answer.number("status", -1), RINGATTN_ERR_ABORTED) << text_of(0, answer);
    crew.leave(all, ring());
    crew.make_ring(all, ring());
    crew.run(all, ring(), 2 * round + 2, 2);
    crew.leave(all, ring());
  }
  crew.dismiss(all);
}

}  // namespace
}  // namespace ringattn::faults
