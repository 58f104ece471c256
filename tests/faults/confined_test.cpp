// Over ucx: processes that may not do everything that its fastest ways need. Either it goes another way, or it says why not.
#include <gtest/gtest.h>

#include <cstdio>

#include "ringattn.h"
#include "tests/faults/confine.h"
#include "tests/faults/crew.h"
#include "tests/faults/on_transport.h"

namespace ringattn::faults {
namespace {

constexpr int kRanks = 3;
// Blocks of some hundred kilobytes.
constexpr const char* kProblem = "n=96 batch=16 heads=2 dim=32 mask=causal partition=zigzag";

class Confined : public OnTransport {
 protected:
  RingOrder ring() const { return {.transport = GetParam()}; }

  // "" or why these ranks cannot be made to give it up.
  static std::string give_up(Crew& crew, const Members& members, const std::string& what) {
    const auto order = [&](int rank) {
      return Message("give_up").with("what", what).with("number", 20'000 + rank);
    };
    for (const Message& answer : crew.ask(members, order)) {
      if (answer.number("status", -1) != RINGATTN_OK) return answer.text("message");
    }
    return "";
  }

  void prepare(Crew& crew) const {
    crew.within(std::chrono::seconds(60));
    crew.prepare(Message("context").with("threads", 1).with("hear_log", 1), kProblem, GetParam());
  }

  // A ring whose results are right; the lanes that its ranks have.
  std::vector<std::string> run_a_ring(Crew& crew) const {
    const Members all = crew.everybody();
    std::vector<std::string> lanes;
    for (const Message& answer : crew.ask(all, crew.join_orders(all, ring()))) {
      EXPECT_EQ(answer.number("status", -1), RINGATTN_OK) << text_of(static_cast<int>(lanes.size()), answer);
      lanes.push_back(answer.text("lanes"));
    }
    std::printf("lanes: %s\n", lanes[0].c_str());
    if (HasFailure()) return lanes;
    crew.must(all, Message("plan").with("ring", ring().name));
    crew.run(all, ring(), 0, 6);
    crew.leave(all, ring());
    return lanes;
  }
};
INSTANTIATE_TEST_SUITE_P(Over, Confined, ::testing::Values("ucx"),
                         [](const auto& info) { return info.param; });

// As in containers with Docker's filter of system calls.
TEST_P(Confined, RanksThatMayNotReadOthersMemoryShareSome) {
  Crew crew(kRanks);
  const std::string why_not = give_up(crew, crew.everybody(), "memory");
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  prepare(crew);
  for (const std::string& lanes : run_a_ring(crew)) EXPECT_EQ(lanes, "posix");
  crew.dismiss(crew.everybody());
}

TEST_P(Confined, OneRankThatMayNotReadOthersMemoryIsReachedAnotherWay) {
  Crew crew(kRanks);
  const std::string why_not = give_up(crew, {1}, "memory");
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  prepare(crew);
  EXPECT_EQ(run_a_ring(crew)[1], "posix");
  crew.dismiss(crew.everybody());
}

TEST_P(Confined, RanksOfDifferentUsersUseTheNetwork) {
  Crew crew(kRanks);
  const std::string why_not = give_up(crew, crew.everybody(), "user");
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  prepare(crew);
  for (const std::string& lanes : run_a_ring(crew)) EXPECT_EQ(lanes, "tcp");
  crew.dismiss(crew.everybody());
}

// As in containers that share processes and no more: UCX finds the memory by /proc.
TEST_P(Confined, RanksWithADevShmOfTheirOwnReachEachOther) {
  Crew crew(kRanks);
  const std::string why_not = give_up(crew, {0, 1}, "shm");
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  prepare(crew);
  run_a_ring(crew);
  crew.dismiss(crew.everybody());
}

// From far too little to what containers have. With too little they connect another way; that it runs out later, while the ring
// works, must not be possible.
TEST_P(Confined, ASmallDevShmIsEnoughOrNotUsed) {
  for (const bool reads : {true, false}) {
    Crew crew(kRanks);
    const std::string why_not = reads ? "" : give_up(crew, crew.everybody(), "memory");
    if (!why_not.empty()) GTEST_SKIP() << why_not;
    prepare(crew);
    for (const int size : {1, 9, 12, 13, 14, 16, 24, 64}) {
      const SmallSharedMemory small(std::to_string(size) + "m");
      if (!small.ok()) GTEST_SKIP() << "no /dev/shm of its own: that needs root";
      std::printf("/dev/shm of %d m, memory of others %s: ", size, reads ? "may be read" : "may not be read");
      const std::string lanes = run_a_ring(crew)[0];
      const std::string shared = reads ? "posix, cma" : "posix";
      EXPECT_EQ(lanes, size == 1 ? "tcp" : size == 64 ? shared : lanes);
    }
    crew.dismiss(crew.everybody());
  }
}

}  // namespace
}  // namespace ringattn::faults
