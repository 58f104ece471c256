// Events and times of an execution: inside the call, whole, and equal to what the plan tells.
#include "trace/trace.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "tests/ring/host_ring.h"

namespace ringattn::support {
namespace {

TEST(RingTrace, OffRecordsNothing) {
  trace::Trace off;
  off.add(RINGATTN_EVENT_TILE, 0, -1, 0, 0, 1, 2, 0);
  EXPECT_FALSE(off.on());
  EXPECT_EQ(off.count(), 0u);
}

TEST(RingTrace, BeyondItsSizeEventsAreCountedAsDropped) {
  trace::Trace trace;
  trace.reserve(3);
  for (int i = 0; i < 5; ++i) trace.add(RINGATTN_EVENT_TILE, i, -1, 0, i, 1, 2, 0);
  EXPECT_EQ(trace.count(), 3u);
  EXPECT_EQ(trace.dropped(), 2u);
  EXPECT_EQ(trace[2].worker, 2);
  trace.clear();
  EXPECT_EQ(trace.count(), 0u);
  EXPECT_EQ(trace.dropped(), 0u);
  trace.add(RINGATTN_EVENT_WAIT, -1, -1, -1, std::int64_t{1} << 40, 1, 2, 0);
  EXPECT_EQ(trace[0].item, 0x7fffffff) << "an item that does not fit";
}

TEST(RingTrace, ThreadsAppendWithoutLosingOne) {
  trace::Trace trace;
  trace.reserve(1000);
  run_threads(4, [&](int thread) {
    for (int i = 0; i < 250; ++i) trace.add(RINGATTN_EVENT_TILE, thread, -1, 0, i, 1, 2, 0);
  });
  EXPECT_EQ(trace.count(), 1000u);
  std::set<std::pair<int, int>> seen;
  for (std::size_t i = 0; i < 1000; ++i) seen.emplace(trace[i].worker, trace[i].item);
  EXPECT_EQ(seen.size(), 1000u);
}

std::vector<ringattn_event> events_of(ringattn_plan* plan) {
  std::uint64_t count = 0, dropped = 99;
  EXPECT_EQ(ringattn_plan_trace(plan, nullptr, 0, &count, &dropped), RINGATTN_OK) << ringattn_last_error();
  EXPECT_EQ(dropped, 0u);
  std::vector<ringattn_event> events(count + 1, RINGATTN_STRUCT(ringattn_event));
  EXPECT_EQ(ringattn_plan_trace(plan, events.data(), count + 1, &count, nullptr), RINGATTN_OK);
  events.resize(count);
  return events;
}

class RingExecutionTrace : public ::testing::TestWithParam<const char*> {};

TEST_P(RingExecutionTrace, EventsAndTimesFitTogether) {
  const HostContext context;
  for (const char* line : {"n=150 heads=2 dim=16 mask=causal partition=zigzag ranks=3",
                           "n=90 heads=4 kv_heads=2 dim=16 mask=causal,window:20 ranks=4",
                           "n=40 dim=16 ranks=1", "n=3 dim=8 ranks=5"}) {
    HostRingOptions options;
    options.transport = GetParam();
    options.plan_flags = RINGATTN_PLAN_TRACE;
    HostRing ring(context, line, options);
    const std::uint64_t before = now_ns();
    for (const ringattn_status status : ring.execute_on_threads()) ASSERT_EQ(status, RINGATTN_OK);
    const std::uint64_t after = now_ns();
    for (int rank = 0; rank < ring.ranks(); ++rank) {
      ringattn_times times = RINGATTN_STRUCT(ringattn_times);
      ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
      ASSERT_EQ(ringattn_plan_get_times(ring.plan(rank), &times), RINGATTN_OK);
      ASSERT_EQ(ringattn_plan_get_info(ring.plan(rank), ring.call(), &info), RINGATTN_OK);
      EXPECT_LE(times.total_ns, after - before);
      EXPECT_LE(times.agree_ns, times.total_ns);
      EXPECT_LE(times.exposed_wait_ns, times.total_ns);
      EXPECT_LE(times.workers, 2);
      EXPECT_EQ(times.bytes_sent, info.bytes_sent) << line;
      EXPECT_EQ(times.bytes_received, info.bytes_received) << line;
      std::uint64_t tiles = 0, compute = 0, sent = 0, received = 0, transfer = 0, moved = 0, own = 0;
      int agrees = 0;
      std::set<int> workers, blocks;
      for (const ringattn_event& event : events_of(ring.plan(rank))) {
        EXPECT_LE(before, event.start_ns);
        EXPECT_LE(event.start_ns, event.end_ns);
        EXPECT_LE(event.end_ns, after);
        EXPECT_LT(event.peer, ring.ranks());
        EXPECT_EQ(event.worker >= 0, event.kind == RINGATTN_EVENT_TILE || event.kind == RINGATTN_EVENT_MOVE);
        const std::uint64_t span = event.end_ns - event.start_ns;
        switch (event.kind) {
          case RINGATTN_EVENT_TILE:
            ++tiles;
            compute += span;
            workers.insert(event.worker);
            break;
          case RINGATTN_EVENT_SEND:
            sent += event.bytes;
            if (event.block == rank) own = event.bytes;
            break;
          case RINGATTN_EVENT_RECEIVE:
            received += event.bytes;
            transfer += span;
            EXPECT_NE(event.block, rank);
            EXPECT_TRUE(blocks.insert(event.block).second) << "a block came twice";
            break;
          case RINGATTN_EVENT_AGREE:
            ++agrees;
            break;
          case RINGATTN_EVENT_MOVE:
            moved += event.bytes;
            break;
          default:
            EXPECT_EQ(event.kind, RINGATTN_EVENT_WAIT);
        }
      }
      EXPECT_EQ(agrees, 1);
      EXPECT_EQ(moved, std::string(GetParam()) == "ring_copy" ? own : 0) << "the own block is packed once";
      EXPECT_EQ(tiles, times.tiles);
      EXPECT_EQ(compute, times.compute_ns);
      EXPECT_EQ(transfer, times.transfer_ns);
      EXPECT_EQ(sent, times.bytes_sent);
      EXPECT_EQ(received, times.bytes_received);
      EXPECT_EQ(static_cast<int>(workers.size()), times.workers);
      EXPECT_EQ(tiles > 0, info.pairs > 0) << line;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ring, RingExecutionTrace, ::testing::Values("local", "ring_copy"),
                         [](const auto& info) { return std::string(info.param); });

TEST(RingExecutionTrace2, OnlyTheLastExecutionCounts) {
  const HostContext context(1);
  HostRingOptions options;
  options.plan_flags = RINGATTN_PLAN_TRACE;
  HostRing ring(context, "n=40 dim=16 ranks=2", options);
  ringattn_times none = RINGATTN_STRUCT(ringattn_times);
  ASSERT_EQ(ringattn_plan_get_times(ring.plan(0), &none), RINGATTN_OK);
  EXPECT_EQ(none.total_ns, 0u);
  EXPECT_TRUE(events_of(ring.plan(0)).empty());
  ASSERT_EQ(ring.execute_all(), RINGATTN_OK);
  const std::size_t once = events_of(ring.plan(0)).size();
  const std::uint64_t between = now_ns();
  ASSERT_EQ(ring.execute_all(), RINGATTN_OK);
  int tiles = 0, later = 0;
  for (const ringattn_event& event : events_of(ring.plan(0))) {
    tiles += event.kind == RINGATTN_EVENT_TILE ? 1 : 0;
    later += event.start_ns >= between ? 1 : 0;
  }
  EXPECT_GT(tiles, 0);
  EXPECT_EQ(static_cast<std::size_t>(later), events_of(ring.plan(0)).size());
  EXPECT_GT(once, 0u);
}

TEST(RingExecutionTrace2, LittleRoomTakesTheFirstEventsAndTellsHowManyThereAre) {
  const HostContext context(1);
  HostRingOptions options;
  options.plan_flags = RINGATTN_PLAN_TRACE;
  HostRing ring(context, "n=40 dim=16 ranks=2", options);
  ASSERT_EQ(ring.execute_all(), RINGATTN_OK);
  const std::vector<ringattn_event> all = events_of(ring.plan(1));
  ASSERT_GT(all.size(), 2u);
  ringattn_event two[3] = {RINGATTN_STRUCT(ringattn_event), RINGATTN_STRUCT(ringattn_event), {}};
  std::uint64_t count = 0;
  ASSERT_EQ(ringattn_plan_trace(ring.plan(1), two, 2, &count, nullptr), RINGATTN_OK);
  EXPECT_EQ(count, all.size());
  EXPECT_EQ(two[1].start_ns, all[1].start_ns);
  EXPECT_EQ(two[2].struct_size, 0u) << "written beyond the room";
  two[0].struct_size = 8;
  EXPECT_EQ(ringattn_plan_trace(ring.plan(1), two, 2, &count, nullptr), RINGATTN_ERR_STRUCT_SIZE);
}

}  // namespace
}  // namespace ringattn::support
