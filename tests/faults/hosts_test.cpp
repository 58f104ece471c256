// Rings over several hosts, which are network namespaces here. Needs root and iproute2.
#include "tests/faults/hosts.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <thread>

#include "ringattn.h"
#include "tests/faults/crew.h"
#include "tests/faults/on_transport.h"

namespace ringattn::faults {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kEndless = 1 << 28;
// Blocks of some hundred kilobytes, so that something is on its way most of the time.
constexpr const char* kProblem = "n=96 batch=16 heads=2 dim=32 mask=causal partition=zigzag";

class Hosts : public OnTransport {
 protected:
  void SetUp() override {
    static const std::string reason = Network::why_not();
    if (!reason.empty()) GTEST_SKIP() << "no network namespaces: " << reason;
    OnTransport::SetUp();
  }

  RingOrder ring(int port = 7000) const {
    RingOrder order;
    order.transport = GetParam();
    order.environment = true;
    order.place = Network::address(0) + ":" + std::to_string(port);
    return order;
  }

  void prepare(Crew& crew, const std::string& problem = kProblem) const {
    crew.within(seconds(180));
    crew.prepare(Message("context").with("threads", 1), problem, GetParam());
  }

  static void start(Crew& crew, int count = kEndless) {
    for (const int rank : crew.everybody())
      crew[rank].order(Message("run").with("ring", "ring").with("count", count));
  }
  static void wait_for(Crew& crew, int rank, std::uint64_t executions) {
    while (crew.progress(rank).ended.load() < executions && Clock::now() < crew.deadline())
      std::this_thread::sleep_for(milliseconds(1));
  }
};
RINGATTN_ON_EVERY_TRANSPORT(Hosts);

ringattn_status status_of(const Message& answer) {
  return static_cast<ringattn_status>(answer.number("status", RINGATTN_ERR_INTERNAL));
}

bool says(const Message& answer, const std::string& part) {
  return answer.text("message").find(part) != std::string::npos;
}

TEST_P(Hosts, TwoThreeAndFourHostsComputeRightThings) {
  for (const int hosts : {2, 3, 4}) {
    Network network(hosts);
    Crew crew(hosts + 1, network.where());  // the first host has two ranks
    prepare(crew);
    const Members all = crew.everybody();
    crew.make_ring(all, ring());
    crew.run(all, ring(), 0, 4);
    crew.leave(all, ring());
    crew.dismiss(all);
  }
}

// Every rank hears of it in time, and who is meant. When the cable is back the same processes make a new ring.
TEST_P(Hosts, ACutCableEndsAllRanksWithinFiveSecondsAndAHealedOneCarriesANewRing) {
  Network network(4);
  Crew crew(4, network.where());
  prepare(crew);
  const Members all = crew.everybody();
  const std::vector<Holdings> before = crew.holdings(all);
  crew.make_ring(all, ring());
  start(crew);
  wait_for(crew, 2, 7);
  const std::int64_t cut_ns = now_ns();
  network.cut(2);
  double slowest = 0;
  for (const int rank : all) {
    const Message answer = crew.answer(rank);
    slowest = std::max(slowest, static_cast<double>(answer.number("at_ns") - cut_ns) / 1e9);
    EXPECT_EQ(status_of(answer), RINGATTN_ERR_PEER_LOST) << text_of(rank, answer);
    EXPECT_TRUE(says(answer, rank == 2 ? " (host host-" : "rank 2 (host host-c")) << text_of(rank, answer);
    if (rank == 0) std::printf("%s\n", text_of(rank, answer).c_str());
  }
  std::printf("%s: all ranks had ended %.2f s after the cut\n", GetParam().c_str(), slowest);
  EXPECT_LT(slowest, 5.0 + (kSlowdown - 1));
  crew.leave(all, ring());
  const std::vector<Holdings> after = crew.holdings(all, before);
  for (std::size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].more_than(before[i]), "") << "rank " << i;
  network.heal(2);
  std::this_thread::sleep_for(milliseconds(200));
  crew.make_ring(all, ring(7001));
  crew.run(all, ring(), 3, 4);
  crew.leave(all, ring());
  crew.dismiss(all);
}

TEST_P(Hosts, ACableThatIsOutForASecondDisturbsNobody) {
  Network network(3);
  Crew crew(3, network.where());
  prepare(crew);
  const Members all = crew.everybody();
  crew.make_ring(all, ring());
  start(crew, 30);
  wait_for(crew, 1, 7);
  network.cut(1);
  std::this_thread::sleep_for(milliseconds(1000));
  network.heal(1);
  for (const int rank : all) {
    const Message answer = crew.answer(rank);
    EXPECT_EQ(status_of(answer), RINGATTN_OK) << text_of(rank, answer);
    EXPECT_FALSE(answer.has("wrong")) << answer.text("wrong");
  }
  crew.leave(all, ring());
  crew.dismiss(all);
}

// While they meet and while they run: garbage, a web browser and silence, on every port that listens.
TEST_P(Hosts, StrangersOnEveryPortDisturbNobody) {
  Network network(3);
  Crew crew(3, network.where());
  prepare(crew);
  const Members all = crew.everybody();
  std::vector<std::unique_ptr<Stranger>> strangers;
  int connected = 0;
  const auto visit = [&] {
    for (int host = 0; host < network.size(); ++host) {
      for (const int port : network.host(host).listening_ports()) {
        for (const char* greeting : {"", "GET / HTTP/1.1\r\n\r\n", "\xff\xff\xff\xff\x7f\x00\x01garbage"}) {
          strangers.push_back(std::make_unique<Stranger>(network.host((host + 1) % network.size()),
                                                         Network::address(host), port, greeting));
          connected += strangers.back()->connected() ? 1 : 0;
        }
      }
    }
  };
  const auto join = crew.join_orders(all, ring());
  crew[0].order(join(0));
  std::this_thread::sleep_for(milliseconds(300));
  visit();
  for (const int rank : {1, 2}) crew[rank].order(join(rank));
  for (const Message& answer : crew.answers(all))
    ASSERT_EQ(status_of(answer), RINGATTN_OK) << text_of(0, answer);
  crew.must(all, Message("plan").with("ring", "ring"));
  start(crew, 16);
  for (int round = 0; round < 5; ++round) {
    visit();
    std::this_thread::sleep_for(milliseconds(50));
  }
  std::printf("%d strangers were let in as far as a connection\n", connected);
  EXPECT_GT(connected, 0);
  for (const int rank : all) {
    const Message answer = crew.answer(rank);
    EXPECT_EQ(status_of(answer), RINGATTN_OK) << text_of(rank, answer);
    EXPECT_FALSE(answer.has("wrong")) << answer.text("wrong");
  }
  crew.leave(all, ring());
  crew.dismiss(all);
}

// Rank 0 is reached by all, so they meet; but two of them cannot reach each other.
TEST_P(Hosts, HostsThatCannotReachEachOtherAreNamedInTime) {
  Network network(3);
  network.block(1, 2);
  Crew crew(3, network.where());
  prepare(crew);
  const Members all = crew.everybody();
  RingOrder order = ring();
  order.arrival_ms = 4000;
  int named = 0;
  for (const Message& answer : crew.ask(all, crew.join_orders(all, order))) {
    EXPECT_NE(status_of(answer), RINGATTN_OK) << text_of(0, answer);
    EXPECT_LT(answer.number("took_us"), 15'000'000) << text_of(0, answer);
    named += says(answer, "rank 1 ") || says(answer, "rank 2 ") ? 1 : 0;
    std::printf("after %.1f s: %s\n", static_cast<double>(answer.number("took_us")) / 1e6,
                text_of(0, answer).c_str());
  }
  EXPECT_EQ(named, 3);
  crew.dismiss(all);
}

TEST_P(Hosts, AWrongSecretIsRefusedOnTheRankThatHasIt) {
  Network network(2);
  Crew crew(2, network.where());
  prepare(crew);
  const Members all = crew.everybody();
  RingOrder order = ring();
  order.arrival_ms = 2000;
  const auto join = crew.join_orders(all, order);
  const auto other = [&](int rank) {
    return rank == 0 ? join(rank) : join(rank).with("secret", "not the secret of this ring");
  };
  const std::vector<Message> answers = crew.ask(all, other);
  for (int rank = 0; rank < 2; ++rank) {
    const Message& answer = answers[static_cast<std::size_t>(rank)];
    EXPECT_NE(status_of(answer), RINGATTN_OK);
    EXPECT_FALSE(says(answer, "secret of this ring")) << "a secret is never told";
    std::printf("after %.1f s: %s\n", static_cast<double>(answer.number("took_us")) / 1e6,
                text_of(rank, answer).c_str());
  }
  EXPECT_TRUE(says(answers[1], "secret")) << text_of(1, answers[1]);
  crew.make_ring(all, ring(7001));
  crew.leave(all, ring());
  crew.dismiss(all);
}

TEST_P(Hosts, BeyondOneMachineASecretIsNeeded) {
  Network network(2);
  Crew crew(2, network.where());
  prepare(crew);
  const Members all = crew.everybody();
  RingOrder order = ring();
  order.secret = "";
  for (const Message& answer : crew.ask(all, crew.join_orders(all, order))) {
    EXPECT_EQ(status_of(answer), RINGATTN_ERR_INVALID_ARGUMENT);
    EXPECT_TRUE(says(answer, "RINGATTN_SECRET")) << text_of(0, answer);
    std::printf("%s\n", text_of(0, answer).c_str());
  }
  crew.dismiss(all);
}

// Both hosts list an interface first that leads nowhere: the default finds the other one, and the setting is honoured.
TEST_P(Hosts, B042ADeadInterfaceInFrontCostsAMomentAndASettingIsHonoured) {
  Network network(2);
  for (int host = 0; host < 2; ++host) network.add_dead_interface(host);
  Crew crew(2, network.where());
  prepare(crew);
  const Members all = crew.everybody();
  RingOrder by_id;
  by_id.transport = GetParam();
  by_id.arrival_ms = 20'000;
  const auto join = crew.join_orders(all, by_id);
  for (const Message& answer : crew.ask(all, join)) {
    EXPECT_EQ(status_of(answer), RINGATTN_OK) << text_of(0, answer);
    std::printf("met after %.2f s\n", static_cast<double>(answer.number("took_us")) / 1e6);
  }
  crew.must(all, Message("plan").with("ring", "ring"));
  crew.run(all, ring(), 0, 4);
  crew.leave(all, ring());
  crew.must(all, Message("set").with("variable", "RINGATTN_INTERFACE").with("value", "net0"));
  crew.make_ring(all, by_id);
  crew.run(all, by_id, 0, 2);
  crew.leave(all, by_id);
  crew.must(all, Message("set").with("variable", "RINGATTN_INTERFACE").with("value", "aaa0"));
  by_id.arrival_ms = 2000;
  for (const Message& answer : crew.ask(all, crew.join_orders(all, by_id))) {
    EXPECT_NE(status_of(answer), RINGATTN_OK) << "the interface that leads nowhere was asked for";
  }
  crew.dismiss(all);
}

}  // namespace
}  // namespace ringattn::faults
