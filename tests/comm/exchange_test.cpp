// The exchanges at the start of a call: every rank hears of every difference, whatever the number of ranks.
#include "comm/exchange.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/spawn.h"

namespace ringattn::comm {
namespace {

constexpr std::uint64_t kRestNs = 1'000'000;

std::vector<std::unique_ptr<Comm>> ring_of(std::int32_t world) {
  std::vector<std::unique_ptr<Comm>> comms;
  const Status status = Comm::create_local(Log(), world, "local", CommOptions(), comms);
  EXPECT_TRUE(status.ok()) << status.message();
  return comms;
}

// Drives one exchange a rank from this thread until all have ended and nothing is posted any more.
template <typename Exchange>
void drive(std::vector<std::unique_ptr<Comm>>& comms, std::vector<std::unique_ptr<Exchange>>& exchanges) {
  const support::Watchdog watchdog("an exchange", 60);
  std::vector<bool> done(comms.size(), false);
  for (bool all = false; !all;) {
    all = true;
    for (std::size_t rank = 0; rank < comms.size(); ++rank) {
      comms[rank]->poll();
      if (!done[rank]) done[rank] = exchanges[rank]->step();
      all = all && done[rank] && comms[rank]->pending() == 0;
    }
  }
}

// Whether each rank found its digests equal.
std::vector<bool> compare(std::vector<std::unique_ptr<Comm>>& comms,
                          const std::vector<std::uint64_t>& digests) {
  std::vector<std::unique_ptr<DigestExchange>> exchanges;
  for (std::size_t rank = 0; rank < comms.size(); ++rank) {
    exchanges.push_back(std::make_unique<DigestExchange>(*comms[rank]));
    exchanges[rank]->start(comms[rank]->enter("test"), digests[rank]);
  }
  drive(comms, exchanges);
  std::vector<bool> equal;
  for (const auto& exchange : exchanges) equal.push_back(exchange->equal());
  return equal;
}

class RingExchange : public ::testing::TestWithParam<int> {};

TEST_P(RingExchange, EqualDigestsAreEqualOnEveryRank) {
  const auto world = static_cast<std::size_t>(GetParam());
  auto comms = ring_of(GetParam());
  EXPECT_EQ(compare(comms, std::vector<std::uint64_t>(world, 77)), std::vector<bool>(world, true));
  EXPECT_EQ(compare(comms, std::vector<std::uint64_t>(world, ~0ull)), std::vector<bool>(world, true));
}

TEST_P(RingExchange, OneThatDiffersIsSeenByEveryRank) {
  const auto world = static_cast<std::size_t>(GetParam());
  if (world == 1) return;
  auto comms = ring_of(GetParam());
  // First, last, and around the border of the first round.
  for (const std::size_t odd : {std::size_t{0}, world / 2, std::min<std::size_t>(15, world - 1), world - 1}) {
    for (const std::uint64_t value : {std::uint64_t{0}, ~std::uint64_t{0}}) {
      std::vector<std::uint64_t> digests(world, 77);
      digests[odd] = value;
      EXPECT_EQ(compare(comms, digests), std::vector<bool>(world, false)) << "rank " << odd;
    }
  }
}

TEST_P(RingExchange, RecordsOfEverySizeReachEveryRank) {
  const int world = GetParam();
  auto comms = ring_of(world);
  const auto record_of = [&](int rank) {
    if (rank % 3 == 0) return std::string();
    return std::string(static_cast<std::size_t>(rank % 3 == 1 ? rank : 100'000 / rank),
                       static_cast<char>('a' + rank % 26));
  };
  std::vector<std::unique_ptr<RecordExchange>> exchanges;
  for (int rank = 0; rank < world; ++rank) {
    Comm& comm = *comms[static_cast<std::size_t>(rank)];
    exchanges.push_back(std::make_unique<RecordExchange>(comm, comm.enter("test"), record_of(rank)));
  }
  drive(comms, exchanges);
  for (const auto& exchange : exchanges) {
    ASSERT_EQ(exchange->records().size(), static_cast<std::size_t>(world));
    for (int rank = 0; rank < world; ++rank) {
      ASSERT_EQ(exchange->records()[static_cast<std::size_t>(rank)], record_of(rank)) << "of rank " << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, RingExchange, ::testing::Values(1, 2, 3, 5, 15, 16, 17, 31, 32, 33, 48, 64));

// One thread a rank, blocking waits, many calls in a row, one rank ahead of another by chance.
void exchange_on_threads(std::int32_t world, int calls) {
  auto comms = ring_of(world);
  support::run_threads(
      world,
      [&](int rank) {
        Comm& comm = *comms[static_cast<std::size_t>(rank)];
        DigestExchange exchange(comm);
        for (int call = 0; call < calls; ++call) {
          const bool differs = call % 3 == 2;
          const bool odd = differs && rank == call % world;
          exchange.start(comm.enter("test"), odd ? 5 : 9);
          for (bool done = false; !done || comm.pending() != 0;) {
            if (comm.poll() == 0) comm.wait(kRestNs);
            if (!done) done = exchange.step();
          }
          ASSERT_EQ(exchange.equal(), !differs) << "rank " << rank << ", call " << call;
        }
      },
      60, "digests on threads");
}

TEST(RingExchangeThreads, Two) { exchange_on_threads(2, 300); }
TEST(RingExchangeThreads, Seventeen) { exchange_on_threads(17, 30); }
TEST(RingExchangeThreads, ThirtyThree) { exchange_on_threads(33, 12); }
TEST(RingExchangeThreads, SixtyFour) { exchange_on_threads(64, 6); }

TEST(RingExchangeThreads, WhoIsMissingIsNamed) {
  auto comms = ring_of(4);
  DigestExchange exchange(*comms[1]);
  exchange.start(comms[1]->enter("test"), 1);
  DigestExchange other(*comms[2]);
  other.start(comms[2]->enter("test"), 1);
  comms[0]->enter("test");  // has entered, but says nothing yet
  comms[1]->poll();
  EXPECT_FALSE(exchange.step());
  EXPECT_EQ(exchange.waits_for(), 3) << "a rank that has not entered comes before one that has";
  comms[1]->abort(RINGATTN_ERR_ABORTED, "done");
  for (auto& comm : comms) comm->poll();
}

}  // namespace
}  // namespace ringattn::comm
