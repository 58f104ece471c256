// One problem over transports that delay, reorder, fail or fall silent: the bits are those of the local
// transport, and
// every failure reaches every rank.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "tests/ring/host_ring.h"

namespace ringattn::support {
namespace {

using test::FakeScript;

const char* const kProblems[] = {
    "n=70 heads=2 dim=16 mask=causal partition=zigzag ranks=2",
    "n=70 heads=4 kv_heads=2 dim=16 dim_v=8 dtype=bf16 mask=causal partition=striped ranks=3",
    "n=91 heads=2 dim=24 dtype=f16 mask=causal,window:11 partition=striped:5 ranks=4",
    "n=91 dim=16 mask=causal,window:3 ranks=5",
    "n=90 batch=2 dim=16 mask=window:20:4 partition=zigzag ranks=4",
    "n=64 dim=16 docs=16,16,16,16 ranks=4",
    "n=64 dim=16 mask=causal docs=30,3,20 partition=striped ranks=5",
    "n=80 dim=16 mask=causal docs=33,30 scope=document partition=zigzag ranks=3",
    "q=9 k=120 heads=2 dim=16 mask=causal ranks=8",
    "n=5 dim=8 mask=causal ranks=8",
    "n=77 dim=16 mask=causal partition=explicit:random seed=5 ranks=4",
    "n=200 heads=2 dim=16 ranks=8",
};

class RingTransport : public ::testing::TestWithParam<Over> {};

// Twice with one thread a rank and twice with one for all.
void expect_bits(HostRing& ring, std::uint64_t expected, const std::string& what) {
  for (int round = 0; round < 2; ++round) {
    ring.poison_outputs();
    for (const ringattn_status status : ring.execute_on_threads()) EXPECT_EQ(status, RINGATTN_OK) << what;
    EXPECT_EQ(ring.hash(), expected) << what << " on threads";
    ring.poison_outputs();
    EXPECT_EQ(ring.execute_all(), RINGATTN_OK) << ringattn_last_error();
    EXPECT_EQ(ring.hash(), expected) << what << " array";
  }
}

TEST_P(RingTransport, DelayAndOrderDoNotChangeABit) {
  const Watchdog watchdog("delayed transfers", 120);
  for (const char* problem : kProblems) {
    const std::string line = with_pass(problem, GetParam());
    const std::uint64_t expected = answer_of_local(line);
    const HostContext context;
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      HostRingOptions options;
      options.transport = GetParam().transport;
      options.script.seed = seed;
      options.script.max_delay_us = seed == 1 ? 0 : 1500;
      options.script.reorder = true;
      HostRing ring(context, line, options);
      expect_bits(ring, expected, line + " seed " + std::to_string(seed));
    }
    EXPECT_EQ(test::fake_counts().open_loans, 0u) << line << ": a loan was not given back";
  }
}

TEST(RingOverTcp, TheBitsAreThoseOfTheLocalTransport) {
  const Watchdog watchdog("problems over tcp", 120);
  for (const char* pass : {"forward", "backward"}) {
    for (const char* problem : kProblems) {
      const std::string line = with_pass(problem, {"tcp", pass});
      const std::uint64_t expected = answer_of_local(line);
      const HostContext context;
      HostRingOptions options;
      options.transport = "tcp";
      HostRing ring(context, line, options);
      expect_bits(ring, expected, line);
    }
  }
}

// No barrier between calls: a rank may be in the next call while what it sent for this one is still on its
// way.
TEST_P(RingTransport, CallsBackToBackOverDelays) {
  // rank 0 waits for nobody in forward
  const std::string kContiguous = with_pass("n=80 dim=16 mask=causal ranks=4", GetParam());
  const std::uint64_t expected = answer_of_local(kContiguous);
  const HostContext context;
  HostRingOptions options;
  options.transport = GetParam().transport;
  options.script.max_delay_us = 3000;
  options.script.reorder = true;
  HostRing ring(context, kContiguous, options);
  run_threads(
      4,
      [&](int rank) {
        for (int call = 0; call < 40; ++call) {
          ASSERT_EQ(ring.execute(rank), RINGATTN_OK)
              << "rank " << rank << ", call " << call << ": " << ringattn_last_error();
        }
      },
      60, "calls back to back");
  EXPECT_EQ(ring.hash(), expected);
}

// The bytes that travel are those that the plan tells (a lending one sends places, not blocks).
TEST(RingTransportBytes, ACopyingTransportMovesWhatThePlanTells) {
  const HostContext context;
  for (const std::string& line :
       {std::string(kProblems[0]), std::string(kProblems[3]), std::string(kProblems[4]),
        std::string(kProblems[5]), std::string(kProblems[0]) + " pass=backward",
        std::string(kProblems[4]) + " pass=backward"}) {
    const bool backward = line.find("pass=backward") != std::string::npos;
    HostRingOptions options;
    options.transport = "ring_copy";
    HostRing ring(context, line, options);
    test::fake_script(FakeScript());  // counts from here
    ASSERT_EQ(ring.execute_all(), RINGATTN_OK) << ringattn_last_error();
    std::uint64_t bytes = 0;
    for (int rank = 0; rank < ring.ranks(); ++rank) {
      ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
      ASSERT_EQ(ringattn_plan_get_info(ring.plan(rank), ring.call(), &info), RINGATTN_OK);
      bytes += backward ? info.backward_bytes_sent : info.bytes_sent;
    }
    EXPECT_EQ(test::fake_counts().sent_bytes, bytes) << line;
    EXPECT_EQ(test::fake_counts().sends, test::fake_counts().receives) << line;
  }
}

// Rank 1 fails at its n-th transfer, for every n of a plan and a call: on every rank the call ends in the
// comm's range,
// and everything can be destroyed.
void fail_at_every_transfer(const Over& over, bool completion, ringattn_status code) {
  const std::string problem = with_pass("n=60 dim=16 mask=causal partition=zigzag ranks=3", over);
  const HostContext context;
  bool survived = false;
  for (std::uint64_t n = 1; n <= 60 && !survived; ++n) {
    HostRingOptions options;
    options.transport = over.transport;
    options.timeout_ms = options.arrival_timeout_ms = 300;
    options.script.fail_rank = 1;
    options.script.fail_transfer = n;
    options.script.fail_status = code;
    options.script.fail_completion = completion;
    HostRing ring(context, problem, options);
    const std::vector<ringattn_status> statuses = ring.execute_on_threads(30);
    survived = statuses[0] == RINGATTN_OK && statuses[1] == RINGATTN_OK && statuses[2] == RINGATTN_OK;
    if (survived) {
      EXPECT_GT(n, 4u) << "no transfer was hit";
      break;
    }
    EXPECT_EQ(statuses[1], code) << "transfer " << n;
    for (int rank = 0; rank < 3; ++rank) {
      const ringattn_status status = statuses[static_cast<std::size_t>(rank)];
      EXPECT_TRUE(status == RINGATTN_OK || (status <= -200 && status > -300))
          << "rank " << rank << ", transfer " << n << ": " << ringattn_status_name(status);
    }
    const ringattn_status again = ring.execute(1);
    EXPECT_TRUE(again <= -200 && again > -300) << ringattn_status_name(again);
  }
  EXPECT_TRUE(survived) << "more transfers than expected";
}

TEST_P(RingTransport, ARefusedPostEndsTheCallOnEveryRank) {
  fail_at_every_transfer(GetParam(), false, RINGATTN_ERR_TRANSPORT);
}

TEST_P(RingTransport, AFailedTransferEndsTheCallOnEveryRank) {
  fail_at_every_transfer(GetParam(), true, RINGATTN_ERR_TRANSPORT);
}

TEST_P(RingTransport, ALostPeerEndsTheCallOnEveryRank) {
  fail_at_every_transfer(GetParam(), true, RINGATTN_ERR_PEER_LOST);
}

// What rank 2 sends never arrives: whoever waits for it says so.
TEST_P(RingTransport, ASilentPeerIsNamed) {
  const HostContext context;
  HostRingOptions options;
  options.transport = GetParam().transport;
  options.timeout_ms = 150;
  options.script.silent_rank = 2;
  HostRing ring(context, with_pass("n=60 dim=16 ranks=4", GetParam()), options);
  std::vector<std::string> messages(4);
  std::vector<ringattn_status> statuses(4);
  run_threads(
      4,
      [&](int rank) {
        statuses[static_cast<std::size_t>(rank)] = ring.execute(rank);
        messages[static_cast<std::size_t>(rank)] = ringattn_last_error();
      },
      30, "a silent peer");
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(statuses[static_cast<std::size_t>(rank)], RINGATTN_ERR_TIMEOUT) << "rank " << rank;
    EXPECT_NE(messages[static_cast<std::size_t>(rank)].find("rank 2"), std::string::npos)
        << messages[static_cast<std::size_t>(rank)];
  }
}

INSTANTIATE_TEST_SUITE_P(Ring, RingTransport,
                         ::testing::Values(Over{"ring_lend", "forward"}, Over{"ring_copy", "forward"},
                                           Over{"ring_lend", "backward"}, Over{"ring_copy", "backward"}),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace ringattn::support
