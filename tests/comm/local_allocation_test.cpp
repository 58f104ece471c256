// An open local link allocates nothing, however its threads happen to run (D15).
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "support/transport_ring.h"
#include "transports/local/local.h"

// AddressSanitizer checks that new meets delete, for every test of the program: there we leave them alone.
#if !defined(__SANITIZE_ADDRESS__)
#define RINGATTN_COUNT_NEW 1
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#undef RINGATTN_COUNT_NEW
#endif
#endif
#endif

#ifdef RINGATTN_COUNT_NEW

namespace {
thread_local std::uint64_t news_of_this_thread = 0;
}

// Weak: another test of the same program may bring its own.
__attribute__((weak)) void* operator new(std::size_t bytes) {
  ++news_of_this_thread;
  if (void* memory = std::malloc(bytes != 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
__attribute__((weak)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((weak)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace ringattn::test {
namespace {

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
  const std::uint64_t before = news_of_this_thread;
  void* volatile seen = ::operator new(8);  // a call that no optimiser may drop
  ::operator delete(seen);
  if (news_of_this_thread == before)
    GTEST_SKIP() << "another operator new is linked: nothing would be counted";

  TransportRing ring({"local", ringattn_transport_local_v1(), {}}, kRanks);
  std::array<std::uint64_t, kRanks> news{};
  run_ranks(kRanks, [&](std::int32_t rank) {
    const std::uint64_t start = news_of_this_thread;
    run_rounds(ring[rank], 0, 300);
    news[static_cast<std::size_t>(rank)] = news_of_this_thread - start;
  });
  for (const std::uint64_t count : news) EXPECT_EQ(count, 0u);
}

// Beyond what open made, the first time allocates and the next does not.
TEST(LocalAllocation, NoneOnceWarm) {
  const Watchdog watchdog("LocalAllocation");
  constexpr std::uint64_t kMany = 3000;
  TransportRing ring({"local", ringattn_transport_local_v1(), {}}, 2);
  std::array<std::uint64_t, 3> news{};
  const std::uint8_t byte = 0;
  for (std::uint64_t& count : news) {
    const std::uint64_t start = news_of_this_thread;
    for (std::uint64_t tag = 0; tag < kMany; ++tag) ASSERT_EQ(ring[0].send(1, tag, &byte, 1), RINGATTN_OK);
    for (std::uint64_t tag = 0; tag < kMany; ++tag) {
      ASSERT_EQ(ring[1].receive(0, tag, nullptr, 1), RINGATTN_OK);
      const auto received = ring[1].next();
      ASSERT_TRUE(received);
      ring[1].release(*received);
      ASSERT_TRUE(ring[0].next());
    }
    count = news_of_this_thread - start;
  }
  if (news[0] == 0) GTEST_SKIP() << "another operator new is linked: nothing would be counted";
  EXPECT_EQ(news[1], 0u);
  EXPECT_EQ(news[2], 0u);
}

}  // namespace
}  // namespace ringattn::test

#endif  // RINGATTN_COUNT_NEW
