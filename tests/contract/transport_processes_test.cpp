// The contract, part 6: ranks in processes of their own, and what their deaths do.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "contract/process_ring.h"
#include "contract/transport_suite.h"

namespace ringattn::test {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<TransportSubject> process_subjects() {
  std::vector<TransportSubject> subjects = transport_subjects();
  std::erase_if(subjects, [](const TransportSubject& subject) {
    return (subject.table->caps & RINGATTN_TRANSPORT_PROCESSES) == 0;
  });
  return subjects;
}
RINGATTN_TRANSPORT_SUITE(TransportProcesses, process_subjects());

constexpr std::size_t kMiB = 1 << 20;
const std::string kLost = std::to_string(RINGATTN_ERR_PEER_LOST);
const std::string kAborted = std::to_string(RINGATTN_ERR_ABORTED);

// Repeats after a prime number of bytes, so that no shifted piece looks right; sanitizers make loops slow.
void fill(Bytes& bytes, std::int32_t sender, std::uint64_t tag) {
  constexpr std::size_t kPeriod = 65521;
  const std::size_t first = std::min(bytes.size(), kPeriod);
  for (std::size_t i = 0; i < first; ++i) {
    bytes[i] = static_cast<std::uint8_t>(i * 7 + i / 251 + 31 * tag + 97 * static_cast<std::size_t>(sender));
  }
  for (std::size_t at = kPeriod; at < bytes.size(); at += kPeriod) {
    std::memcpy(bytes.data() + at, bytes.data(), std::min(kPeriod, bytes.size() - at));
  }
}

// As a comm does that finds its link dead.
void abort_with_state(ChildRank& child) {
  std::string reason;
  const ringattn_status status = child.link.state(&reason);
  child.link.abort(status, reason.c_str());
}

// One message to the next rank and one from the previous, both at odd addresses.
std::string exchange(ChildRank& child, std::size_t bytes, std::uint64_t tag) {
  const std::int32_t n = child.world_size, rank = child.link.rank();
  const std::int32_t next = (rank + 1) % n, previous = (rank + n - 1) % n;
  Bytes source(bytes + 1), target(bytes + 1, 0xee), expected(bytes + 1);
  fill(source, rank, tag);
  fill(expected, previous, tag);
  expected[0] = 0xee;
  const auto send = child.link.send_of(next, tag, source.data() + 1, bytes, 1);
  const auto receive = child.link.receive_of(previous, tag, target.data() + 1, bytes, 2);
  if (child.link.post({send, receive}) != RINGATTN_OK) return "post: " + child.state();
  bool failed = false;
  for (int i = 0; i < 2; ++i) {  // both must end: the buffers are the transport's until then
    const auto completion = child.link.next();
    if (!completion) std::abort();
    if (completion->status != RINGATTN_OK && !std::exchange(failed, true)) abort_with_state(child);
  }
  if (failed) return "ended: " + child.state();
  return target == expected ? "" : "wrong bytes in a message of " + std::to_string(bytes);
}

// Until the link says that it is dead, of which it then tells all.
std::string until_dead(ChildRank& child) {
  const auto deadline = Clock::now() + seconds(15);
  while (Clock::now() < deadline) {
    ringattn_status status = RINGATTN_OK;
    if (child.link.poll(&status)) continue;
    if (status == RINGATTN_OK) {
      child.link.wait(seconds(10));
      continue;
    }
    abort_with_state(child);
    return child.state();
  }
  return "never noticed";
}

TEST_P(TransportProcesses, PatternsOfAllSizes) {
  for (const std::int32_t ranks : {2, 3, 4}) {
    ProcessRing ring(GetParam().table, ranks, [](ChildRank& child) {
      std::uint64_t tag = 0;
      for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4095}, std::size_t{4096},
                                      std::size_t{4097}, kMiB, 16 * kMiB}) {
        const std::string wrong = exchange(child, bytes, ++tag);
        if (!wrong.empty()) return wrong;
      }
      return std::string();
    });
    for (std::int32_t rank = 0; rank < ranks; ++rank) EXPECT_EQ(ring.next(rank), "") << rank;
  }
}

// Rank 2 dies in every survivor's view, also in that of a rank that has nothing to do with it.
TEST_P(TransportProcesses, AKilledRankIsLostForAllWithinASecond) {
  for (const std::int32_t ranks : {2, 3, 4}) {
    for (const bool in_traffic : {false, true}) {
      const std::int32_t victim = ranks - 1;
      ProcessRing ring(GetParam().table, ranks, [&](ChildRank& child) {
        child.report();
        for (std::uint64_t tag = 1; in_traffic; ++tag) {
          if (!exchange(child, tag % 2 == 0 ? 4 * kMiB : 100, tag).empty()) break;
        }
        const std::string found = until_dead(child);
        child.report();
        return found;
      });
      for (std::int32_t rank = 0; rank < ranks; ++rank) ASSERT_EQ(ring.next(rank), "R");
      std::this_thread::sleep_for(milliseconds(100));
      const auto start = Clock::now();
      ring.signal(victim, SIGKILL);  // it stays a zombie
      for (std::int32_t rank = 0; rank < victim; ++rank) EXPECT_EQ(ring.next(rank), "R");
      EXPECT_LT(Clock::now() - start, seconds(1));
      for (std::int32_t rank = 0; rank < victim; ++rank) {
        const std::string found = ring.next(rank);
        EXPECT_EQ(found.rfind("=" + kLost, 0), 0u) << found;
        EXPECT_NE(found.find("rank " + std::to_string(victim) + " (host "), std::string::npos) << found;
      }
    }
  }
}

// What rank 2 does below: stops itself while two large messages are on their way to it.
std::string stop_amid_messages(ChildRank& child) {
  std::vector<Bytes> in(2, Bytes(64 * kMiB));
  for (std::int32_t peer = 0; peer < 2; ++peer) {
    Bytes& buffer = in[std::size_t(peer)];
    if (child.link.receive(peer, 1, buffer.data(), buffer.size()) != RINGATTN_OK) return child.state();
  }
  while (in[0][0] == 0 || in[1][0] == 0) {
    if (child.link.poll()) return "ended too soon";
    std::this_thread::sleep_for(milliseconds(1));
  }
  child.report();
  ::raise(SIGSTOP);
  for (int i = 0; i < 2; ++i) {
    const auto completion = child.link.next();
    if (!completion || completion->status != RINGATTN_OK) return child.state();
  }
  child.report();
  child.pause();
  return in[0].back() == 1 && in[1].back() == 1 ? "" : "wrong bytes";
}

// Longer than any time limit of the network, with full buffers towards it and beats that it does not take.
TEST_P(TransportProcesses, AStoppedRankIsNotLost) {
  ProcessRing ring(GetParam().table, 3, [](ChildRank& child) {
    if (child.link.rank() == 2) return stop_amid_messages(child);
    Bytes out(64 * kMiB, 1);
    if (child.link.send(2, 1, out.data(), out.size()) != RINGATTN_OK) return child.state();
    const auto deadline = Clock::now() + seconds(20);
    for (std::uint64_t beats = 1; Clock::now() < deadline; ++beats) {
      child.link.tell(beats);
      const auto completion = child.link.next(milliseconds(5));
      if (completion && completion->status != RINGATTN_OK) return child.state();
      if (!completion) continue;
      child.report();
      child.pause();
      return std::string();
    }
    return "not ended after 20 s: " + child.state();
  });
  ASSERT_EQ(ring.next(2), "R");
  std::this_thread::sleep_for(seconds(7));
  ring.signal(2, SIGCONT);
  for (std::int32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(ring.next(rank), "R");
  for (std::int32_t rank = 0; rank < 3; ++rank) ring.go(rank);
  for (std::int32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(ring.next(rank), "");
}

TEST_P(TransportProcesses, AbortReachesAllWithItsReason) {
  ProcessRing ring(GetParam().table, 4, [](ChildRank& child) {
    Bytes buffer(8 * kMiB);
    const std::int32_t previous = (child.link.rank() + 3) % 4;
    if (child.link.receive(previous, 1, buffer.data(), buffer.size()) != RINGATTN_OK) return child.state();
    child.report();
    if (child.link.rank() == 1) {
      child.pause();
      child.link.abort(RINGATTN_ERR_ABORTED, "rank 1 has had enough");
    }
    const auto completion = child.link.next();
    if (!completion || completion->status != RINGATTN_ERR_ABORTED) return std::string("did not end ABORTED");
    const std::string found = until_dead(child);
    child.report();
    return found;
  });
  for (std::int32_t rank = 0; rank < 4; ++rank) ASSERT_EQ(ring.next(rank), "R");
  const auto start = Clock::now();
  ring.go(1);
  for (std::int32_t rank = 0; rank < 4; ++rank) EXPECT_EQ(ring.next(rank), "R");
  EXPECT_LT(Clock::now() - start, seconds(1));
  for (std::int32_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(ring.next(rank), "=" + kAborted + " rank 1 has had enough");
}

// A rank that closes has given the others all that it owes them, however late they look.
TEST_P(TransportProcesses, CloseLosesNothing) {
  ProcessRing ring(GetParam().table, 3, [](ChildRank& child) {
    const std::string wrong = exchange(child, kMiB, 1);
    if (!wrong.empty() || child.link.rank() == 2) return wrong;  // leaves at once
    std::this_thread::sleep_for(milliseconds(300));
    ringattn_status status = RINGATTN_OK;
    const bool quiet = !child.link.poll(&status) && status == RINGATTN_OK;
    return quiet ? std::string() : child.state();
  });
  for (std::int32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(ring.next(rank), "");
}

TEST_P(TransportProcesses, ARankThatIsGoneBeforeConnectIsNamed) {
  ProcessRing::Options options;
  options.before_connect = [](ProcessRing& ring) {
    ring.signal(0, SIGKILL);
    ring.reap(0);
  };
  const auto start = Clock::now();
  ProcessRing ring(
      GetParam().table, 3, [](ChildRank&) { return std::string("connected"); }, options);
  for (const std::int32_t rank : {1, 2}) {
    const std::string result = ring.next(rank);
    EXPECT_EQ(result.rfind("=connect: " + kLost, 0), 0u) << result;
    EXPECT_NE(result.find("rank 0 (host "), std::string::npos) << result;
  }
  EXPECT_LT(Clock::now() - start, seconds(8)) << "sooner than the time limit";
}

TEST_P(TransportProcesses, ARankThatNeverComesIsNamedAtTheTimeLimit) {
  ProcessRing::Options options;
  options.open_timeout_ms = 500;
  options.before_last = [](ProcessRing&) { std::this_thread::sleep_for(seconds(1)); };
  ProcessRing ring(
      GetParam().table, 3, [](ChildRank&) { return std::string("connected"); }, options);
  for (const std::int32_t rank : {0, 1}) {
    const std::string result = ring.next(rank);
    EXPECT_NE(result.find("rank 2 (host "), std::string::npos) << result;
  }
}

TEST_P(TransportProcesses, DescriptorsAndThreadsReturn) {
  const auto threads = [] {
    std::size_t count = 0;
    DIR* const folder = ::opendir("/proc/self/task");
    while (folder != nullptr && ::readdir(folder) != nullptr) ++count;
    if (folder != nullptr) ::closedir(folder);
    return count;
  };
  { const TransportRing first(GetParam(), 2); }  // what a library keeps from its first use on is not counted
  const std::size_t descriptors = open_descriptors(), before = threads();
  // UCX has one thread for all of its workers while there are any.
  const std::size_t own = GetParam().name == "ucx" ? 1 : 0;
  for (int round = 0; round < 20; ++round) {
    TransportRing ring(GetParam(), 3);
    EXPECT_EQ(threads(), before + own);
    if (round % 2 == 0) ring[1].abort(RINGATTN_ERR_ABORTED, "also then");
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(threads(), before);
}

}  // namespace
}  // namespace ringattn::test
