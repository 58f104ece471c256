// The fake itself: what its script says must happen, as other tests rely on it.
#include <algorithm>
#include <chrono>
#include <set>

#include "contract/transport_suite.h"

namespace ringattn::test {
namespace {

using Bytes = std::vector<std::uint8_t>;
using std::chrono::milliseconds;

class TransportFake : public testing::TestWithParam<bool> {
 protected:
  TransportSubject subject(const FakeScript& script) const {
    return {"fake", GetParam() ? fake_lend() : fake_copy(), script};
  }

 private:
  Watchdog watchdog_{"TransportFake"};
};
INSTANTIATE_TEST_SUITE_P(All, TransportFake, testing::Bool(),
                         [](const auto& info) { return info.param ? "lend" : "copy"; });

TEST_P(TransportFake, NamesAndCaps) {
  EXPECT_STREQ(fake_lend()->name, "fake_lend");
  EXPECT_STREQ(fake_copy()->name, "fake_copy");
  EXPECT_EQ(fake_lend()->caps, std::uint64_t{RINGATTN_TRANSPORT_LENDS});
  EXPECT_EQ(fake_copy()->caps, 0u);
}

// Posts `count` matched transfers from 0 to 1 and returns the receives' users in the order of their
// completions.
std::vector<std::uint64_t> order_of(TransportRing& ring, std::uint64_t count) {
  const Bytes data(8);
  Bytes buffer(8 * count);
  for (std::uint64_t i = 0; i < count; ++i) {
    EXPECT_EQ(ring[0].send(1, i, data.data(), 8), RINGATTN_OK);
    EXPECT_EQ(ring[1].receive(0, i, buffer.data() + 8 * i, 8, i), RINGATTN_OK);
  }
  std::vector<std::uint64_t> order;
  for (std::uint64_t i = 0; i < count; ++i) {
    const Completion completion = ring.next(1).value();
    order.push_back(completion.user);
    ring[1].release(completion);
  }
  return order;
}

TEST_P(TransportFake, ReordersBySeed) {
  std::set<std::vector<std::uint64_t>> orders;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    TransportRing ring(subject({.seed = seed, .reorder = true}), 2);
    const auto order = order_of(ring, 20);
    EXPECT_EQ(std::set<std::uint64_t>(order.begin(), order.end()).size(), 20u);
    orders.insert(order);
    TransportRing again(subject({.seed = seed, .reorder = true}), 2);
    EXPECT_EQ(order_of(again, 20), order) << "the same seed, the same order";
  }
  EXPECT_EQ(orders.size(), 3u);
  TransportRing ring(subject({}), 2);
  const auto plain = order_of(ring, 20);
  EXPECT_TRUE(std::is_sorted(plain.begin(), plain.end()));
}

TEST_P(TransportFake, DelaysCompletions) {
  TransportRing ring(subject({.seed = 3, .max_delay_us = 50000}), 2);
  const auto start = std::chrono::steady_clock::now();
  order_of(ring, 30);
  EXPECT_GT(std::chrono::steady_clock::now() - start, milliseconds(20));  // of 30 draws one is above 20 ms
}

TEST_P(TransportFake, RefusesTheScriptedPost) {
  TransportRing ring(subject({.fail_rank = 1, .fail_transfer = 3, .fail_status = RINGATTN_ERR_PEER_LOST}), 2);
  const Bytes data(8);
  Bytes buffer(8 * 4);
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(ring[0].send(1, i, data.data(), 8), RINGATTN_OK);
  ASSERT_EQ(ring[1].receive(0, 0, buffer.data(), 8), RINGATTN_OK);
  ASSERT_EQ(ring[1].post({ring[1].receive_of(0, 1, buffer.data(), 8, 1),
                          ring[1].receive_of(0, 2, buffer.data(), 8, 2)}),
            RINGATTN_ERR_PEER_LOST);
  EXPECT_TRUE(ring.next(1));  // the first transfer had been taken
  ringattn_status status = RINGATTN_OK;
  EXPECT_FALSE(ring[1].poll(&status));
  EXPECT_EQ(status, RINGATTN_ERR_PEER_LOST);
  std::string reason;
  EXPECT_EQ(ring[1].state(&reason), RINGATTN_ERR_PEER_LOST);
  EXPECT_NE(reason.find("rank 1"), std::string::npos);
  EXPECT_EQ(ring[0].state(), RINGATTN_OK) << "others learn of it by abort only";
  ring[1].abort(RINGATTN_ERR_PEER_LOST, "told on");
  EXPECT_EQ(ring[0].state(), RINGATTN_ERR_PEER_LOST);
}

TEST_P(TransportFake, FailsTheScriptedTransfer) {
  TransportRing ring(subject({.fail_rank = 0, .fail_transfer = 2, .fail_completion = true}), 2);
  const Bytes data(8);
  Bytes buffer(16);
  ASSERT_EQ(ring[0].send(1, 1, data.data(), 8, 1), RINGATTN_OK);
  ASSERT_EQ(ring[0].send(1, 2, data.data(), 8, 2), RINGATTN_OK);
  const Completion failed = ring.next(0).value();
  EXPECT_EQ(failed.user, 2u);
  EXPECT_EQ(failed.status, RINGATTN_ERR_TRANSPORT);
  ASSERT_EQ(ring[1].receive(0, 1, buffer.data(), 8, 1), RINGATTN_OK);
  ASSERT_EQ(ring[1].receive(0, 2, buffer.data() + 8, 8, 2), RINGATTN_OK);
  EXPECT_EQ(ring.next(1).value().user, 1u);
  EXPECT_TRUE(ring.quiet(1)) << "the failed one never arrives";
}

TEST_P(TransportFake, SilentRankIsHeardByNobody) {
  TransportRing ring(subject({.silent_rank = 0}), 2);
  const Bytes data(8);
  Bytes buffer(16);
  ASSERT_EQ(ring[1].receive(0, 1, buffer.data(), 8, 1), RINGATTN_OK);
  ASSERT_EQ(ring[0].send(1, 1, data.data(), 8, 2), RINGATTN_OK);
  EXPECT_TRUE(ring.quiet(1));
  EXPECT_TRUE(ring.quiet(0));
  ASSERT_EQ(ring[1].send(0, 2, data.data(), 8, 3), RINGATTN_OK);  // it hears the others
  ASSERT_EQ(ring[0].receive(1, 2, buffer.data() + 8, 8, 4), RINGATTN_OK);
  EXPECT_EQ(ring.next(0).value().user, 4u);
  ring[1].abort(RINGATTN_ERR_TIMEOUT, "rank 0 is silent");
  EXPECT_EQ(ring.next(0).value().status, RINGATTN_ERR_TIMEOUT);
}

TEST_P(TransportFake, Counts) {
  TransportRing ring(subject({}), 2);
  const Bytes data(100);
  Bytes buffer(200);
  ASSERT_EQ(
      ring[0].post({ring[0].send_of(1, 1, data.data(), 100, 0), ring[0].send_of(1, 2, data.data(), 50, 0)}),
      RINGATTN_OK);
  ASSERT_EQ(ring[1].receive(0, 1, buffer.data(), 100), RINGATTN_OK);
  const Completion received = ring.next(1).value();
  FakeCounts counts = fake_counts();
  EXPECT_EQ(counts.posts, 2u);
  EXPECT_EQ(counts.sends, 2u);
  EXPECT_EQ(counts.receives, 1u);
  EXPECT_EQ(counts.sent_bytes, 150u);
  EXPECT_EQ(counts.max_in_flight, 2u);
  EXPECT_EQ(counts.open_loans, GetParam() ? 1u : 0u);
  ring[1].release(received);
  EXPECT_EQ(fake_counts().open_loans, 0u);
  fake_script({});
  EXPECT_EQ(fake_counts().posts, 0u);
}

}  // namespace
}  // namespace ringattn::test
