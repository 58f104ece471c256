// The contract, part 5: thousands of random transfers, every byte checked.
#include <algorithm>
#include <random>

#include "contract/transport_suite.h"

namespace ringattn::test {
namespace {

using Bytes = std::vector<std::uint8_t>;
RINGATTN_TRANSPORT_SUITE(TransportStress, transport_subjects());

struct Message {
  std::int32_t sender, receiver;
  std::uint64_t tag;
  std::size_t bytes;
};

// All ranks make the same list from the same seed, as they make the same schedule.
std::vector<Message> messages_of(std::int32_t ranks, std::uint64_t round, std::size_t count) {
  std::mt19937_64 random(1000 * round + static_cast<std::uint64_t>(ranks));
  std::vector<Message> messages(count);
  for (std::size_t i = 0; i < count; ++i) {
    Message& message = messages[i];
    message.sender = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(ranks));
    message.receiver = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(ranks));
    message.tag = round << 32 | i;
    message.bytes = random() % 8 == 0 ? 0 : random() % 3000;
  }
  return messages;
}

std::uint8_t byte_of(const Message& message, std::size_t i) {
  return static_cast<std::uint8_t>(message.tag * 31 + message.tag / 4294967296 * 17 + i * 7 +
                                   static_cast<std::size_t>(message.sender));
}

bool is_right(const Message& message, const Completion& completion) {
  const auto* data = static_cast<const std::uint8_t*>(completion.data);
  if (completion.status != RINGATTN_OK || completion.bytes != message.bytes) return false;
  for (std::size_t i = 0; i < message.bytes; ++i) {
    if (data[i] != byte_of(message, i)) return false;
  }
  return true;
}

// One rank's part of one round: posts in random order and chunks, tests and releases in between.
void run_round(TestLink& link, const std::vector<Message>& messages, std::mt19937_64& random) {
  std::vector<Bytes> sources(messages.size()), buffers(messages.size());
  std::vector<ringattn_transfer_v1> transfers;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    if (message.sender == link.rank()) {
      sources[i].resize(message.bytes);
      for (std::size_t at = 0; at < message.bytes; ++at) sources[i][at] = byte_of(message, at);
      transfers.push_back(link.send_of(message.receiver, message.tag, sources[i].data(), message.bytes, i));
    }
    if (message.receiver == link.rank()) {
      buffers[i].resize(message.bytes);
      transfers.push_back(link.receive_of(message.sender, message.tag, buffers[i].data(), message.bytes, i));
    }
  }
  std::shuffle(transfers.begin(), transfers.end(), random);
  std::vector<Completion> held;
  std::size_t posted = 0, ended = 0;
  const auto take = [&](const Completion& completion) {
    ++ended;
    ASSERT_EQ(completion.status, RINGATTN_OK);
    if (completion.kind == RINGATTN_TRANSFER_SEND) {
      Bytes& source = sources[completion.user];  // ours again: whoever still reads it now sees it change
      std::fill(source.begin(), source.end(), std::uint8_t{0xdd});
      return;
    }
    held.push_back(completion);
  };
  const auto release_one = [&] {
    std::swap(held[random() % held.size()], held.back());
    ASSERT_TRUE(is_right(messages[held.back().user], held.back())) << "message " << held.back().user;
    link.release(held.back());
    held.pop_back();
  };
  while (ended < transfers.size() || !held.empty()) {
    if (posted < transfers.size()) {
      const std::size_t chunk = std::min<std::size_t>(1 + random() % 5, transfers.size() - posted);
      const auto first = transfers.begin() + static_cast<std::ptrdiff_t>(posted);
      ASSERT_EQ(link.post({first, first + static_cast<std::ptrdiff_t>(chunk)}), RINGATTN_OK);
      posted += chunk;
    }
    while (auto completion = link.poll()) take(*completion);
    if (!held.empty() && (random() % 2 == 0 || posted == transfers.size())) release_one();
    if (posted == transfers.size() && ended < posted && held.empty()) {
      const auto completion = link.next();
      ASSERT_TRUE(completion) << "rank " << link.rank() << " lacks " << posted - ended;
      take(*completion);
    }
  }
}

TEST_P(TransportStress, ThousandsOfRandomTransfers) {
  for (const std::int32_t ranks : {2, 3, 4, 8}) {
    TransportRing ring(GetParam(), ranks);
    run_ranks(ranks, [&](std::int32_t rank) {
      std::mt19937_64 random(static_cast<std::uint64_t>(rank));
      for (std::uint64_t round = 0; round < 20 && !testing::Test::HasFailure(); ++round) {
        run_round(ring[rank], messages_of(ranks, round, 150), random);
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
        run_round(ring[rank], messages, own);
      });
    }
  });
}

}  // namespace
}  // namespace ringattn::test
