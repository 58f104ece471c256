// Public bug reports about hangs, aborts, timeouts and lost processes, on rings of processes (part b of the cases). The
// same numbers in tests/e2e/cases_comm_test.cpp are rings inside one process.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>

#include "ringattn.h"
#include "tests/faults/crew.h"
#include "tests/faults/on_transport.h"

namespace ringattn::faults {
namespace {

constexpr const char* kProblem = "n=24 heads=2 dim=8 mask=causal partition=zigzag";

class Cases : public OnTransport {
 protected:
  RingOrder ring(const std::string& name = "ring") const { return {.name = name, .transport = GetParam()}; }

  // Processes that are ready to join.
  void prepare(Crew& crew, const std::string& problem = kProblem) const {
    crew.within(std::chrono::seconds(120));
    crew.prepare(Message("context").with("threads", 1), problem, GetParam());
  }
};
RINGATTN_ON_EVERY_TRANSPORT(Cases);

ringattn_status status_of(const Message& answer) {
  return static_cast<ringattn_status>(answer.number("status", RINGATTN_ERR_INTERNAL));
}

void expect_says(const Message& answer, ringattn_status status, const std::string& part) {
  EXPECT_EQ(status_of(answer), status) << text_of(0, answer);
  EXPECT_NE(answer.text("message").find(part), std::string::npos) << text_of(0, answer);
}

TEST_P(Cases, B029SixteenProcessesManyRoundsWithRandomSleeps) {
  Crew crew(16);
  prepare(crew, "n=64 dim=16 mask=causal partition=zigzag");
  const Members all = crew.everybody();
  crew.make_ring(all, ring());
  const Message order =
      Message("run").with("ring", "ring").with("count", 24 / kSlowdown).with("jitter_us", 2000);
  for (const Message& answer : crew.ask(all, order)) {
    EXPECT_EQ(status_of(answer), RINGATTN_OK) << text_of(0, answer);
    EXPECT_FALSE(answer.has("wrong")) << answer.text("wrong");
  }
  crew.leave(all, ring());
  crew.dismiss(all);
}

TEST_P(Cases, B031AbortEndsAForwardWhosePeerNeverCalls) {
  Crew crew(2);
  prepare(crew);
  const Members all = crew.everybody();
  const std::vector<Holdings> before = crew.holdings(all);
  for (int round = 0; round < 8; ++round) {
    crew.make_ring(all, ring());
    crew.must({0},
              Message("abort_later").with("ring", "ring").with("in_us", 50'000).with("reason", "enough"));
    const Message answer = crew.ask({0}, Message("run").with("ring", "ring").with("count", 1))[0];
    expect_says(answer, RINGATTN_ERR_ABORTED, "aborted by rank 0: enough");
    EXPECT_LT(answer.number("at_ns") - crew.progress(0).acted_ns.load(), 2'000'000'000);
    for (const Message& left : crew.ask(all, Message("leave").with("ring", "ring")))
      EXPECT_LT(left.number("took_us"), 5'000'000);
  }
  const std::vector<Holdings> after = crew.holdings(all, before);
  for (std::size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].more_than(before[i]), "");
  crew.dismiss(all);
}

TEST_P(Cases, B032AMissingProcessIsNamedWhenTheTimeIsOverAndARetryWorks) {
  Crew crew(4);
  prepare(crew);
  const Members all = crew.everybody();
  for (const bool environment : {false, true}) {
    RingOrder order = ring();
    order.environment = environment;
    order.arrival_ms = 1000;
    const auto join = crew.join_orders(all, order);
    for (const Message& answer : crew.ask({0, 1, 2}, join)) {
      expect_says(answer, RINGATTN_ERR_TIMEOUT, "rank 3 did not come");
      EXPECT_GT(answer.number("took_us"), 900'000);
      EXPECT_LT(answer.number("took_us"), 4'000'000);
    }
    order.arrival_ms = 30'000;
    crew.make_ring(all, order);
    crew.run(all, order, 0, 2);
    crew.leave(all, order);
  }
  crew.dismiss(all);
}

TEST_P(Cases, B033AndB037FiftyRingsOneAfterTheOtherAtTheSamePort) {
  Crew crew(3);
  prepare(crew);
  const Members all = crew.everybody();
  RingOrder order = ring();
  order.environment = true;
  order.place = "127.0.0.1:" + std::to_string(free_port());
  const std::vector<Holdings> before = crew.holdings(all);
  for (int round = 0; round < 50 / kSlowdown; ++round) {
    crew.make_ring(all, order);
    crew.run(all, order, round, 1);
    crew.leave(all, order);
  }
  const std::vector<Holdings> after = crew.holdings(all, before);
  for (std::size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].more_than(before[i]), "");
  crew.dismiss(all);
}

// An id is for one ring: a second one finds nobody, says so in time, and leaves the first alone.
TEST_P(Cases, B033AnIdThatIsUsedTwiceIsRefusedInTime) {
  Crew crew(2);
  prepare(crew);
  const Members all = crew.everybody();
  RingOrder first = ring("first");
  first.arrival_ms = 1500;
  const auto join = crew.join_orders(all, first);
  for (const Message& answer : crew.ask(all, join))
    ASSERT_EQ(status_of(answer), RINGATTN_OK) << text_of(0, answer);
  crew.must(all, Message("plan").with("ring", "first"));
  const auto again = [&](int rank) { return join(rank).with("ring", "second"); };
  for (const Message& answer : crew.ask(all, again)) {
    expect_says(answer, RINGATTN_ERR_TIMEOUT, "found no host within 1500 ms");
    EXPECT_LT(answer.number("took_us"), 5'000'000);
  }
  crew.run(all, first, 0, 4);
  crew.leave(all, first);
  crew.dismiss(all);
}

TEST_P(Cases, B033TwoRingsAtOnceDoNotMeet) {
  Crew crew(3);
  prepare(crew);
  const Members all = crew.everybody();
  crew.make_ring(all, ring("a"));
  crew.make_ring(all, ring("b"));
  for (int number = 0; number < 6; ++number) {
    crew.run(all, ring("a"), number, 1);
    crew.run(all, ring("b"), number + 1, 1);
  }
  crew.leave(all, ring("a"));
  crew.run(all, ring("b"), 0, 2);
  crew.leave(all, ring("b"));
  crew.dismiss(all);
}

TEST_P(Cases, B035ProcessesWithoutTokensTakePart) {
  Crew crew(4);
  prepare(crew, "n=8 dim=8 mask=causal");
  const Members all = crew.everybody();
  crew.must(all,
            Message("values").with("problem", "n=8 dim=8 mask=causal partition=explicit:4/0/4/0 ranks=4"));
  crew.make_ring(all, ring());
  crew.run(all, ring(), 0, 6);
  crew.leave(all, ring());
  crew.dismiss(all);
}

// Whoever holds the port: the host of the meeting says so at once, the others when their time is over.
TEST_P(Cases, B037APortInUseIsNamedOnAllRanks) {
  Crew crew(2);
  prepare(crew);
  const Members all = crew.everybody();
  const int port = free_port();
  const int holder = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(holder, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(holder, 8), 0);
  RingOrder order = ring();
  order.environment = true;
  order.place = "127.0.0.1:" + std::to_string(port);
  order.arrival_ms = 2000;
  const std::vector<Message> answers = crew.ask(all, crew.join_orders(all, order));
  ::close(holder);
  for (const Message& answer : answers) {
    EXPECT_NE(status_of(answer), RINGATTN_OK);
    EXPECT_NE(answer.text("message").find(order.place), std::string::npos) << text_of(0, answer);
    EXPECT_LT(answer.number("took_us"), 5'000'000);
  }
  for (const Message& answer : answers) std::printf("%s\n", text_of(0, answer).c_str());
  EXPECT_NE(answers[0].text("message").find("Address already in use"), std::string::npos)
      << text_of(0, answers[0]);
  crew.make_ring(all, order);
  crew.leave(all, order);
  crew.dismiss(all);
}

TEST_P(Cases, B038EveryCallMayComeFromAnotherThread) {
  Crew crew(3);
  prepare(crew);
  const Members all = crew.everybody();
  const auto join = crew.join_orders(all, ring());
  crew.ask(all, [&](int rank) { return join(rank).with("on_thread", 1); });
  crew.must(all, Message("plan").with("ring", "ring").with("on_thread", 1));
  for (int number = 0; number < 4; ++number) {
    const Message run = Message("run").with("ring", "ring").with("first", number).with("count", 1);
    for (const Message& answer : crew.ask(all, Message(run).with("on_thread", 1))) {
      EXPECT_EQ(status_of(answer), RINGATTN_OK) << text_of(0, answer);
      EXPECT_FALSE(answer.has("wrong")) << answer.text("wrong");
    }
  }
  crew.must(all, Message("leave").with("ring", "ring").with("on_thread", 1));
  crew.dismiss(all);
}

TEST_P(Cases, B040AForkedChildDisturbsNobodyAndMayNotUseWhatItInherited) {
  Crew crew(3);
  prepare(crew);
  const Members all = crew.everybody();
  crew.make_ring(all, ring());
  crew.run(all, ring(), 0, 2);
  crew.must(all, Message("fork").with("ring", "ring").with("sleep_us", 300'000).with("leave_it", 1));
  crew.run(all, ring(), 2, 30);
  for (const Message& answer : crew.ask(all, Message("fork").with("ring", "ring").with("calls", 1)))
    EXPECT_EQ(answer.number("child_status", -1), 0) << "the child got something else than FORKED";
  crew.run(all, ring(), 32, 4);
  crew.leave(all, ring());
  crew.dismiss(all);
}

TEST_P(Cases, DifferentProblemsAreNamedOnAllRanksAndTheRingGoesOn) {
  Crew crew(3);
  prepare(crew);
  const Members all = crew.everybody();
  for (const Message& answer : crew.ask(all, crew.join_orders(all, ring())))
    ASSERT_EQ(status_of(answer), RINGATTN_OK) << text_of(0, answer);
  crew.must({1}, Message("values").with("problem", "n=24 heads=2 dim=8 partition=zigzag"));
  for (const Message& answer : crew.ask(all, Message("plan").with("ring", "ring")))
    expect_says(answer, RINGATTN_ERR_RANK_MISMATCH, "mask: rank 0 has causal, rank 1 has full");
  crew.must({1}, Message("values").with("problem", kProblem));
  crew.must(all, Message("plan").with("ring", "ring"));
  crew.run(all, ring(), 0, 2);
  crew.leave(all, ring());
  crew.dismiss(all);
}

// As a lost one does: whoever reads it has to find the machine.
TEST_P(Cases, ATimeoutNamesRankAndHost) {
  Crew crew(2);
  prepare(crew);
  const Members all = crew.everybody();
  RingOrder order = ring();
  order.arrival_ms = 1000;
  crew.make_ring(all, order);
  const Message answer = crew.ask({0}, Message("run").with("ring", "ring").with("count", 1))[0];
  expect_says(answer, RINGATTN_ERR_TIMEOUT, "rank 1 (host ");
  crew.dismiss(all);
}

TEST_P(Cases, B043TwoRingsInOppositeOrderNameWhoIsMissing) {
  Crew crew(2);
  prepare(crew);
  const Members all = crew.everybody();
  for (const char* name : {"a", "b"}) {
    RingOrder order = ring(name);
    order.arrival_ms = 1500;
    crew.make_ring(all, order);
  }
  const auto opposite = [](int rank) {
    return Message("run").with("ring", rank == 0 ? "a" : "b").with("count", 1);
  };
  const std::vector<Message> answers = crew.ask(all, opposite);
  for (int rank = 0; rank < 2; ++rank) {
    const Message& answer = answers[static_cast<std::size_t>(rank)];
    expect_says(answer, RINGATTN_ERR_TIMEOUT, "rank " + std::to_string(1 - rank) + " (host ");
    EXPECT_NE(answer.text("message").find(") did not enter"), std::string::npos) << text_of(rank, answer);
    EXPECT_NE(answer.text("message").find("forward"), std::string::npos) << text_of(rank, answer);
  }
  crew.dismiss(all);
}

}  // namespace
}  // namespace ringattn::faults
