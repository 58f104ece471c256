// The contract, part 1: the table, opening, posting, matching, sizes.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstring>
#include <random>
#include <set>

#include "contract/transport_suite.h"

namespace ringattn::test {
namespace {

using Bytes = std::vector<std::uint8_t>;
RINGATTN_TRANSPORT_SUITE(TransportContract, transport_subjects());

// ---- table and open -------------------------------------------------------------------------------------

TEST_P(TransportContract, TableIsComplete) {
  const ringattn_transport_v1& table = *GetParam().table;
  EXPECT_EQ(table.struct_size, sizeof table);
  EXPECT_EQ(table.abi, RINGATTN_TRANSPORT_ABI);
  const std::string name = table.name;
  EXPECT_FALSE(name.empty());
  for (const char c : name) EXPECT_TRUE(std::islower(c) || std::isdigit(c) || c == '_') << name;
  constexpr std::uint64_t kKnown = RINGATTN_TRANSPORT_LENDS | RINGATTN_TRANSPORT_PROCESSES;
  EXPECT_EQ(table.caps & ~kKnown, 0u);
  EXPECT_TRUE(table.score && table.open && table.close && table.post && table.test && table.release);
  EXPECT_TRUE(table.withdraw && table.wait && table.wake && table.tell && table.ask && table.abort);
  EXPECT_TRUE(table.state);
  const bool connects = (table.caps & RINGATTN_TRANSPORT_PROCESSES) != 0;
  EXPECT_EQ(table.address != nullptr, connects);
  EXPECT_EQ(table.connect != nullptr, connects);
}

TEST_P(TransportContract, ScoreIsPure) {
  const char* why = "";
  const std::int32_t first = GetParam().table->score(&why);
  EXPECT_GT(first, 0);
  const std::uint64_t group = TransportRing::new_group();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(GetParam().table->score(&why), first);
  TransportRing ring(GetParam(), 2, group);
  EXPECT_EQ(GetParam().table->score(nullptr), first);
  EXPECT_EQ(ring[0].state(), RINGATTN_OK);
}

TEST_P(TransportContract, OpenOfALoneRankIsBounded) {
  ringattn_link_desc_v1 desc = TransportRing::describe(0, 2, TransportRing::new_group());
  desc.open_timeout_ms = 200;
  void* link = nullptr;
  const char* error = nullptr;
  const auto start = std::chrono::steady_clock::now();
  const ringattn_status status = GetParam().table->open(&desc, &link, &error);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  if (status == RINGATTN_OK) {
    GetParam().table->close(link);
  } else {
    EXPECT_NE(std::string(error), "");
  }
}

TEST_P(TransportContract, OpenRefusesWhatCannotBe) {
  const std::uint64_t group = TransportRing::new_group();
  TransportRing ring(GetParam(), 2, group);
  const auto refused = [&](std::int32_t rank, std::int32_t world_size) {
    ringattn_link_desc_v1 desc = TransportRing::describe(rank, world_size, group);
    desc.open_timeout_ms = 200;
    void* link = &desc;
    std::string error;
    const ringattn_status status = ring.enter(desc, &link, error);
    return status != RINGATTN_OK && link == nullptr && !error.empty();
  };
  EXPECT_TRUE(refused(1, 2)) << "a rank that is there already";
  EXPECT_TRUE(refused(1, 3)) << "another world size";
  EXPECT_TRUE(refused(2, 2)) << "a rank outside of the world";
  EXPECT_TRUE(refused(-1, 2));
  // None of that harmed the ring.
  const Bytes data = bytes_from(1, 10);
  Bytes buffer(10);
  ASSERT_EQ(ring[0].send(1, 1, data.data(), 10), RINGATTN_OK);
  ASSERT_EQ(ring[1].receive(0, 1, buffer.data(), 10), RINGATTN_OK);
  EXPECT_EQ(contents(ring.next(1).value()), data);
}

TEST_P(TransportContract, GroupIdCanBeUsedAgainAfterClose) {
  const std::uint64_t group = TransportRing::new_group();
  for (std::int32_t world_size : {3, 2, 4}) {
    TransportRing ring(GetParam(), world_size, group);
    EXPECT_EQ(ring[0].ask(world_size - 1).counter, 0u) << "a beat of the ring before";
    ring[world_size - 1].tell(99);
    // Left unmatched on purpose: it must not meet the next ring's receive.
    const Bytes stale = bytes_from(200, 4);
    const Bytes data = bytes_from(static_cast<std::uint8_t>(world_size), 4);
    Bytes buffer(4);
    ASSERT_EQ(ring[1].receive(0, 5, buffer.data(), 4), RINGATTN_OK);
    ASSERT_EQ(ring[0].send(1, 5, data.data(), 4), RINGATTN_OK);
    EXPECT_EQ(contents(ring.next(1).value()), data);
    ASSERT_EQ(ring[0].send(1, 5, stale.data(), 4), RINGATTN_OK);
    if (world_size == 2) ring[1].abort(RINGATTN_ERR_ABORTED, "an aborted ring leaves nothing behind either");
  }
}

// ---- posting and matching -------------------------------------------------------------------------------

TEST_P(TransportContract, PostTakesEverythingAndNeverBlocks) {
  constexpr std::size_t kMany = 400;
  constexpr std::size_t kBytes = 64 << 10;
  TransportRing ring(GetParam(), 2);
  const Bytes data = bytes_from(9, kBytes);
  std::vector<ringattn_transfer_v1> sends;
  for (std::size_t tag = 0; tag < kMany; ++tag)
    sends.push_back(ring[0].send_of(1, tag, data.data(), kBytes, tag));
  ASSERT_EQ(ring[0].post(sends), RINGATTN_OK);  // nobody receives yet
  Bytes buffer(kBytes);
  for (std::size_t tag = 0; tag < kMany; ++tag) {
    ASSERT_EQ(ring[1].receive(0, tag, buffer.data(), kBytes, tag), RINGATTN_OK);
    const Completion received = ring.next(1).value();
    EXPECT_EQ(received.user, tag);
    EXPECT_EQ(std::memcmp(received.data, data.data(), kBytes), 0);
    ring[1].release(received);
  }
  for (std::size_t i = 0; i < kMany; ++i) EXPECT_EQ(ring.next(0).value().status, RINGATTN_OK);
}

TEST_P(TransportContract, PostOfNothingIsLegal) {
  TransportRing ring(GetParam(), 2);
  EXPECT_EQ(ring[0].post({}), RINGATTN_OK);
  EXPECT_TRUE(ring.quiet(0));
}

TEST_P(TransportContract, CompletionsSayWhatEnded) {
  TransportRing ring(GetParam(), 3);
  const Bytes data = bytes_from(1, 33);
  Bytes buffer(33);
  ASSERT_EQ(ring[2].send(1, 7, data.data(), 33, 1234567890123), RINGATTN_OK);
  ASSERT_EQ(ring[1].receive(2, 7, buffer.data(), 33, 42), RINGATTN_OK);
  const Completion received = ring.next(1).value();
  EXPECT_EQ(received.struct_size, sizeof received);
  EXPECT_EQ(received.status, RINGATTN_OK);
  EXPECT_EQ(received.kind, RINGATTN_TRANSFER_RECEIVE);
  EXPECT_EQ(received.peer, 2);
  EXPECT_EQ(received.user, 42u);
  EXPECT_EQ(received.bytes, 33u);
  EXPECT_EQ(contents(received), data);
  ring[1].release(received);
  const Completion sent = ring.next(2).value();
  EXPECT_EQ(sent.status, RINGATTN_OK);
  EXPECT_EQ(sent.kind, RINGATTN_TRANSFER_SEND);
  EXPECT_EQ(sent.peer, 1);
  EXPECT_EQ(sent.user, 1234567890123u);
  EXPECT_EQ(sent.bytes, 33u);
  EXPECT_EQ(sent.loan, 0u);
  EXPECT_TRUE(ring.quiet(1)) << "each completion once";
  EXPECT_TRUE(ring.quiet(2));
}

// Sends and receives of the same 40 tags in two random orders; `receives_first` says who posts first.
void match_shuffled(const TransportSubject& subject, bool receives_first) {
  constexpr std::size_t kTags = 40;
  TransportRing ring(subject, 2);
  std::mt19937 random(11);
  std::vector<std::size_t> send_order(kTags);
  std::iota(send_order.begin(), send_order.end(), 0u);
  std::vector<std::size_t> receive_order = send_order;
  std::shuffle(send_order.begin(), send_order.end(), random);
  std::shuffle(receive_order.begin(), receive_order.end(), random);
  std::vector<Bytes> sources(kTags), buffers(kTags);
  const auto tag_of = [](std::size_t i) {
    return (std::uint64_t{i} << 40) | 3u;
  };  // differ in high bits only
  const auto send_all = [&] {
    for (const std::size_t i : send_order) {
      sources[i] = bytes_from(static_cast<std::uint8_t>(i), 1 + i);
      ASSERT_EQ(ring[0].send(1, tag_of(i), sources[i].data(), 1 + i), RINGATTN_OK);
    }
  };
  if (!receives_first) send_all();
  for (const std::size_t i : receive_order) {
    buffers[i].resize(1 + i);
    ASSERT_EQ(ring[1].receive(0, tag_of(i), buffers[i].data(), 1 + i, i), RINGATTN_OK);
  }
  if (receives_first) send_all();
  std::set<std::uint64_t> seen;
  for (std::size_t n = 0; n < kTags; ++n) {
    const Completion received = ring.next(1).value();
    EXPECT_TRUE(seen.insert(received.user).second);
    EXPECT_EQ(contents(received), sources[received.user]);
    ring[1].release(received);
    EXPECT_EQ(ring.next(0).value().status, RINGATTN_OK);
  }
}

TEST_P(TransportContract, MatchesByTagWhenSendsComeFirst) { match_shuffled(GetParam(), false); }
TEST_P(TransportContract, MatchesByTagWhenReceivesComeFirst) { match_shuffled(GetParam(), true); }

TEST_P(TransportContract, LaterTransfersOvertakeUnmatchedOnes) {
  TransportRing ring(GetParam(), 2);
  const Bytes early = bytes_from(1, 8), late = bytes_from(100, 8);
  Bytes first(8), second(8);
  ASSERT_EQ(ring[1].receive(0, 1, first.data(), 8, 1), RINGATTN_OK);
  ASSERT_EQ(ring[1].receive(0, 2, second.data(), 8, 2), RINGATTN_OK);
  ASSERT_EQ(ring[0].send(1, 2, late.data(), 8), RINGATTN_OK);
  const Completion overtaking = ring.next(1).value();
  EXPECT_EQ(overtaking.user, 2u);
  EXPECT_EQ(contents(overtaking), late);
  EXPECT_TRUE(ring.quiet(1));
  ASSERT_EQ(ring[0].send(1, 1, early.data(), 8), RINGATTN_OK);
  EXPECT_EQ(contents(ring.next(1).value()), early);
}

TEST_P(TransportContract, SameTagFromOtherSendersAndDirectionsIsAnother) {
  TransportRing ring(GetParam(), 3);
  const Bytes from_0 = bytes_from(10, 5), from_2 = bytes_from(20, 5), from_1 = bytes_from(30, 5);
  Bytes a(5), b(5), c(5);
  ASSERT_EQ(ring[0].send(1, 9, from_0.data(), 5), RINGATTN_OK);
  ASSERT_EQ(ring[1].send(0, 9, from_1.data(), 5), RINGATTN_OK);
  ASSERT_EQ(ring[1].receive(2, 9, b.data(), 5), RINGATTN_OK);
  EXPECT_TRUE(ring.quiet(1)) << "rank 0's send must not meet a receive from rank 2";
  ASSERT_EQ(ring[2].send(1, 9, from_2.data(), 5), RINGATTN_OK);
  EXPECT_EQ(contents(ring.next(1).value()), from_2);
  ASSERT_EQ(ring[1].receive(0, 9, a.data(), 5), RINGATTN_OK);
  EXPECT_EQ(contents(ring.next(1).value()), from_0);
  ASSERT_EQ(ring[0].receive(1, 9, c.data(), 5), RINGATTN_OK);
  std::optional<Completion> completion = ring.next(0);
  while (completion && completion->kind == RINGATTN_TRANSFER_SEND) completion = ring.next(0);
  ASSERT_TRUE(completion);
  EXPECT_EQ(contents(*completion), from_1);
}

TEST_P(TransportContract, TagMayBeUsedAgainOnceMatched) {
  TransportRing ring(GetParam(), 2);
  for (std::uint8_t round = 0; round < 20; ++round) {
    const Bytes data = bytes_from(round, 16);
    Bytes buffer(16);
    ASSERT_EQ(ring[1].receive(0, 3, buffer.data(), 16), RINGATTN_OK);
    ASSERT_EQ(ring[0].send(1, 3, data.data(), 16), RINGATTN_OK);
    const Completion received = ring.next(1).value();
    EXPECT_EQ(contents(received), data);
    ring[1].release(received);
    EXPECT_EQ(ring.next(0).value().status, RINGATTN_OK);
  }
}

TEST_P(TransportContract, ArraysStepByTheFirstStructSize) {
  struct Wide {  // a caller that is newer than the transport
    ringattn_transfer_v1 known;
    std::uint64_t unknown[3];
  };
  struct WideCompletion {
    Completion known;
    std::uint64_t unknown[2];
  };
  TransportRing ring(GetParam(), 2);
  const Bytes data = bytes_from(1, 30);
  Wide sends[3] = {}, receives[3] = {};
  Bytes buffer(30);
  for (std::size_t i = 0; i < 3; ++i) {
    sends[i].known = ring[0].send_of(1, i, data.data() + 10 * i, 10, i);
    receives[i].known = ring[1].receive_of(0, i, buffer.data() + 10 * i, 10, i);
    sends[i].known.struct_size = receives[i].known.struct_size = sizeof(Wide);
  }
  ASSERT_EQ(GetParam().table->post(ring[0].handle(), &sends[0].known, 3), RINGATTN_OK);
  ASSERT_EQ(GetParam().table->post(ring[1].handle(), &receives[0].known, 3), RINGATTN_OK);
  std::int32_t total = 0;
  while (total < 3) {
    WideCompletion out[4] = {};
    out[0].known.struct_size = sizeof(WideCompletion);
    std::int32_t count = 0;
    ASSERT_EQ(GetParam().table->test(ring[1].handle(), &out[0].known, 4, &count), RINGATTN_OK);
    for (std::int32_t i = 0; i < count; ++i, ++total) {
      EXPECT_EQ(out[i].known.bytes, 10u);
      EXPECT_EQ(contents(out[i].known), Bytes(data.begin() + 10 * std::int64_t(out[i].known.user),
                                              data.begin() + 10 * std::int64_t(out[i].known.user) + 10));
      EXPECT_EQ(out[i].unknown[0] | out[i].unknown[1], 0u);
    }
  }
}

TEST_P(TransportContract, TestHandsOutNoMoreThanCapacity) {
  TransportRing ring(GetParam(), 2);
  const Bytes data = bytes_from(1, 4);
  Bytes buffer(4 * 10);
  for (std::uint64_t tag = 0; tag < 10; ++tag) {
    ASSERT_EQ(ring[0].send(1, tag, data.data(), 4), RINGATTN_OK);
    ASSERT_EQ(ring[1].receive(0, tag, buffer.data() + 4 * tag, 4, tag), RINGATTN_OK);
  }
  std::set<std::uint64_t> seen;
  while (seen.size() < 10) {
    std::int32_t count = -1;
    ASSERT_EQ(GetParam().table->test(ring[1].handle(), nullptr, 0, &count), RINGATTN_OK);
    ASSERT_EQ(count, 0);
    Completion out[4] = {};
    for (Completion& completion : out) completion.struct_size = sizeof completion;
    ASSERT_EQ(GetParam().table->test(ring[1].handle(), out, 3, &count), RINGATTN_OK);
    ASSERT_LE(count, 3);
    for (std::int32_t i = 0; i < count; ++i) EXPECT_TRUE(seen.insert(out[i].user).second);
    EXPECT_EQ(out[3].bytes, 0u) << "written beyond the capacity";
  }
}

// ---- legal but odd --------------------------------------------------------------------------------------

TEST_P(TransportContract, ZeroBytesAreATransfer) {
  TransportRing ring(GetParam(), 2);
  ASSERT_EQ(ring[0].send(1, 1, nullptr, 0), RINGATTN_OK);
  EXPECT_TRUE(ring.quiet(1)) << "a receive that nobody posted";
  ASSERT_EQ(ring[1].receive(0, 1, nullptr, 0, 8), RINGATTN_OK);
  const Completion received = ring.next(1).value();
  EXPECT_EQ(received.status, RINGATTN_OK);
  EXPECT_EQ(received.bytes, 0u);
  EXPECT_EQ(received.user, 8u);
  ring[1].release(received);
  EXPECT_EQ(ring.next(0).value().status, RINGATTN_OK);
}

TEST_P(TransportContract, ToOneself) {
  for (std::int32_t world_size : {1, 3}) {
    TransportRing ring(GetParam(), world_size);
    TestLink& own = ring[world_size - 1];
    const Bytes data = bytes_from(1, 100), more = bytes_from(7, 50);
    Bytes buffer(100), smaller(50);
    ASSERT_EQ(own.send(own.rank(), 1, data.data(), 100, 1), RINGATTN_OK);
    ASSERT_EQ(own.receive(own.rank(), 2, smaller.data(), 50, 2), RINGATTN_OK);
    EXPECT_TRUE(ring.quiet(own.rank()));
    ASSERT_EQ(own.receive(own.rank(), 1, buffer.data(), 100, 3), RINGATTN_OK);
    ASSERT_EQ(own.send(own.rank(), 2, more.data(), 50, 4), RINGATTN_OK);
    std::set<std::uint64_t> seen;
    for (int i = 0; i < 4; ++i) {
      const Completion completion = ring.next(own.rank()).value();
      EXPECT_EQ(completion.peer, own.rank());
      EXPECT_TRUE(seen.insert(completion.user).second);
      if (completion.user == 2) {
        EXPECT_EQ(contents(completion), more);
      }
      if (completion.user == 3) {
        EXPECT_EQ(contents(completion), data);
      }
      own.release(completion);
    }
  }
}

TEST_P(TransportContract, OneSidedTraffic) {
  TransportRing ring(GetParam(), 3);
  const Bytes data = bytes_from(1, 500);
  run_ranks(2, [&](std::int32_t rank) {
    for (std::uint64_t tag = 0; tag < 100; ++tag) {
      if (rank == 0) {
        ASSERT_EQ(ring[0].send(1, tag, data.data(), 500), RINGATTN_OK);
      } else {
        Bytes buffer(500);
        ASSERT_EQ(ring[1].receive(0, tag, buffer.data(), 500), RINGATTN_OK);
        const Completion received = ring[1].next().value();
        EXPECT_EQ(contents(received), data);
        ring[1].release(received);
      }
    }
    for (int i = 0; rank == 0 && i < 100; ++i) EXPECT_EQ(ring[0].next().value().status, RINGATTN_OK);
  });
  EXPECT_TRUE(ring.quiet(2));
}

// A size mismatch is an error at both ends, whoever is first and whichever is larger; nothing is written.
TEST_P(TransportContract, SizeMismatchEndsBothSides) {
  for (const bool send_first : {true, false}) {
    for (const std::size_t sent : {std::size_t{0}, std::size_t{16}, std::size_t{48}}) {
      TransportRing ring(GetParam(), 2);
      const Bytes data = bytes_from(1, 48);
      Bytes buffer(64, 0xee);
      if (send_first) {
        ASSERT_EQ(ring[0].send(1, 1, data.data(), sent, 5), RINGATTN_OK);
      }
      ASSERT_EQ(ring[1].receive(0, 1, buffer.data(), 32, 6), RINGATTN_OK);
      if (!send_first) {
        ASSERT_EQ(ring[0].send(1, 1, data.data(), sent, 5), RINGATTN_OK);
      }
      const Completion receive = ring.next(1).value();
      EXPECT_EQ(receive.status, RINGATTN_ERR_TRANSPORT);
      EXPECT_EQ(receive.user, 6u);
      EXPECT_EQ(receive.loan, 0u);
      const Completion send = ring.next(0).value();
      EXPECT_EQ(send.status, RINGATTN_ERR_TRANSPORT);
      EXPECT_EQ(send.user, 5u);
      EXPECT_EQ(buffer, Bytes(64, 0xee));
      for (std::int32_t rank : {0, 1}) {
        std::string reason;
        EXPECT_EQ(ring[rank].state(&reason), RINGATTN_ERR_TRANSPORT);
        EXPECT_NE(reason.find(std::to_string(sent)), std::string::npos) << reason;
        EXPECT_NE(reason.find("32"), std::string::npos) << reason;
      }
    }
  }
}

TEST_P(TransportContract, RingsDoNotMix) {
  constexpr std::int32_t kRings = 8;
  std::vector<std::unique_ptr<TransportRing>> rings;
  for (std::int32_t i = 0; i < kRings; ++i) rings.push_back(std::make_unique<TransportRing>(GetParam(), 2));
  run_ranks(2 * kRings, [&](std::int32_t thread) {
    const std::int32_t ring = thread / 2, rank = thread % 2;
    TestLink& link = (*rings[std::size_t(ring)])[rank];
    const Bytes mine = bytes_from(std::uint8_t(10 * ring + rank), 64);
    const Bytes theirs = bytes_from(std::uint8_t(10 * ring + 1 - rank), 64);
    for (std::uint64_t tag = 0; tag < 50; ++tag) {  // the same ranks and tags in every ring
      Bytes buffer(64);
      ASSERT_EQ(link.receive(1 - rank, tag, buffer.data(), 64), RINGATTN_OK);
      ASSERT_EQ(link.send(1 - rank, tag, mine.data(), 64), RINGATTN_OK);
      for (int i = 0; i < 2; ++i) {
        const Completion completion = link.next().value();
        if (completion.kind == RINGATTN_TRANSFER_RECEIVE) {
          EXPECT_EQ(contents(completion), theirs);
        }
        link.release(completion);
      }
    }
    if (ring == 3) link.abort(RINGATTN_ERR_ABORTED, "only this one");
  });
  for (std::int32_t i = 0; i < kRings; ++i) {
    EXPECT_EQ((*rings[std::size_t(i)])[0].state(), i == 3 ? RINGATTN_ERR_ABORTED : RINGATTN_OK) << i;
  }
}

}  // namespace
}  // namespace ringattn::test
