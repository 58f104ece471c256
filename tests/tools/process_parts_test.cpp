// What attend and verify are made of where ranks are processes: gathering by attention, shares, names.
#include <gtest/gtest.h>

#include "tests/support/random_data.h"
#include "tests/support/spawn.h"
#include "tools/ringattn/gather.h"
#include "tools/ringattn/problem_words.h"
#include "tools/ringattn/ring.h"
#include "tools/ringattn/run_self.h"
#include "tools/ringattn/trace_file.h"

namespace ringattn::tool {
namespace {

using Bytes = std::vector<std::byte>;
using Words = std::vector<std::string>;

Bytes random_bytes(std::size_t count, std::uint64_t seed) {
  support::Random random(seed);
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.bits());
  return bytes;
}

// Each rank on a thread of its own, as processes would: result[rank].
std::vector<std::vector<Bytes>> gather_on_threads(const std::vector<Bytes>& given) {
  const Ring ring = make_local_ring(static_cast<int>(given.size()), 1, "");
  std::vector<std::size_t> sizes;
  for (const Bytes& bytes : given) sizes.push_back(bytes.size());
  std::vector<std::vector<Bytes>> results(given.size());
  support::run_threads(ring.world, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    results[at] = gather_bytes(ring.comms[at].get(), given[at], sizes);
  });
  return results;
}

TEST(Gather, EveryByteArrives) {
  // All values of a byte at each of the three places of a number, with rests; some ranks have nothing.
  Bytes all(256 * 3 + 2);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::byte>(i / 3);
  const std::vector<std::vector<Bytes>> cases = {
      {all, {}, random_bytes(1, 1), random_bytes(5000, 2)}, {all}, {{}, {}, {}}, {{}, random_bytes(4, 3)}};
  for (const std::vector<Bytes>& given : cases) {
    const auto results = gather_on_threads(given);
    EXPECT_TRUE(results[0] == given) << given.size();
    for (std::size_t rank = 1; rank < results.size(); ++rank) EXPECT_TRUE(results[rank].empty());
  }
}

TEST(Gather, MoreThanOneRound) {
  const std::vector<Bytes> given = {random_bytes(100, 1), random_bytes(13'000'001, 2)};
  EXPECT_TRUE(gather_on_threads(given)[0] == given);
}

TEST(Gather, RankZerosNumberIsOnEveryRank) {
  const Ring ring = make_local_ring(3, 1, "");
  for (const std::uint32_t number : {0u, 1u, (1u << 24) - 1}) {
    std::vector<std::uint32_t> heard(3);
    support::run_threads(3, [&](int rank) {
      const auto at = static_cast<std::size_t>(rank);
      heard[at] = number_of_rank_zero(ring.comms[at].get(), rank == 0 ? number : 7);
    });
    EXPECT_EQ(heard, std::vector<std::uint32_t>(3, number));
  }
}

TEST(Launched, ProcessesShareTheCores) {
  EXPECT_EQ(share_of_cores(8, 2), 4);
  EXPECT_EQ(share_of_cores(8, 3), 2);
  EXPECT_EQ(share_of_cores(2, 4), 1);
  EXPECT_EQ(share_of_cores(2, 0), 2);
}

TEST(RunSelf, TheOptionIsLeftOut) {
  EXPECT_EQ(without_processes({"attend", "--processes", "4", "in", "--check"}),
            (Words{"attend", "in", "--check"}));
  EXPECT_EQ(without_processes({"verify", "n=9", "--processes=4"}), (Words{"verify", "n=9"}));
  EXPECT_EQ(without_processes({"attend", "--", "--processes", "4"}),
            (Words{"attend", "--", "--processes", "4"}));
}

TEST(TraceFile, NamesCarryTheRank) {
  EXPECT_EQ(path_of_rank("trace.json", 2), "trace.rank2.json");
  EXPECT_EQ(path_of_rank("a.b/trace", 0), "a.b/trace.rank0");
  EXPECT_EQ(path_of_rank("./x.tar.json", 11), "./x.tar.rank11.json");
}

TEST(ProblemWords, ALineGetsTheRanksItDoesNotName) {
  EXPECT_EQ(line_for_processes("n=9 mask=causal", 4), "n=9 mask=causal ranks=4");
  EXPECT_EQ(line_for_processes("n=9\tranks=2 dim=4", 4), "n=9\tranks=2 dim=4");
}

}  // namespace
}  // namespace ringattn::tool
