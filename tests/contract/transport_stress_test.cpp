// The contract, part 5: thousands of random transfers, every byte checked.
#include <random>

#include "contract/random_traffic.h"
#include "contract/transport_suite.h"

namespace ringattn::test {
namespace {

RINGATTN_TRANSPORT_SUITE(TransportStress, transport_subjects());

TEST_P(TransportStress, ThousandsOfRandomTransfers) {
  for (const std::int32_t ranks : {2, 3, 4, 8}) {
    TransportRing ring(GetParam(), ranks);
    run_ranks(ranks, [&](std::int32_t rank) {
      std::mt19937_64 random(static_cast<std::uint64_t>(rank));
      for (std::uint64_t round = 0; round < 20 && !testing::Test::HasFailure(); ++round) {
        const auto messages = messages_of(ranks, round, 150);
        EXPECT_EQ(RandomRound(ring[rank], messages, random).run(), "");
      }
    });
    for (std::int32_t rank = 0; rank < ranks; ++rank) EXPECT_EQ(ring[rank].state(), RINGATTN_OK);
  }
}

// Rings come and go while others run.
TEST_P(TransportStress, RingsComeAndGo) {
  run_ranks(4, [&](std::int32_t thread) {
    for (std::uint64_t round = 0; round < 10; ++round) {
      TransportRing ring(GetParam(), 2);
      const auto messages = messages_of(2, round, 10);
      run_ranks(2, [&](std::int32_t rank) {
        std::mt19937_64 own(round + static_cast<std::uint64_t>(10 * rank + 100 * thread));
        EXPECT_EQ(RandomRound(ring[rank], messages, own).run(), "");
      });
    }
  });
}

}  // namespace
}  // namespace ringattn::test
