// What a caller hears of an execution's progress, and what a trace of backward tells.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "tests/e2e/process_counts.h"
#include "tests/ring/host_ring.h"

namespace ringattn::support {
namespace {

struct Call {
  std::int32_t done, total;
  bool operator==(const Call&) const = default;
};

// What one rank's callback was told. Lists are not locked: one call at a time for a rank is what the header
// promises.
struct Heard {
  int rank = 0;
  std::vector<Call> calls;
  std::atomic<int> inside{0};
  bool together = false;    // two calls at the same time
  bool of_another = false;  // told of another rank

  static void hear(void* user, std::int32_t rank, std::int32_t done, std::int32_t total) {
    Heard& heard = *static_cast<Heard*>(user);
    heard.together = heard.together || ++heard.inside > 1;
    heard.of_another = heard.of_another || rank != heard.rank;
    heard.calls.push_back({done, total});
    --heard.inside;
  }
};

class HearingRing {
 public:
  HearingRing(const HostContext& context, const std::string& line, const HostRingOptions& options)
      : ring(context, line, options), heard(static_cast<std::size_t>(ring.ranks())) {
    for (int rank = 0; rank < ring.ranks(); ++rank) {
      heard[static_cast<std::size_t>(rank)].rank = rank;
      set(rank, Heard::hear, &heard[static_cast<std::size_t>(rank)]);
    }
  }
  void set(int rank, ringattn_progress_fn progress, void* user) {
    RankTensors& t = ring.tensors(rank);
    t.args.progress = t.backward_args.progress = progress;
    t.args.progress_user = t.backward_args.progress_user = user;
  }
  void forget() {
    for (Heard& one : heard) one.calls.clear();
  }
  void expect_whole(const char* how) {
    SCOPED_TRACE(how);
    for (const Heard& one : heard) {
      ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
      require_ok(ringattn_plan_get_info(ring.plan(one.rank), ring.call(), &info), "get_info");
      std::vector<Call> expected;
      for (std::int32_t done = 0; done <= info.steps; ++done) expected.push_back({done, info.steps});
      EXPECT_TRUE(one.calls == expected)
          << "rank " << one.rank << ": " << one.calls.size() << " calls, " << info.steps << " steps";
      EXPECT_FALSE(one.together);
      EXPECT_FALSE(one.of_another);
    }
    forget();
  }

  HostRing ring;
  std::vector<Heard> heard;
};

class RingProgress : public ::testing::TestWithParam<Over> {
 protected:
  HostRingOptions options() const {
    HostRingOptions options;
    options.transport = GetParam().transport;
    return options;
  }
};

// Windows and documents whose blocks need not go all the way round, empty shards, one rank alone.
constexpr const char* kLines[] = {
    "n=150 heads=2 dim=16 mask=causal partition=zigzag ranks=3",
    "n=120 dim=16 mask=causal ranks=4",
    "n=200 heads=4 kv_heads=2 dim=16 mask=causal,window:12 ranks=5",
    "n=90 dim=16 mask=causal docs=20,30 partition=striped:16 ranks=4",
    "n=3 dim=8 ranks=5",
    "n=8 dim=8 mask=causal partition=explicit:4/0/4/0 ranks=4",
    "n=9 dim=8 docs=none ranks=2",
    "n=40 dim=16 ranks=1",
};

TEST_P(RingProgress, EveryRankHearsOfAllItsBlocksInOrder) {
  const Watchdog watchdog("progress", 120);
  for (const char* line : kLines) {
    SCOPED_TRACE(line);
    const HostContext context(2);
    HearingRing hearing(context, with_pass(line, GetParam()), options());
    ASSERT_EQ(hearing.ring.execute_all(), RINGATTN_OK) << ringattn_last_error();
    hearing.expect_whole("one call for all");
    for (const ringattn_status status : hearing.ring.execute_on_threads()) ASSERT_EQ(status, RINGATTN_OK);
    hearing.expect_whole("a thread for each");
    ringattn_request* all = nullptr;
    ASSERT_EQ(hearing.ring.execute_all(&all), RINGATTN_OK) << ringattn_last_error();
    ASSERT_EQ(finish(all), RINGATTN_OK);
    hearing.expect_whole("one request for all");
    run_threads(hearing.ring.ranks(), [&](int rank) {
      ringattn_request* own = hearing.ring.start(rank);
      while (ringattn_request_test(own) == RINGATTN_IN_PROGRESS) std::this_thread::yield();
      EXPECT_EQ(finish(own), RINGATTN_OK);
    });
    hearing.expect_whole("tested requests");
  }
}

TEST_P(RingProgress, TheProgressThreadTellsIt) {
  const Watchdog watchdog("progress from the progress thread", 120);
  const HostContext context(2, 1);
  HearingRing hearing(context, with_pass(kLines[0], GetParam()), options());
  for (int round = 0; round < 5; ++round) {
    ringattn_request* all = nullptr;
    ASSERT_EQ(hearing.ring.execute_all(&all), RINGATTN_OK) << ringattn_last_error();
    ASSERT_EQ(finish(all), RINGATTN_OK);
    hearing.expect_whole("the progress thread");
  }
}

TEST_P(RingProgress, NullAsksForNothing) {
  const HostContext context(1);
  HearingRing hearing(context, with_pass(kLines[0], GetParam()), options());
  for (int rank = 0; rank < hearing.ring.ranks(); ++rank)
    hearing.set(rank, nullptr, &hearing.heard[static_cast<std::size_t>(rank)]);
  EXPECT_EQ(hearing.ring.execute_all(), RINGATTN_OK) << ringattn_last_error();
  for (const Heard& heard : hearing.heard) EXPECT_TRUE(heard.calls.empty());
}

// Cancels the request that it is told of, once so much is done.
struct Canceler {
  std::atomic<ringattn_request*> request{nullptr};
  int at = 0;
  std::atomic<int> canceled{0};
  ringattn_status answer = RINGATTN_OK;

  static void hear(void* user, std::int32_t, std::int32_t done, std::int32_t) {
    Canceler& self = *static_cast<Canceler*>(user);
    if (done != self.at || self.request == nullptr) return;
    ++self.canceled;
    self.answer = ringattn_request_cancel(self.request);
  }
};

void expect_usable(HearingRing& hearing, std::uint64_t expected) {
  hearing.set(1, Heard::hear, &hearing.heard[1]);
  hearing.forget();
  hearing.ring.poison_outputs();
  ASSERT_EQ(hearing.ring.execute_all(), RINGATTN_OK) << "the comm is usable: " << ringattn_last_error();
  EXPECT_EQ(hearing.ring.hash(), expected);
  hearing.expect_whole("after the cancel");
}

// Told 0, a rank has all other blocks before it: more than what is done until somebody looks.
TEST_P(RingProgress, ItMayCancelItsOwnRequestAtTheStart) {
  const Watchdog watchdog("cancel from progress", 60);
  const std::string line =
      with_pass(kOwnAllocator ? "n=1500 heads=4 dim=32 ranks=3" : "n=300 heads=4 dim=32 ranks=3", GetParam());
  const std::uint64_t expected = answer_of_local(line);
  const HostContext context(2);
  HearingRing hearing(context, line, options());
  Canceler canceler;
  hearing.set(1, Canceler::hear, &canceler);
  ringattn_request* requests[3];
  for (int rank = 0; rank < 3; ++rank) requests[rank] = hearing.ring.start(rank);
  canceler.request = requests[1];
  for (ringattn_request* request : requests) {
    const ringattn_status status = ringattn_request_wait(request, -1);
    EXPECT_TRUE(status == RINGATTN_ERR_CANCELED || (status == RINGATTN_OK && request != requests[1]))
        << ringattn_status_name(status);
  }
  EXPECT_EQ(canceler.canceled, 1);
  EXPECT_EQ(canceler.answer, RINGATTN_OK);
  const std::string message = ringattn_request_message(requests[1]);
  EXPECT_NE(message.find("canceled by rank 1"), std::string::npos) << message;
  for (ringattn_request* request : requests) ringattn_request_destroy(request);
  expect_usable(hearing, expected);
}

// Later, all may have been computed before anybody looks. Then it has ended well.
TEST_P(RingProgress, ItMayCancelTheRequestOfAllRanksLater) {
  const Watchdog watchdog("cancel from progress", 60);
  const std::string line = with_pass(kLines[0], GetParam());
  const std::uint64_t expected = answer_of_local(line);
  const HostContext context(2);
  HearingRing hearing(context, line, options());
  for (const int at : {1, 2, 3}) {
    Canceler canceler;
    canceler.at = at;
    hearing.set(1, Canceler::hear, &canceler);
    hearing.ring.poison_outputs();
    ringattn_request* all = nullptr;
    ASSERT_EQ(hearing.ring.execute_all(&all), RINGATTN_OK) << ringattn_last_error();
    canceler.request = all;
    const ringattn_status status = ringattn_request_wait(all, -1);
    EXPECT_TRUE(status == RINGATTN_OK || status == RINGATTN_ERR_CANCELED) << ringattn_status_name(status);
    if (status == RINGATTN_OK) {
      EXPECT_EQ(hearing.ring.hash(), expected) << "told " << at;
    }
    EXPECT_EQ(canceler.canceled, 1) << "told " << at;
    EXPECT_EQ(canceler.answer, RINGATTN_OK);
    ringattn_request_destroy(all);
    expect_usable(hearing, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Ring, RingProgress, ::testing::ValuesIn(kEverything),
                         [](const auto& info) { return name_of(info.param); });

std::vector<ringattn_event> events_of(ringattn_plan* plan) {
  std::uint64_t count = 0, dropped = 99;
  EXPECT_EQ(ringattn_plan_trace(plan, nullptr, 0, &count, &dropped), RINGATTN_OK) << ringattn_last_error();
  EXPECT_EQ(dropped, 0u) << "a plan has room for all of an execution's events";
  std::vector<ringattn_event> events(count + 1, RINGATTN_STRUCT(ringattn_event));
  EXPECT_EQ(ringattn_plan_trace(plan, events.data(), count + 1, &count, nullptr), RINGATTN_OK);
  events.resize(count);
  return events;
}

// Sums over the events of one rank.
struct Sums {
  std::map<std::int32_t, std::uint64_t> count, span, bytes;  // by kind
  std::set<std::int32_t> workers;                            // of tiles
  std::map<std::int32_t, std::uint64_t> moved;               // by block
  std::uint64_t received_of_own = 0;                         // the own gradient that came home

  Sums(const std::vector<ringattn_event>& events, int rank, std::uint64_t before, std::uint64_t after) {
    for (const ringattn_event& event : events) {
      EXPECT_LE(before, event.start_ns);
      EXPECT_LE(event.start_ns, event.end_ns);
      EXPECT_LE(event.end_ns, after);
      EXPECT_EQ(event.worker >= 0, event.kind == RINGATTN_EVENT_TILE || event.kind == RINGATTN_EVENT_MOVE);
      const bool transfer = event.kind == RINGATTN_EVENT_SEND || event.kind == RINGATTN_EVENT_RECEIVE;
      EXPECT_EQ(event.peer >= 0, transfer);
      ++count[event.kind];
      span[event.kind] += event.end_ns - event.start_ns;
      bytes[event.kind] += event.bytes;
      if (event.kind == RINGATTN_EVENT_TILE) workers.insert(event.worker);
      if (event.kind == RINGATTN_EVENT_MOVE) moved[event.block] += event.bytes;
      if (event.kind == RINGATTN_EVENT_RECEIVE && event.block == rank) received_of_own += event.bytes;
    }
  }
};

void expect_trace_fits(HostRing& ring, int rank, std::uint64_t before, std::uint64_t after,
                       std::int64_t element_bytes) {
  ringattn_times times = RINGATTN_STRUCT(ringattn_times);
  ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
  ASSERT_EQ(ringattn_plan_get_times(ring.plan(rank), &times), RINGATTN_OK);
  ASSERT_EQ(ringattn_plan_get_info(ring.plan(rank), ring.call(), &info), RINGATTN_OK);
  Sums sums(events_of(ring.plan(rank)), rank, before, after);
  EXPECT_EQ(times.bytes_sent, info.backward_bytes_sent);
  EXPECT_EQ(times.bytes_received, info.backward_bytes_received);
  EXPECT_EQ(sums.bytes[RINGATTN_EVENT_SEND], info.backward_bytes_sent);
  EXPECT_EQ(sums.bytes[RINGATTN_EVENT_RECEIVE], info.backward_bytes_received);
  EXPECT_EQ(sums.count[RINGATTN_EVENT_AGREE], 1u);
  EXPECT_EQ(sums.span[RINGATTN_EVENT_AGREE], times.agree_ns);
  EXPECT_EQ(sums.span[RINGATTN_EVENT_WAIT], times.exposed_wait_ns);
  EXPECT_EQ(sums.span[RINGATTN_EVENT_RECEIVE], times.transfer_ns);
  EXPECT_EQ(sums.span[RINGATTN_EVENT_TILE], times.compute_ns);
  EXPECT_EQ(sums.count[RINGATTN_EVENT_TILE], times.tiles);
  EXPECT_EQ(sums.workers.size(), static_cast<std::size_t>(times.workers));
  EXPECT_LE(times.agree_ns, times.total_ns);
  EXPECT_LE(times.exposed_wait_ns, times.total_ns);
  EXPECT_LE(times.total_ns, after - before);
  EXPECT_LE(times.poll_ns + times.exposed_wait_ns, times.total_ns);  // one worker polls at a time
  // dK and dV of the own block are written once, whatever else is moved.
  EXPECT_GE(sums.moved[rank], static_cast<std::uint64_t>(element_bytes * info.local_k));
}

class RingBackwardTrace : public ::testing::TestWithParam<const char*> {};

TEST_P(RingBackwardTrace, EventsTimesAndThePlansFiguresFitTogether) {
  const Watchdog watchdog("trace of backward", 60);
  const HostContext context(2);
  const struct {
    const char* line;
    std::int64_t bytes_of_a_key;  // of dK and dV, all kv heads
  } cases[] = {{"n=150 heads=2 dim=16 mask=causal partition=zigzag ranks=3", 2 * 2 * 16 * 4},
               {"n=90 heads=4 kv_heads=2 dim=16 dtype=bf16 mask=causal,window:20 ranks=4", 2 * 2 * 16 * 2},
               {"n=90 dim=16 dim_v=8 dtype=f16 dtype_grad=f32 ranks=4", (16 + 8) * 4},
               {"n=40 dim=16 ranks=1", 2 * 16 * 4},
               {"n=3 dim=8 ranks=5", 2 * 8 * 4},
               {"n=2500 dim=8 mask=causal ranks=2", 2 * 8 * 4}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.line);
    HostRingOptions options;
    options.transport = GetParam();
    options.plan_flags = RINGATTN_PLAN_TRACE;
    HostRing ring(context, std::string(one.line).append(" pass=backward"), options);
    const std::uint64_t before = now_ns();
    for (const ringattn_status status : ring.execute_on_threads()) ASSERT_EQ(status, RINGATTN_OK);
    const std::uint64_t after = now_ns();
    for (int rank = 0; rank < ring.ranks(); ++rank)
      expect_trace_fits(ring, rank, before, after, one.bytes_of_a_key);
  }
}

// One plan's events are those of the pass that ran last; the other leaves nothing.
TEST_P(RingBackwardTrace, ForwardAndBackwardOfOnePlanAreKeptApart) {
  const HostContext context(1);
  HostRingOptions options;
  options.transport = GetParam();
  options.plan_flags = RINGATTN_PLAN_TRACE;
  HostRing ring(context, "n=90 dim=16 mask=causal ranks=3 pass=backward", options);
  std::vector<ringattn_forward_args> forward;
  std::vector<ringattn_plan*> plans;
  for (int rank = 0; rank < 3; ++rank) {
    forward.push_back(ring.tensors(rank).args);
    plans.push_back(ring.plan(rank));
  }
  for (int round = 0; round < 2; ++round) {
    std::uint64_t before = now_ns();
    ASSERT_EQ(ringattn_forward_array(3, plans.data(), forward.data(), nullptr), RINGATTN_OK);
    for (int rank = 0; rank < 3; ++rank) {
      ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
      ASSERT_EQ(ringattn_plan_get_info(ring.plan(rank), nullptr, &info), RINGATTN_OK);
      Sums sums(events_of(ring.plan(rank)), rank, before, now_ns());
      EXPECT_EQ(sums.bytes[RINGATTN_EVENT_SEND], info.bytes_sent);
      EXPECT_EQ(sums.bytes[RINGATTN_EVENT_RECEIVE], info.bytes_received);
      EXPECT_EQ(sums.received_of_own, 0u);
    }
    before = now_ns();
    ASSERT_EQ(ring.execute_all(), RINGATTN_OK) << ringattn_last_error();
    for (int rank = 0; rank < 3; ++rank) expect_trace_fits(ring, rank, before, now_ns(), 2 * 16 * 4);
  }
}

TEST_P(RingBackwardTrace, IsRefusedWhileBackwardRuns) {
  const HostContext context(1);
  HostRingOptions options;
  options.transport = GetParam();
  options.plan_flags = RINGATTN_PLAN_TRACE;
  HostRing ring(context, "n=40 dim=16 ranks=2 pass=backward", options);
  std::uint64_t count = 0;
  ringattn_request* first = ring.start(0);
  EXPECT_EQ(ringattn_plan_trace(ring.plan(0), nullptr, 0, &count, nullptr), RINGATTN_ERR_BUSY);
  EXPECT_EQ(ringattn_plan_trace(ring.plan(1), nullptr, 0, &count, nullptr), RINGATTN_OK);
  ringattn_request* second = ring.start(1);
  EXPECT_EQ(finish(first), RINGATTN_OK);
  EXPECT_EQ(finish(second), RINGATTN_OK);
  EXPECT_EQ(ringattn_plan_trace(ring.plan(0), nullptr, 0, &count, nullptr), RINGATTN_OK);
  EXPECT_GT(count, 0u);
}

// A shard of more keys than a tile takes at once: every range of keys is an event.
TEST_P(RingBackwardTrace, HasRoomForTheEventsOfALongShard) {
  const HostContext context(2);
  HostRingOptions options;
  options.transport = GetParam();
  options.plan_flags = RINGATTN_PLAN_TRACE;
  HostRing ring(context, "n=4500 dim=4 ranks=1 pass=backward", options);
  const std::uint64_t before = now_ns();
  ASSERT_EQ(ring.execute_all(), RINGATTN_OK) << ringattn_last_error();
  expect_trace_fits(ring, 0, before, now_ns(), 2 * 4 * 4);
}

INSTANTIATE_TEST_SUITE_P(Ring, RingBackwardTrace, ::testing::Values("local", "ring_lend", "ring_copy"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ringattn::support
