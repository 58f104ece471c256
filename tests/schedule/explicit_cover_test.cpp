#include <gtest/gtest.h>

#include <map>

#include "schedule/layout.h"
#include "schedule/progression.h"
#include "schedule/reference.h"

namespace ringattn::schedule {
namespace {

using Runs = std::vector<std::vector<PositionRun>>;

void expect_refused(const Runs& runs, std::int64_t length, const std::vector<std::string>& words) {
  const Status status = check_cover(runs, length, "runs_k");
  EXPECT_EQ(status.code(), RINGATTN_ERR_INVALID_ARGUMENT);
  for (const std::string& word : words) {
    EXPECT_NE(status.message().find(word), std::string::npos) << word << " in: " << status.message();
  }
}

TEST(ExplicitCover, NamesTheDefect) {
  EXPECT_TRUE(check_cover(Runs{{{0, 3, 2}}, {{1, 2, 2}, {7, 0, 1}}}, 5, "runs_k").ok());
  EXPECT_TRUE(check_cover(Runs{{}, {}}, 0, "runs_k").ok());
  expect_refused({{{0, 3, 2}}, {{1, 3, 2}}}, 5, {"runs_k", "rank 1, run 0", "position 5", "0..4"});
  expect_refused({{{0, 3, 1}}, {{2, 3, 1}}}, 5, {"rank 0, run 0", "rank 1, run 0", "position 2"});
  expect_refused({{{0, 2, 1}}, {{4, 1, 1}, {3, 1, 1}}}, 5, {"no rank holds position 2"});
  expect_refused({{}, {}}, 5, {"no rank holds position 0"});
  expect_refused({{{-1, 6, 1}}}, 5, {"rank 0, run 0", "position -1"});
  expect_refused({{{0, 5, 0}}}, 5, {"rank 0, run 0", "stride 0"});
  expect_refused({{{0, -5, 1}}}, 5, {"rank 0, run 0", "length -5"});
  expect_refused({{{1, kUnbounded, kUnbounded}}}, 5, {"rank 0, run 0 holds position"});
}

TEST(ExplicitCover, NeedsNoTimeForLongAxes) {
  const std::int64_t n = std::int64_t{1} << 40;
  Runs runs(64);
  for (std::int64_t rank = 0; rank < 64; ++rank) runs[static_cast<std::size_t>(rank)] = {{rank, n / 64, 64}};
  EXPECT_TRUE(check_cover(runs, n, "runs_q").ok());
  --runs[17][0].length;
  expect_refused(runs, n, {"no rank holds position " + std::to_string(n - 64 + 17)});
  runs[17] = {{17, n / 64 - 1, 64}, {18, 1, 1}};
  expect_refused(runs, n, {"rank 17, run 1", "rank 18, run 0", "position 18"});
}

TEST(ExplicitCover, RandomRunsLikeCounting) {
  reference::Random random(2);
  int covers = 0, defects = 0;
  for (int i = 0; i < 5000; ++i) {
    const std::int64_t length = reference::between(random, 0, 40);
    Runs runs = reference::random_runs(random, 4, length);
    if (i % 2 == 1) {  // damage one run
      auto& some = runs[static_cast<std::size_t>(reference::between(random, 0, 3))];
      if (some.empty()) continue;
      PositionRun& run = some[static_cast<std::size_t>(reference::between(random, 0, std::ssize(some) - 1))];
      run.first += reference::between(random, -1, 1);
      run.length = std::max<std::int64_t>(run.length + reference::between(random, -1, 1), 0);
      run.stride = std::max<std::int64_t>(run.stride + reference::between(random, -1, 1), 1);
    }
    std::map<std::int64_t, int> count;
    for (const auto& rank : runs) {
      for (const PositionRun& run : rank) {
        for (std::int64_t j = 0; j < run.length; ++j) ++count[run.first + j * run.stride];
      }
    }
    bool exact = std::ssize(count) == length;
    for (const auto& [position, times] : count)
      exact = exact && position >= 0 && position < length && times == 1;
    const Status status = check_cover(runs, length, "runs_k");
    ASSERT_EQ(status.ok(), exact) << status.message();
    ++(exact ? covers : defects);
  }
  EXPECT_GT(covers, 2000);
  EXPECT_GT(defects, 1000);
}

TEST(Progression, FloorSumLikeAdding) {
  reference::Random random(3);
  for (int i = 0; i < 2000; ++i) {
    const std::int64_t count = reference::between(random, 0, 30), divisor = reference::between(random, 1, 20);
    const std::int64_t step = reference::between(random, 0, 50),
                       numerator = reference::between(random, 0, 99);
    std::int64_t sum = 0;
    for (std::int64_t j = 0; j < count; ++j) sum += (numerator + j * step) / divisor;
    ASSERT_EQ(static_cast<std::int64_t>(floor_sum(count, divisor, step, numerator)), sum);
  }
  const std::int64_t n = std::int64_t{1} << 40;  // sum of floor(i / 2) = (n / 2) * (n / 2 - 1)
  EXPECT_TRUE(floor_sum(n, 2, 1, 0) == Wide(n / 2) * (n / 2 - 1));
}

TEST(Progression, FirstCommonLikeSearching) {
  reference::Random random(4);
  for (int i = 0; i < 5000; ++i) {
    const auto draw = [&] {
      return Progression{reference::between(random, 0, 20), reference::between(random, 0, 8),
                         reference::between(random, 1, 12)};
    };
    const Progression a = draw(), b = draw();
    std::int64_t first = -1;
    for (std::int64_t j = a.length - 1; j >= 0; --j) {
      const std::int64_t x = a.first + j * a.stride;
      if (b.count_below(x + 1) > b.count_below(x)) first = x;
    }
    ASSERT_EQ(first_common(a, b), first);
  }
}

}  // namespace
}  // namespace ringattn::schedule
