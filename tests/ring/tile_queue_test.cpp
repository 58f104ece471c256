// The queue of tiles: every tile passes every position once, in order, whoever draws and whenever positions
// open.
#include "ring/tile_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "ring/move_queue.h"
#include "tests/support/random_data.h"
#include "tests/support/spawn.h"

namespace ringattn::ring {
namespace {

TEST(RingTileQueue, ClosedPositionsGiveNothing) {
  TileQueue queue;
  queue.reserve(4, 3);
  queue.start(4, 3, false, 0);
  Task task;
  EXPECT_FALSE(queue.draw(task));
  queue.open(1);  // no tile is there yet
  EXPECT_FALSE(queue.draw(task));
  EXPECT_EQ(queue.ready(), 0);
  queue.open(0);
  EXPECT_EQ(queue.ready(), 4);
}

TEST(RingTileQueue, EarlierPositionsComeFirstWithoutStay) {
  TileQueue queue;
  queue.reserve(3, 2);
  queue.start(3, 2, false, 0);
  queue.open(0);
  queue.open(1);
  Task task;
  for (std::int32_t position = 0; position < 2; ++position) {
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(queue.draw(task));
      EXPECT_EQ(task.position, position);
      EXPECT_FALSE(queue.finish(task)) << "without stay a worker draws anew";
    }
  }
  EXPECT_FALSE(queue.draw(task));
  EXPECT_TRUE(queue.all_passed());
}

TEST(RingTileQueue, AWorkerStaysWithItsTileWhileTheNextPositionIsOpen) {
  TileQueue queue;
  queue.reserve(2, 3);
  queue.start(2, 3, true, 0);
  queue.open(0);
  queue.open(1);
  Task task;
  ASSERT_TRUE(queue.draw(task));
  const std::int64_t tile = task.tile;
  EXPECT_TRUE(queue.finish(task));
  EXPECT_EQ(task.tile, tile);
  EXPECT_EQ(task.position, 1);
  EXPECT_FALSE(queue.finish(task)) << "position 2 is closed";
  EXPECT_EQ(queue.running(), 0);
  EXPECT_FALSE(queue.all_passed());
}

TEST(RingTileQueue, OpenAgainIsHarmless) {
  TileQueue queue;
  queue.reserve(5, 2);
  queue.start(5, 2, false, 0);
  queue.open(0);
  queue.open(0);
  EXPECT_EQ(queue.ready(), 5);
  Task task;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(queue.draw(task));
  EXPECT_FALSE(queue.draw(task));
  EXPECT_EQ(queue.running(), 5);
}

TEST(RingTileQueue, WhatIsPutBackIsDrawnAgainAtItsPosition) {
  TileQueue queue;
  queue.reserve(1, 2);
  queue.start(1, 2, false, 0);
  queue.open(0);
  Task task;
  ASSERT_TRUE(queue.draw(task));
  queue.put_back(task);
  EXPECT_EQ(queue.running(), 0);
  EXPECT_EQ(queue.ready(), 1);
  Task again;
  ASSERT_TRUE(queue.draw(again));
  EXPECT_EQ(again.tile, task.tile);
  EXPECT_EQ(again.position, 0);
}

TEST(RingTileQueue, AfterCloseNothingIsDrawnAndWorkersMayStillFinish) {
  TileQueue queue;
  queue.reserve(3, 2);
  queue.start(3, 2, true, 0);
  queue.open(0);
  queue.open(1);
  Task task;
  ASSERT_TRUE(queue.draw(task));
  queue.close();
  EXPECT_EQ(queue.ready(), 0);
  Task other;
  EXPECT_FALSE(queue.draw(other));
  EXPECT_EQ(queue.running(), 1);
  EXPECT_FALSE(queue.finish(task)) << "a closed queue lets nobody stay";
  EXPECT_EQ(queue.running(), 0);
  EXPECT_FALSE(queue.draw(other));
  queue.start(2, 1, true, 0);  // the next call begins anew
  queue.open(0);
  EXPECT_EQ(queue.ready(), 2);
}

TEST(RingTileQueue, FinishedPositionsAreToldOnce) {
  TileQueue queue;
  queue.reserve(2, 2);
  queue.start(2, 2, false, 0);
  queue.open(0);
  std::int32_t position = -1;
  Task task;
  ASSERT_TRUE(queue.draw(task));
  queue.finish(task);
  EXPECT_FALSE(queue.take_finished(&position)) << "one tile has not passed";
  ASSERT_TRUE(queue.draw(task));
  queue.finish(task);
  ASSERT_TRUE(queue.take_finished(&position));
  EXPECT_EQ(position, 0);
  EXPECT_FALSE(queue.take_finished(&position));
}

TEST(RingTileQueue, NothingToDoHasPassed) {
  TileQueue queue;
  queue.reserve(0, 2);
  queue.start(0, 2, false, 0);
  EXPECT_TRUE(queue.all_passed());
  queue.start(0, 0, false, 0);
  EXPECT_TRUE(queue.all_passed());
}

// Four threads hammer one queue while positions open in random order: each tile must meet 0, 1, 2, ... one
// after the
// other, never two workers at once, none twice.
void hammer(bool stay, std::uint64_t seed) {
  constexpr std::int64_t kTiles = 37;
  constexpr std::int32_t kPositions = 9;
  TileQueue queue;
  queue.reserve(kTiles, kPositions);
  queue.start(kTiles, kPositions, stay, 0);
  std::array<std::atomic<std::int32_t>, kTiles> passed{};
  std::array<std::atomic<bool>, kTiles> held{};
  std::atomic<int> errors{0};
  const auto work = [&](int thread) {
    support::Random random(seed * 10 + static_cast<std::uint64_t>(thread));
    Task task;
    while (!queue.all_passed()) {
      if (!queue.draw(task)) {
        std::this_thread::yield();
        continue;
      }
      const auto tile = static_cast<std::size_t>(task.tile);
      for (bool more = true; more;) {
        if (held[tile].exchange(true)) ++errors;
        if (passed[tile].load() != task.position) ++errors;
        const bool done = random.below(4) != 0;
        if (done) ++passed[tile];
        held[tile] = false;  // before others may draw it
        if (done) {
          more = queue.finish(task);
        } else {
          queue.put_back(task);
          more = false;
        }
      }
    }
  };
  support::run_threads(
      5,
      [&](int thread) {
        if (thread < 4) return work(thread);
        std::vector<std::int32_t> order;
        for (std::int32_t position = 0; position < kPositions; ++position) order.push_back(position);
        support::Random random(seed);
        for (std::size_t i = order.size(); i > 1; --i) {
          std::swap(order[i - 1],
                    order[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
        }
        for (const std::int32_t position : order) {
          queue.open(position);
          std::this_thread::yield();
        }
      },
      60, "tile queue");
  EXPECT_EQ(errors, 0);
  EXPECT_EQ(queue.ready(), 0);
  EXPECT_EQ(queue.running(), 0);
  std::array<int, kPositions> told{};
  std::int32_t position = 0;
  while (queue.take_finished(&position)) ++told[static_cast<std::size_t>(position)];
  for (const int count : told) EXPECT_EQ(count, 1);
  for (const auto& count : passed) EXPECT_EQ(count.load(), kPositions);
}

TEST(RingTileQueue, FourThreadsNeverBreakTheOrderOfATile) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) hammer(false, seed);
}

TEST(RingTileQueue, NorDoThreadsThatStayWithTheirTile) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) hammer(true, seed);
}

// A chain: the second tile follows the first at every position, a new chain begins by itself.
TEST(RingTileQueue, ATileStaysBehindTheOneBeforeItInItsChain) {
  TileQueue queue;
  queue.reserve(4, 3);
  queue.start(4, 3, true, 2);
  for (std::int32_t position = 0; position < 3; ++position) queue.open(position);
  EXPECT_EQ(queue.ready(), 2) << "the first of each chain";
  Task first, other, second;
  ASSERT_TRUE(queue.draw(first));
  ASSERT_TRUE(queue.draw(other));
  EXPECT_EQ(first.tile + other.tile, 0 + 2);
  if (first.tile != 0) std::swap(first, other);
  EXPECT_FALSE(queue.draw(second));
  EXPECT_TRUE(queue.finish(first)) << "goes on with position 1";
  ASSERT_TRUE(queue.draw(second)) << "position 0 is free for the next";
  EXPECT_EQ(second.tile, 1);
  EXPECT_EQ(second.position, 0);
  EXPECT_FALSE(queue.finish(second)) << "the first is still at position 1";
  EXPECT_EQ(queue.ready(), 0);
  EXPECT_TRUE(queue.finish(first));
  EXPECT_EQ(queue.ready(), 1);
  EXPECT_FALSE(queue.finish(first)) << "through";
  ASSERT_TRUE(queue.draw(second));
  EXPECT_TRUE(queue.finish(second)) << "nobody is before it any more";
  EXPECT_FALSE(queue.finish(second));
  EXPECT_FALSE(queue.all_passed());
}

// Many threads, positions that open late: nobody overtakes, nobody meets anybody at a position of one chain.
TEST(RingTileQueue, ChainsKeepTheirOrderWhoeverDraws) {
  constexpr std::int64_t kTiles = 60, kChain = 12;
  constexpr std::int32_t kPositions = 9;
  for (const bool stay : {false, true}) {
    TileQueue queue;
    queue.reserve(kTiles, kPositions);
    queue.start(kTiles, kPositions, stay, kChain);
    std::atomic<int> inside[kTiles / kChain][kPositions] = {};
    std::atomic<std::int64_t> expected[kTiles / kChain][kPositions] = {};
    std::atomic<int> wrong{0};
    support::run_threads(4, [&](int thread) {
      for (std::int32_t opened = 0; !queue.all_passed();) {
        if (thread == 0 && opened < kPositions) queue.open(opened++);
        Task task;
        if (!queue.draw(task)) {
          std::this_thread::yield();
          continue;
        }
        for (bool more = true; more;) {
          const auto chain = task.tile / kChain, place = task.tile % kChain;
          if (inside[chain][task.position].fetch_add(1) != 0) ++wrong;
          if (expected[chain][task.position].fetch_add(1) != place) ++wrong;
          inside[chain][task.position].fetch_sub(1);
          more = queue.finish(task);
        }
      }
    });
    EXPECT_EQ(wrong, 0);
  }
}

// Parts of operations that move memory: each is drawn once, an operation ends with its last part.
TEST(RingMoveQueue, EachPartOnce) {
  MoveQueue queue;
  queue.reserve(4);
  queue.start();
  queue.open(7, 3);
  queue.open(2, 1);
  EXPECT_EQ(queue.ready(), 4);
  std::vector<Task> tasks(4);
  for (Task& task : tasks) ASSERT_TRUE(queue.draw(task));
  Task none;
  EXPECT_FALSE(queue.draw(none));
  EXPECT_EQ(queue.running(), 4);
  std::int32_t finished = -1;
  queue.finish(tasks[3]);
  ASSERT_TRUE(queue.take_finished(&finished));
  EXPECT_EQ(finished, 2);
  queue.finish(tasks[0]);
  queue.finish(tasks[2]);
  EXPECT_FALSE(queue.take_finished(&finished));
  queue.finish(tasks[1]);
  ASSERT_TRUE(queue.take_finished(&finished));
  EXPECT_EQ(finished, 7);
  EXPECT_EQ(queue.running(), 0);
}

TEST(RingMoveQueue, ClosedGivesNothing) {
  MoveQueue queue;
  queue.reserve(2);
  queue.start();
  queue.open(0, 5);
  Task task;
  ASSERT_TRUE(queue.draw(task));
  queue.close();
  EXPECT_EQ(queue.ready(), 0);
  Task none;
  EXPECT_FALSE(queue.draw(none));
  queue.finish(task);
  EXPECT_EQ(queue.running(), 0);
}

}  // namespace
}  // namespace ringattn::ring
