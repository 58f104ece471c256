// Whoever does not know the secret gets nothing and holds up nobody; whoever knows it and errs hears why.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>

#include "comm/meeting_messages.h"
#include "comm/rendezvous_channel.h"
#include "tests/comm/meeting_case.h"

namespace ringattn::comm {
namespace {

using Clock = std::chrono::steady_clock;

class RendezvousHostile : public ::testing::Test {
 protected:
  void open(std::int32_t world, std::int64_t handshake_ms = 5'000) {
    HostOptions options = loopback_host(world);
    options.handshake_ms = handshake_ms;
    host_world_ = world;
    expect_ok(MeetingHost::start(options, host_));
    ASSERT_NE(host_, nullptr);
  }
  const UniqueId& id() const { return host_->id(); }
  std::uint16_t port() const { return host_->id().port(); }
  HelloBytes hello(const Key& secret, std::int32_t rank, std::int32_t world,
                   std::uint16_t version = 1) const {
    Hello hello;
    hello.version = version;
    hello.rank = rank;
    hello.world = world;
    fill_random(hello.nonce);
    return write_hello(secret, hello);
  }
  // Hears `bytes`, answers nothing, closes.
  void expect_silence(const std::string& bytes) {
    Stranger stranger(port());
    stranger.say(bytes);
    EXPECT_TRUE(stranger.hear().empty());
    EXPECT_TRUE(stranger.thrown_out());
  }
  // The whole handshake by hand; the session key of a connection that the host takes for a rank.
  Key enter(Stranger& stranger, std::int32_t rank, std::int32_t world, std::uint16_t version = 1) {
    const HelloBytes said = hello(id().secret(), rank, world, version);
    EXPECT_TRUE(stranger.say(said));
    const std::vector<std::uint8_t> heard = stranger.hear(ChallengeBytes().size());
    ChallengeBytes challenge{};
    EXPECT_EQ(heard.size(), challenge.size());
    std::copy(heard.begin(), heard.end(), challenge.begin());
    Nonce nonce;
    EXPECT_TRUE(read_challenge(id().secret(), said, challenge, nonce));
    const Key session = session_key(id().secret(), said, nonce);
    EXPECT_TRUE(stranger.say(write_proof(session)));
    return session;
  }

  // Rounds go on until the strangers have gone.
  void meet_while(int rank, const std::atomic<int>& strangers) {
    std::unique_ptr<Meeting> meeting;
    expect_ok(Meeting::join(id(), rank, host_world_, patience(20'000), meeting));
    for (std::uint8_t goes_on = 1; goes_on != 0;) {
      std::vector<std::vector<std::uint8_t>> all;
      const std::uint8_t mine = strangers > 0 ? 1 : 0;
      const Status status = meeting->gather({&mine, 1}, all);
      expect_ok(status);
      if (!status.ok()) return;
      goes_on = all[0][0];  // rank 0 decides
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    expect_ok(meeting->leave());
  }

  std::int32_t host_world_ = 0;
  std::unique_ptr<MeetingHost> host_;
};

TEST_F(RendezvousHostile, AWrongSecretGetsNoAnswer) {
  open(2);
  const HelloBytes wrong = hello(Key::random(), 0, 2);
  expect_silence(std::string(wrong.begin(), wrong.end()));
  const UniqueId other = UniqueId::make(Key::random(), port(), id().addresses());
  std::unique_ptr<Meeting> meeting;
  expect_failure(Meeting::join(other, 0, 2, patience(2'000), meeting), RINGATTN_ERR_TIMEOUT,
                 {"closed the connection before it answered", "same secret"});
  expect_meeting(*host_, 2);
}

TEST_F(RendezvousHostile, OtherProtocolsGetNoAnswer) {
  open(2);
  const auto start = Clock::now();
  expect_silence("GET / HTTP/1.1\r\n");
  expect_silence(std::string(10'000, '\xff'));
  expect_silence(std::string(3, '\0'));
  std::string garbage(88, '\0');
  fill_random({reinterpret_cast<std::uint8_t*>(garbage.data()), garbage.size()});
  expect_silence(garbage);
  std::string no_mac(88, '\0');  // the right first bytes, and no more
  const HelloBytes right = hello(id().secret(), 0, 2);
  std::copy_n(right.begin(), 24, no_mac.begin());
  expect_silence(no_mac);
  EXPECT_LT(seconds_since(start), 4.0) << "they need not wait for the deadline";
  expect_meeting(*host_, 2);
}

TEST_F(RendezvousHostile, EveryBitOfTheHelloCounts) {
  const Key secret = Key::random();
  const HelloBytes right = hello(secret, 3, 7);
  Hello read;
  ASSERT_TRUE(read_hello(secret, right, read));
  EXPECT_EQ(read.rank, 3);
  EXPECT_EQ(read.world, 7);
  for (std::size_t bit = 0; bit < 8 * right.size(); ++bit) {
    HelloBytes wrong = right;
    wrong[bit / 8] ^= static_cast<std::uint8_t>(1 << (bit % 8));
    EXPECT_FALSE(read_hello(secret, wrong, read)) << bit;
  }
}

TEST_F(RendezvousHostile, SilenceAndDripEndAtTheDeadline) {
  open(2, 300);
  const auto start = Clock::now();
  std::atomic<int> strangers{2};
  support::run_threads(4, [&](int i) {
    if (i < 2) return meet_while(i, strangers);
    Stranger stranger(port());
    const HelloBytes bytes = hello(id().secret(), 0, 2);
    std::size_t said = 0;
    while (i == 3 && said < bytes.size() && stranger.say(Bytes(bytes).subspan(said, 1))) {
      ++said;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_LT(said, bytes.size());
    EXPECT_TRUE(stranger.hear().empty());
    EXPECT_TRUE(stranger.thrown_out());
    --strangers;
  });
  EXPECT_GE(seconds_since(start), 0.29);
  EXPECT_LT(seconds_since(start), 5.0);
}

TEST_F(RendezvousHostile, AHundredStrangersHoldUpNobody) {
  open(4);
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (int i = 0; i < 100; ++i) {
    crowd.push_back(std::make_unique<Stranger>(port()));
    if (i % 3 == 1) crowd.back()->say("GET / HTTP/1.1\r\n");
    if (i % 3 == 2) crowd.back()->say("ri");
  }
  const auto start = Clock::now();
  expect_meeting(*host_, 4, 3);
  EXPECT_LT(seconds_since(start), 4.0);
}

TEST_F(RendezvousHostile, AReplayedHandshakeEndsAtTheProof) {
  open(1);
  HostOptions options = loopback_host(2);
  options.secret = id().secret();
  options.port = port();
  host_.reset();
  HelloBytes recorded_hello{};
  Key recorded_session;
  {
    expect_ok(MeetingHost::start(options, host_));
    Stranger rank(port());
    recorded_hello = hello(id().secret(), 1, 2);
    rank.say(recorded_hello);
    const auto heard = rank.hear(ChallengeBytes().size());
    Nonce nonce;
    std::copy_n(heard.begin(), nonce.size(), nonce.begin());
    recorded_session = session_key(id().secret(), recorded_hello, nonce);
    rank.say(write_proof(recorded_session));
    EXPECT_FALSE(rank.hear(8).empty()) << "the record is of a handshake that worked";
    host_.reset();
  }
  expect_ok(MeetingHost::start(options, host_));
  Stranger replay(port());
  replay.say(recorded_hello);
  EXPECT_EQ(replay.hear(ChallengeBytes().size()).size(), ChallengeBytes().size());
  replay.say(write_proof(recorded_session));
  EXPECT_TRUE(replay.hear().empty());
  EXPECT_TRUE(replay.thrown_out());
  expect_meeting(*host_, 2);
}

TEST_F(RendezvousHostile, ADuplicateRankHearsWhy) {
  open(2);
  std::unique_ptr<Meeting> first, second;
  expect_ok(Meeting::join(id(), 1, 2, patience(20'000), first));
  expect_failure(Meeting::join(id(), 1, 2, patience(20'000), second), RINGATTN_ERR_INVALID_ARGUMENT,
                 {"rank 1 is taken by 127.0.0.1:", "expected every rank once"});
  support::run_threads(2, [&](int i) {
    if (i == 0) return expect_ok(whole_meeting(id(), 0, 2));
    expect_ok(gather_rounds(*first, 1));
    expect_ok(first->leave());
  });
}

TEST_F(RendezvousHostile, AWrongRankWorldOrVersionHearsWhy) {
  open(2);
  std::unique_ptr<Meeting> meeting;
  expect_failure(Meeting::join(id(), 2, 2, patience(5'000), meeting), RINGATTN_ERR_INVALID_ARGUMENT,
                 {"rank 2, expected 0..1"});
  expect_failure(Meeting::join(id(), -1, 2, patience(5'000), meeting), RINGATTN_ERR_INVALID_ARGUMENT,
                 {"rank -1, expected 0..1"});
  expect_failure(Meeting::join(id(), 0, 3, patience(5'000), meeting), RINGATTN_ERR_INVALID_ARGUMENT,
                 {"world 3 of rank 0, expected 2"});
  Stranger future(port());
  enter(future, 0, 2, 9);
  const auto heard = future.hear();
  EXPECT_NE(std::string(heard.begin(), heard.end()).find("version 9"), std::string::npos);
  expect_meeting(*host_, 2);
}

TEST_F(RendezvousHostile, AHugeLengthEndsTheConnection) {
  open(2);
  Stranger stranger(port());
  enter(stranger, 1, 2);
  const std::uint8_t head[] = {0xff, 0xff, 0xff, 0x7f, 3, 0, 0, 0};
  stranger.say(Bytes(head));
  expect_failure(host_->wait(5'000), RINGATTN_ERR_PEER_LOST,
                 {"rank 1", "frame of 2147483647 bytes", "65536"});
}

TEST_F(RendezvousHostile, AFrameOfAnotherKeyIsNotBelieved) {
  open(2);
  Stranger stranger(port());
  enter(stranger, 1, 2);
  Channel channel(stranger.take(), Key::random(), Side::rank, 100);
  channel.queue(FrameType::part, Payload());
  EXPECT_EQ(channel.flush(), Channel::Result::done);
  expect_failure(host_->wait(5'000), RINGATTN_ERR_PEER_LOST, {"rank 1", "not authentic"});
}

struct Pair {
  Socket left, right;
  Pair() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    left = Socket(fds[0]);
    right = Socket(fds[1]);
  }
};

std::vector<std::uint8_t> bytes_of_frame(const Key& key, Side side) {
  Pair pair;
  const int fd = pair.right.fd();
  Channel channel(std::move(pair.left), key, side, 100);
  channel.queue(FrameType::part, Payload({1, 2, 3}));
  EXPECT_EQ(channel.flush(), Channel::Result::done);
  std::vector<std::uint8_t> bytes(8 + 3 + 32);
  EXPECT_EQ(recv(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  return bytes;
}

TEST(RendezvousChannel, FramesAreNotRepeatedTurnedRoundOrChanged) {
  const Key key = Key::random();
  const auto heard = [&](Bytes bytes, int frames) {
    Pair pair;
    EXPECT_EQ(send(pair.right.fd(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    Channel channel(std::move(pair.left), key, Side::host, 100);
    Frame frame;
    Channel::Result result = Channel::Result::blocked;
    for (int i = 0; i < frames; ++i) result = channel.receive(frame);
    return result;
  };
  const std::vector<std::uint8_t> right = bytes_of_frame(key, Side::rank);
  EXPECT_EQ(heard(right, 1), Channel::Result::done);
  std::vector<std::uint8_t> twice = right;
  twice.insert(twice.end(), right.begin(), right.end());
  EXPECT_EQ(heard(twice, 2), Channel::Result::broken);
  EXPECT_EQ(heard(bytes_of_frame(key, Side::host), 1), Channel::Result::broken);
  EXPECT_EQ(heard(bytes_of_frame(Key::random(), Side::rank), 1), Channel::Result::broken);
  for (std::size_t i = 4; i < right.size(); ++i) {  // behind the length
    std::vector<std::uint8_t> wrong = right;
    wrong[i] ^= 1;
    EXPECT_EQ(heard(wrong, 1), Channel::Result::broken) << i;
  }
}

TEST(RendezvousMessages, MalformedOnesAreSeen) {
  std::vector<std::vector<std::uint8_t>> all;
  const auto right = write_all_parts({{1, 2}, {}, {3}});
  EXPECT_TRUE(read_all_parts(right, 3, all));
  EXPECT_FALSE(read_all_parts(right, 2, all));
  EXPECT_FALSE(read_all_parts(right, 4, all));
  for (std::size_t size = 0; size < right.size(); ++size) {
    EXPECT_FALSE(read_all_parts(Bytes(right).first(size), 3, all)) << size;
  }
  EXPECT_FALSE(read_notice({}).status.ok());
  EXPECT_FALSE(read_notice(write_notice({false, Status()})).status.ok()) << "a notice is never good news";
  EXPECT_EQ(name_ranks({3}), "rank 3");
  EXPECT_EQ(name_ranks({1, 2, 5}), "ranks 1, 2 and 5");
  EXPECT_EQ(name_ranks({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

}  // namespace
}  // namespace ringattn::comm
