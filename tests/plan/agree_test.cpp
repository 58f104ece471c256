// Which comms make a whole ring, and the exchange of records between ranks that do not share a thread.
#include "plan/agree.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/support/spawn.h"

namespace ringattn::plan {
namespace {

using comm::Comm;

std::vector<std::unique_ptr<Comm>> ring_of(std::int32_t world) {
  std::vector<std::unique_ptr<Comm>> comms;
  const Status status = Comm::create_local(Log(), world, "local", comm::CommOptions(), comms);
  EXPECT_TRUE(status.ok()) << status.message();
  return comms;
}

bool whole(const std::vector<Comm*>& comms) {
  RingSet ring;
  for (Comm* comm : comms) ring.add(*comm);
  return ring.whole();
}

TEST(RingAgree, AllRanksOfOneRingOnceAreWhole) {
  const auto a = ring_of(3), b = ring_of(3);
  EXPECT_TRUE(whole({a[0].get(), a[1].get(), a[2].get()}));
  EXPECT_TRUE(whole({a[2].get(), a[0].get(), a[1].get()}));
  EXPECT_FALSE(whole({}));
  EXPECT_FALSE(whole({a[0].get(), a[1].get()}));
  EXPECT_FALSE(whole({a[0].get(), a[1].get(), a[1].get()}));
  EXPECT_FALSE(whole({a[0].get(), a[1].get(), b[2].get()}));
  EXPECT_TRUE(whole({ring_of(1)[0].get()}));
}

Record record_of(const std::string& value) {
  Record record;
  record.fields = {{"field", value}};
  return record;
}

// Ranks in groups of one thread each; every rank gets every record, in rank order.
void agree_in_groups(const std::vector<int>& groups) {
  std::int32_t world = 0;
  for (const int size : groups) world += size;
  const auto comms = ring_of(world);
  std::vector<std::vector<Agreement>> agreements;
  std::int32_t rank = 0;
  for (const int size : groups) {
    agreements.emplace_back(static_cast<std::size_t>(size));
    for (Agreement& agreement : agreements.back()) {
      agreement.comm = comms[static_cast<std::size_t>(rank)].get();
      agreement.own = record_of("same");
      agreement.own.runs_k = {{rank++, 1, 1}};
    }
  }
  for (const bool first : {true, false}) {
    support::run_threads(
        static_cast<int>(groups.size()),
        [&](int group) { agree(agreements[static_cast<std::size_t>(group)], first); }, 30, "agree");
    for (const auto& group : agreements) {
      for (const Agreement& agreement : group) {
        EXPECT_TRUE(agreement.status.ok()) << agreement.status.message();
        ASSERT_EQ(agreement.records.size(), static_cast<std::size_t>(world));
        for (std::int32_t r = 0; r < world; ++r)
          EXPECT_EQ(agreement.records[static_cast<std::size_t>(r)].runs_k[0].first, r);
        EXPECT_EQ(agreement.comm->pending(), 0);
      }
    }
  }
}

TEST(RingAgree, OneThreadARank) { agree_in_groups({1, 1, 1, 1}); }
TEST(RingAgree, TwoGroups) { agree_in_groups({2, 3}); }
TEST(RingAgree, OneThreadForAll) { agree_in_groups({4}); }
TEST(RingAgree, SeventeenRanks) { agree_in_groups({9, 1, 7}); }

}  // namespace
}  // namespace ringattn::plan
