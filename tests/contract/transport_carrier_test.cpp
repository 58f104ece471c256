// A link with a carrier: what goes by it, what becomes of it when things end, and how ranks agree on a way to reach each
// other. The carrier here is one in memory that can be told to fail or to hold on to everything.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

#include "comm/plugins.h"
#include "support/transport_ring.h"
#include "transports/tcp/table.h"

namespace ringattn::test {
namespace {

using Bytes = std::vector<std::uint8_t>;
using tcp::Carrier;
using tcp::Transfer;

// How all carriers of a test behave, and what they have seen.
struct Script {
  std::atomic<int> fails_attempt{-1};    // of every rank but 0
  std::atomic<bool> holds_on{false};     // no transfer ends
  std::atomic<bool> fails_sends{false};  // each send ends with an error
  std::atomic<bool> lets_go{false};      // of what it holds on to, when it is dropped
  std::atomic<int> carried{0}, abandoned{0}, attempts{0};
  std::mutex mutex;
  std::map<std::uint64_t, Transfer*> receives;  // by key
  void reset() {
    fails_attempt = -1;
    holds_on = lets_go = fails_sends = false;
    carried = abandoned = attempts = 0;
    receives.clear();
  }
};
Script script;

class MemoryCarrier final : public Carrier {
 public:
  explicit MemoryCarrier(std::int32_t rank) : rank_(rank) {}

  bool open(int attempt, const std::vector<tcp::CarrierPeer>&, std::string& address, std::string&) override {
    if (attempt > 1) return false;
    attempt_ = attempt;
    script.attempts = std::max(script.attempts.load(), attempt + 1);
    address = "attempt " + std::to_string(attempt) + " of rank " + std::to_string(rank_);
    return true;
  }
  bool connect(std::int32_t rank, const std::string& address, std::string& error) override {
    if (address != "attempt " + std::to_string(attempt_) + " of rank " + std::to_string(rank)) std::abort();
    if (script.fails_attempt < attempt_ || rank_ == 0) return true;
    error = "the wire is cut";
    return false;
  }
  std::string description() const override { return "memory"; }

  void send(Transfer& send, std::uint64_t key) override {
    ++script.carried;
    if (script.holds_on) return held_.push_back(&send);
    if (script.fails_sends) return ended_.push_back({&send, "the wire is cut"});
    const std::lock_guard lock(script.mutex);
    const auto found = script.receives.find(key * 8 + static_cast<std::uint64_t>(send.peer));
    if (found == script.receives.end()) std::abort();  // its receive must have been there first
    std::memcpy(found->second->data, send.data, send.bytes);
    arrived_keys().push_back(found->first);
    ended_.push_back({&send, nullptr});
  }
  void receive(Transfer& receive, std::uint64_t key) override {
    if (script.holds_on) return held_.push_back(&receive);
    const std::lock_guard lock(script.mutex);
    script.receives[key * 8 + static_cast<std::uint64_t>(rank_)] = &receive;
    own_.push_back(key * 8 + static_cast<std::uint64_t>(rank_));
  }
  void cancel(Transfer& receive) override {
    const std::lock_guard lock(script.mutex);
    std::erase_if(own_, [&](std::uint64_t key) {
      if (script.receives[key] != &receive) return false;
      script.receives.erase(key);
      ended_.push_back({&receive, "canceled"});
      return true;
    });
  }
  bool progress(std::vector<Ended>& ended) override {
    ended.insert(ended.end(), ended_.begin(), ended_.end());
    ended_.clear();
    const std::lock_guard lock(script.mutex);
    std::erase_if(own_, [&](std::uint64_t key) {
      auto& keys = arrived_keys();
      const auto at = std::find(keys.begin(), keys.end(), key);
      if (at == keys.end()) return false;
      keys.erase(at);
      ended.push_back({script.receives[key], nullptr});
      script.receives.erase(key);
      return true;
    });
    return false;
  }
  void drop(std::int32_t) override {
    if (script.holds_on && !script.lets_go) return;
    for (Transfer* const transfer : held_) ended_.push_back({transfer, "dropped"});
    held_.clear();
    const std::lock_guard lock(script.mutex);
    for (const std::uint64_t key : own_) {
      ended_.push_back({script.receives[key], "dropped"});
      script.receives.erase(key);
    }
    own_.clear();
  }
  bool busy() const override { return !own_.empty() || !held_.empty() || !ended_.empty(); }
  void abandon(std::vector<Ended>& ended) override {
    ++script.abandoned;
    kept().push_back(this);  // for ever, as told
    for (Transfer* const transfer : held_) ended.push_back({transfer, "held"});
    held_.clear();
    own_.clear();
  }
  int descriptor() const override { return -1; }
  bool prepare_wait() override { return false; }  // nothing would wake it

 private:
  static std::vector<MemoryCarrier*>& kept() {
    static auto* const carriers = new std::vector<MemoryCarrier*>();
    return *carriers;
  }
  static std::vector<std::uint64_t>& arrived_keys() {
    static std::vector<std::uint64_t> keys;
    return keys;
  }
  const std::int32_t rank_;
  int attempt_ = 0;
  std::vector<Ended> ended_;
  std::vector<Transfer*> held_;
  std::vector<std::uint64_t> own_;
};

std::int32_t score(const char**) { return 1; }
ringattn_status open(const ringattn_link_desc_v1* desc, void** link, const char** error) {
  return tcp::open_link("memory", desc, std::make_unique<MemoryCarrier>(desc->rank), link, error);
}
TransportSubject subject() {
  static const ringattn_transport_v1 table = tcp::link_table("memory", score, open);
  return {"memory", &table, {}};
}

class TransportCarrier : public ::testing::Test {
 protected:
  TransportCarrier() { script.reset(); }
  Watchdog watchdog_{"a link with a carrier", std::chrono::seconds(30)};
};

TEST_F(TransportCarrier, TakesLargeMessagesAlone) {
  TransportRing ring(subject(), 3);
  run_ranks(3, [&](std::int32_t rank) {
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{4096}, std::size_t{4097}, std::size_t{1} << 20}) {
      const Bytes out(bytes, static_cast<std::uint8_t>(rank + 1));
      Bytes in(bytes, 0);
      TestLink& link = ring[rank];
      ASSERT_EQ(link.post({link.send_of((rank + 1) % 3, bytes, out.data(), bytes, 1),
                           link.receive_of((rank + 2) % 3, bytes, in.data(), bytes, 2)}),
                RINGATTN_OK);
      for (int i = 0; i < 2; ++i) {
        const auto completion = link.next();
        ASSERT_TRUE(completion && completion->status == RINGATTN_OK);
      }
      EXPECT_TRUE(in == Bytes(bytes, static_cast<std::uint8_t>((rank + 2) % 3 + 1))) << bytes;
    }
  });
  EXPECT_EQ(script.carried, 2 * 3) << "those above 4096 bytes";
}

TEST_F(TransportCarrier, AllRanksTryTheNextWayTogether) {
  script.fails_attempt = 0;
  TransportRing ring(subject(), 3);
  EXPECT_EQ(script.attempts, 2);
  Bytes out(10'000, 7), in(10'000, 0);
  ASSERT_EQ(ring[0].send(1, 1, out.data(), out.size()), RINGATTN_OK);
  ASSERT_EQ(ring[1].receive(0, 1, in.data(), in.size()), RINGATTN_OK);
  ASSERT_TRUE(ring.next(1));
  EXPECT_TRUE(in == out);
}

// An error of the carrier with both processes well: the peer is lost, and why is said.
TEST_F(TransportCarrier, ItsFailureIsThatOfThePeer) {
  script.fails_sends = true;
  TransportRing ring(subject(), 2);
  Bytes out(10'000, 7), in(10'000, 0);
  ASSERT_EQ(ring[0].send(1, 1, out.data(), out.size()), RINGATTN_OK);
  ASSERT_EQ(ring[1].receive(0, 1, in.data(), in.size()), RINGATTN_OK);
  const auto completion = ring.next(0);
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->status, RINGATTN_ERR_PEER_LOST);
  std::string reason;
  EXPECT_EQ(ring[0].state(&reason), RINGATTN_ERR_PEER_LOST);
  EXPECT_NE(reason.find("rank 1 "), std::string::npos) << reason;
  EXPECT_NE(reason.find("the wire is cut"), std::string::npos) << reason;
}

class TransportCarrierHolds : public TransportCarrier {
 protected:
  // Both sides are with the carrier; then rank 0 aborts. How long until both have ended.
  std::chrono::milliseconds abort_amid_a_message() {
    script.holds_on = true;
    TransportRing ring(subject(), 2);
    Bytes out(10'000, 7), in(10'000, 0);
    EXPECT_EQ(ring[0].send(1, 1, out.data(), out.size()), RINGATTN_OK);
    EXPECT_EQ(ring[1].receive(0, 1, in.data(), in.size()), RINGATTN_OK);
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (script.carried == 0 && std::chrono::steady_clock::now() < deadline) ring[0].poll(), ring[1].poll();
    const auto start = std::chrono::steady_clock::now();
    ring[0].abort(RINGATTN_ERR_ABORTED, "enough");
    for (const std::int32_t rank : {0, 1}) {
      const auto completion = ring[rank].next();
      EXPECT_TRUE(completion && completion->status == RINGATTN_ERR_ABORTED) << rank;
      std::string reason;
      EXPECT_EQ(ring[rank].state(&reason), RINGATTN_ERR_ABORTED) << rank;
      EXPECT_EQ(reason, "enough") << rank;
    }
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
  }
};

TEST_F(TransportCarrierHolds, WhatItLetsGoOfEndsWithTheAbort) {
  script.lets_go = true;
  abort_amid_a_message();
  EXPECT_EQ(script.abandoned, 0);
}

// The path for what must never happen: it is left behind rather than destroyed, and the transfers end all the same.
TEST_F(TransportCarrierHolds, WhatItHoldsOnToEndsAfterASecond) {
  const auto took = abort_amid_a_message();
  EXPECT_GE(took.count(), 900) << "until then the memory is in use";
  EXPECT_LT(took.count(), 10'000);
  EXPECT_EQ(script.abandoned, 2);
}

TEST(TransportUcx, CanRunHere) {
#ifdef RINGATTN_TSAN
  GTEST_SKIP() << "ThreadSanitizer does not know UCX's synchronisation";
#elif defined(RINGATTN_HAS_UCX)
  const char* why = nullptr;
  if (comm::ucx_table()->score(&why) == 0) GTEST_SKIP() << "ucx: " << (why == nullptr ? "no reason" : why);
#else
  GTEST_SKIP() << "ucx: built without it";
#endif
}

}  // namespace
}  // namespace ringattn::test
