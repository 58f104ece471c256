// An open local link allocates nothing, however its threads happen to run (D15).
#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "support/count_new.h"
#include "support/transport_ring.h"
#include "transports/local/local.h"

namespace ringattn::test {
namespace {

using support::counts_new;
using support::news_of_this_thread;

constexpr std::int32_t kRanks = 4;

// Blocks go round the ring as in a pass: each is lent, passed on, released; exchanges with everyone in
// between.
void run_rounds(TestLink& link, std::uint64_t first_tag, std::uint64_t rounds) {
  std::array<std::uint8_t, 64> block{};
  const std::int32_t next = (link.rank() + 1) % kRanks, previous = (link.rank() + kRanks - 1) % kRanks;
  for (std::uint64_t tag = first_tag; tag < first_tag + 2 * rounds; tag += 2) {
    for (std::int32_t peer = 0; peer < kRanks; ++peer) {
      ASSERT_EQ(link.receive(peer, tag, nullptr, 8), RINGATTN_OK);
      ASSERT_EQ(link.send(peer, tag, block.data(), 8), RINGATTN_OK);
    }
    ASSERT_EQ(link.send(next, tag + 1, block.data(), block.size()), RINGATTN_OK);
    ASSERT_EQ(link.receive(previous, tag + 1, nullptr, block.size()), RINGATTN_OK);
    for (int i = 0; i < 2 * kRanks + 2; ++i) {
      const auto completion = link.next();
      ASSERT_TRUE(completion);
      link.release(*completion);
    }
    link.tell(tag);
    link.withdraw(~std::uint64_t{0}, tag);  // nothing is left: only the search
  }
}

TEST(LocalAllocation, NoneAfterOpen) {
  const Watchdog watchdog("LocalAllocation");
  if (!counts_new()) GTEST_SKIP() << "AddressSanitizer owns operator new";
  TransportRing ring({"local", ringattn_transport_local_v1(), {}}, kRanks);
  std::array<std::uint64_t, kRanks> news{};
  run_ranks(kRanks, [&](std::int32_t rank) {
    const std::uint64_t start = news_of_this_thread();
    run_rounds(ring[rank], 0, 300);
    news[static_cast<std::size_t>(rank)] = news_of_this_thread() - start;
  });
  for (const std::uint64_t count : news) EXPECT_EQ(count, 0u);
}

// Beyond what open made, the first time allocates and the next does not.
TEST(LocalAllocation, NoneOnceWarm) {
  const Watchdog watchdog("LocalAllocation");
  if (!counts_new()) GTEST_SKIP() << "AddressSanitizer owns operator new";
  constexpr std::uint64_t kMany = 3000;
  TransportRing ring({"local", ringattn_transport_local_v1(), {}}, 2);
  std::array<std::uint64_t, 3> news{};
  const std::uint8_t byte = 0;
  for (std::uint64_t& count : news) {
    const std::uint64_t start = news_of_this_thread();
    for (std::uint64_t tag = 0; tag < kMany; ++tag) ASSERT_EQ(ring[0].send(1, tag, &byte, 1), RINGATTN_OK);
    for (std::uint64_t tag = 0; tag < kMany; ++tag) {
      ASSERT_EQ(ring[1].receive(0, tag, nullptr, 1), RINGATTN_OK);
      const auto received = ring[1].next();
      ASSERT_TRUE(received);
      ring[1].release(*received);
      ASSERT_TRUE(ring[0].next());
    }
    count = news_of_this_thread() - start;
  }
  EXPECT_EQ(news[1], 0u);
  EXPECT_EQ(news[2], 0u);
}

}  // namespace
}  // namespace ringattn::test
