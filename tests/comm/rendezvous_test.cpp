// How ranks meet: the unique id, gathering, who comes late, who never comes, ports and addresses.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>

#include "tests/comm/meeting_case.h"

namespace ringattn::comm {
namespace {

using Clock = std::chrono::steady_clock;

void pause_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// A port that was free a moment ago.
std::uint16_t free_port() {
  std::unique_ptr<MeetingHost> host;
  expect_ok(MeetingHost::start(loopback_host(1), host));
  return host->id().port();
}

TEST(UniqueIdTest, TextAndBytesGiveItBack) {
  expect_ok(start_crypto());
  const std::vector<Address> addresses = {address_of("192.0.2.7"), address_of("2001:db8::17")};
  const UniqueId id = UniqueId::make(Key::random(), 4711, addresses);
  UniqueId from_text, from_bytes;
  expect_ok(UniqueId::from_text(" " + id.to_text() + "\n", from_text));
  expect_ok(UniqueId::from_bytes(id.bytes(), from_bytes));
  EXPECT_EQ(id.to_text().size(), 342u);
  EXPECT_EQ(from_text.bytes(), id.bytes());
  EXPECT_EQ(from_bytes.bytes(), id.bytes());
  EXPECT_EQ(from_text.addresses(), addresses);
  EXPECT_EQ(from_text.port(), 4711);
  EXPECT_TRUE(equal_in_constant_time(from_text.secret().bytes(), id.secret().bytes()));
}

TEST(UniqueIdTest, DamageIsSeen) {
  const UniqueId id = UniqueId::make(Key::random(), 4711, {address_of("192.0.2.7")});
  UniqueId out;
  for (std::size_t i = 0; i < UniqueId::kBytes; ++i) {
    auto bytes = id.bytes();
    bytes[i] ^= 0x20;
    EXPECT_FALSE(UniqueId::from_bytes(bytes, out).ok()) << i;
  }
  expect_failure(UniqueId::from_text(id.to_text().substr(0, 300), out), RINGATTN_ERR_INVALID_ARGUMENT,
                 {"300 characters", "342"});
  expect_failure(UniqueId::from_bytes(Bytes(id.bytes()).first(128), out), RINGATTN_ERR_INVALID_ARGUMENT,
                 {"128 bytes, expected 256"});
  EXPECT_FALSE(UniqueId::from_bytes(UniqueId().bytes(), out).ok());
  std::unique_ptr<Meeting> meeting;
  EXPECT_FALSE(Meeting::join(UniqueId(), 0, 1, patience(100), meeting).ok());
}

TEST(UniqueIdTest, MoreAddressesThanFitAreLeftOut) {
  const UniqueId id = UniqueId::make(Key(), 1, std::vector<Address>(40, address_of("192.0.2.7")));
  EXPECT_EQ(id.addresses().size(), UniqueId::kMostAddresses);
}

TEST(Rendezvous, RanksGatherSeveralRounds) {
  for (const int world : {1, 2, 4, 16}) {
    std::unique_ptr<MeetingHost> host;
    expect_ok(MeetingHost::start(loopback_host(world), host));
    expect_meeting(*host, world, 6);
  }
}

TEST(Rendezvous, EveryInterfaceIsTheDefault) {
  std::unique_ptr<MeetingHost> host;
  HostOptions options;
  options.world = 2;
  expect_ok(MeetingHost::start(options, host));
  ASSERT_FALSE(host->id().addresses().empty());
  expect_meeting(*host, 2);
}

TEST(Rendezvous, IPv6Loopback) {
  std::unique_ptr<MeetingHost> host;
  HostOptions options = loopback_host(3);
  options.addresses = {address_of("::1")};
  const Status status = MeetingHost::start(options, host);
  if (!status.ok()) GTEST_SKIP() << "no IPv6 here: " << status.message();
  expect_meeting(*host, 3);
}

TEST(Rendezvous, AnInterfaceIsHonouredByBothSides) {
  std::unique_ptr<MeetingHost> host;
  HostOptions options = loopback_host(2);
  options.addresses.clear();
  options.interface = "lo";
  expect_ok(MeetingHost::start(options, host));
  for (const Address& address : host->id().addresses()) EXPECT_TRUE(is_loopback(address));
  JoinOptions from = patience(20'000);
  from.interface = "127.0.0.1";
  support::run_threads(2, [&](int rank) { expect_ok(whole_meeting(host->id(), rank, 2, 1, from)); });

  options.interface = "nosuch0";
  expect_failure(MeetingHost::start(options, host), RINGATTN_ERR_NOT_FOUND, {"nosuch0"});
  from.interface = "nosuch0";
  std::unique_ptr<Meeting> meeting;
  const UniqueId id = UniqueId::make(Key(), 1, {address_of("127.0.0.1")});
  expect_failure(Meeting::join(id, 0, 2, from, meeting), RINGATTN_ERR_NOT_FOUND, {"nosuch0"});
}

TEST(Rendezvous, TooManyBytesAreRefusedAndTheMeetingGoesOn) {
  std::unique_ptr<MeetingHost> host;
  expect_ok(MeetingHost::start(loopback_host(1), host));
  std::unique_ptr<Meeting> meeting;
  expect_ok(Meeting::join(host->id(), 0, 1, patience(5'000), meeting));
  std::vector<std::vector<std::uint8_t>> all;
  expect_failure(meeting->gather(std::vector<std::uint8_t>(65537), all), RINGATTN_ERR_INVALID_ARGUMENT,
                 {"65537", "65536"});
  expect_ok(gather_rounds(*meeting, 1));
  expect_ok(meeting->leave());
}

TEST(Rendezvous, ALateHostIsWaitedFor) {
  HostOptions options = loopback_host(2);
  options.port = free_port();
  options.secret = Key::random();
  const UniqueId id = UniqueId::make(*options.secret, options.port, options.addresses);
  std::unique_ptr<MeetingHost> host;
  support::run_threads(3, [&](int i) {
    if (i < 2) return expect_ok(whole_meeting(id, i, 2));
    pause_ms(300);
    expect_ok(MeetingHost::start(options, host));
    expect_ok(host->wait(10'000));
  });
}

TEST(Rendezvous, ALateRankIsWaitedFor) {
  std::unique_ptr<MeetingHost> host;
  expect_ok(MeetingHost::start(loopback_host(3), host));
  support::run_threads(3, [&](int rank) {
    if (rank == 1) pause_ms(300);
    expect_ok(whole_meeting(host->id(), rank, 3));
  });
}

TEST(Rendezvous, RanksThatNeverComeAreNamed) {
  std::unique_ptr<MeetingHost> host;
  HostOptions options = loopback_host(5);
  options.timeout_ms = 1'000;
  expect_ok(MeetingHost::start(options, host));
  const auto start = Clock::now();
  const std::vector<std::string> words = {"ranks 2 and 4 did not come", "1000 ms",
                                          "meeting of 5 ranks at 127.0.0.1:"};
  support::run_threads(3, [&](int i) {
    const int rank = i == 2 ? 3 : i;
    expect_failure(whole_meeting(host->id(), rank, 5), RINGATTN_ERR_TIMEOUT, words);
  });
  expect_failure(host->wait(10'000), RINGATTN_ERR_TIMEOUT, words);
  EXPECT_LT(seconds_since(start), 5.0);
}

TEST(Rendezvous, ARanksOwnDeadlineEndsTheMeetingForAll) {
  std::unique_ptr<MeetingHost> host;
  expect_ok(MeetingHost::start(loopback_host(3), host));
  support::run_threads(2, [&](int rank) {
    const Status status = whole_meeting(host->id(), rank, 3, 1, patience(rank == 1 ? 1'000 : 20'000));
    expect_failure(status, RINGATTN_ERR_TIMEOUT, {"rank 1's time of", "rank 2 did not come"});
  });
}

TEST(Rendezvous, ARankThatGivesNothingIsNamed) {
  std::unique_ptr<MeetingHost> host;
  HostOptions options = loopback_host(3);
  options.timeout_ms = 1'500;
  expect_ok(MeetingHost::start(options, host));
  std::atomic<int> ended{0};
  support::run_threads(3, [&](int rank) {
    std::unique_ptr<Meeting> meeting;
    expect_ok(Meeting::join(host->id(), rank, 3, patience(20'000), meeting));
    expect_ok(gather_rounds(*meeting, 1));
    if (rank != 1) {
      expect_failure(gather_rounds(*meeting, 1), RINGATTN_ERR_TIMEOUT,
                     {"rank 1 did not take part in round 1"});
      expect_failure(meeting->leave(), RINGATTN_ERR_TIMEOUT, {"rank 1"});
    }
    ++ended;
    while (ended < 3) pause_ms(5);
  });
}

TEST(Rendezvous, ARankThatDiesInARoundIsNamed) {
  std::unique_ptr<MeetingHost> host;
  expect_ok(MeetingHost::start(loopback_host(4), host));
  const auto start = Clock::now();
  support::run_threads(4, [&](int rank) {
    std::unique_ptr<Meeting> meeting;
    expect_ok(Meeting::join(host->id(), rank, 4, patience(20'000), meeting));
    expect_ok(gather_rounds(*meeting, 2));
    if (rank == 2) return;  // without a word
    expect_failure(gather_rounds(*meeting, 1), RINGATTN_ERR_PEER_LOST,
                   {"rank 2 (127.0.0.1:", "round 2", "closed"});
  });
  expect_failure(host->wait(10'000), RINGATTN_ERR_PEER_LOST, {"rank 2"});
  EXPECT_LT(seconds_since(start), 5.0);
}

TEST(Rendezvous, ARankThatLeftIsMissedInTheNextRound) {
  std::unique_ptr<MeetingHost> host;
  expect_ok(MeetingHost::start(loopback_host(2), host));
  support::run_threads(2, [&](int rank) {
    if (rank == 1) return expect_ok(whole_meeting(host->id(), 1, 2));
    expect_failure(whole_meeting(host->id(), 0, 2, 2), RINGATTN_ERR_PEER_LOST, {"rank 1", "round 1"});
  });
}

TEST(Rendezvous, TheHostEndsTheMeetingWhenItGoes) {
  std::unique_ptr<MeetingHost> host;
  expect_ok(MeetingHost::start(loopback_host(2), host));
  std::unique_ptr<Meeting> meeting;
  expect_ok(Meeting::join(host->id(), 0, 2, patience(20'000), meeting));
  support::run_threads(2, [&](int i) {
    if (i == 0)
      return expect_failure(gather_rounds(*meeting, 1), RINGATTN_ERR_ABORTED, {"its host has ended it"});
    pause_ms(100);
    const auto start = Clock::now();
    host.reset();
    EXPECT_LT(seconds_since(start), 1.0);
  });
  expect_failure(gather_rounds(*meeting, 1), RINGATTN_ERR_ABORTED, {"its host"});
}

TEST(Rendezvous, APortInUseIsNamed) {
  std::unique_ptr<MeetingHost> first, second;
  expect_ok(MeetingHost::start(loopback_host(1), first));
  HostOptions options = loopback_host(1);
  options.port = first->id().port();
  const std::vector<std::string> words = {":" + std::to_string(options.port), "Address already in use"};
  expect_failure(MeetingHost::start(options, second), RINGATTN_ERR_TRANSPORT, words);
  options.addresses.clear();
  expect_failure(MeetingHost::start(options, second), RINGATTN_ERR_TRANSPORT, words);
  EXPECT_EQ(second, nullptr);
}

TEST(Rendezvous, AnAddressOfAnotherHostIsNamed) {
  std::unique_ptr<MeetingHost> host;
  HostOptions options = loopback_host(1);
  options.addresses = {address_of("192.0.2.1")};
  expect_failure(MeetingHost::start(options, host), RINGATTN_ERR_TRANSPORT, {"192.0.2.1", "Cannot assign"});
  options.addresses.push_back(address_of("127.0.0.1"));
  expect_ok(MeetingHost::start(options, host));
  EXPECT_EQ(host->id().addresses(), std::vector<Address>{address_of("127.0.0.1")});
}

TEST(Rendezvous, TheSamePortTwentyTimes) {
  HostOptions options = loopback_host(2);
  options.port = free_port();
  for (int i = 0; i < 20; ++i) {
    std::unique_ptr<MeetingHost> host;
    expect_ok(MeetingHost::start(options, host));
    ASSERT_NE(host, nullptr) << "run " << i;
    expect_meeting(*host, 2);
  }
}

TEST(Rendezvous, AllAddressesThatWereTriedAreListed) {
  const std::uint16_t port = free_port();
  const UniqueId id = UniqueId::make(Key(), port, {address_of("127.0.0.9"), address_of("127.0.0.1")});
  const std::string number = std::to_string(port);
  std::unique_ptr<Meeting> meeting;
  const auto start = Clock::now();
  expect_failure(Meeting::join(id, 1, 2, patience(600), meeting), RINGATTN_ERR_TIMEOUT,
                 {"rank 1", "600 ms", "127.0.0.9:" + number + ": Connection refused",
                  "127.0.0.1:" + number + ": Connection refused"});
  EXPECT_GE(seconds_since(start), 0.6);
  EXPECT_LT(seconds_since(start), 5.0);
}

// A listener whose queue is full drops every further connection request, as a dead interface would.
TEST(Rendezvous, ADeadAddressInFrontCostsAMoment) {
  std::unique_ptr<MeetingHost> host;
  expect_ok(MeetingHost::start(loopback_host(4), host));
  const UniqueId& id = host->id();
  sockaddr_storage storage;
  const socklen_t size = to_sockaddr(address_of("127.0.0.9"), id.port(), storage);
  const Socket dead(socket(AF_INET, SOCK_STREAM, 0));
  ASSERT_EQ(bind(dead.fd(), reinterpret_cast<sockaddr*>(&storage), size), 0);
  ASSERT_EQ(listen(dead.fd(), 0), 0);
  std::vector<Socket> fillers;
  for (int i = 0; i < 4; ++i) {
    fillers.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    (void)connect(fillers.back().fd(), reinterpret_cast<sockaddr*>(&storage), size);
  }
  const UniqueId both =
      UniqueId::make(id.secret(), id.port(), {address_of("127.0.0.9"), address_of("127.0.0.1")});
  const auto start = Clock::now();
  support::run_threads(4, [&](int rank) { expect_ok(whole_meeting(both, rank, 4)); });
  EXPECT_GE(seconds_since(start), 0.1) << "the dead address was not dead";
  EXPECT_LT(seconds_since(start), 5.0);
}

TEST(Rendezvous, AForkedChildLeavesTheMeetingAlone) {
  std::unique_ptr<MeetingHost> host;
  expect_ok(MeetingHost::start(loopback_host(2), host));
  std::unique_ptr<Meeting> meeting;
  expect_ok(Meeting::join(host->id(), 1, 2, patience(20'000), meeting));
  const pid_t child = fork();
  if (child == 0) {
    meeting.reset();
    host.reset();
    _exit(0);
  }
  int ending = -1;
  ASSERT_EQ(waitpid(child, &ending, 0), child);
  EXPECT_EQ(ending, 0);
  support::run_threads(2, [&](int i) {
    if (i == 0) return expect_ok(whole_meeting(host->id(), 0, 2));
    expect_ok(gather_rounds(*meeting, 1));
    expect_ok(meeting->leave());
  });
}

TEST(Rendezvous, NothingIsLeftBehind) {
  const std::size_t fds = entries("/proc/self/fd"), threads = entries("/proc/self/task");
  for (int i = 0; i < 5; ++i) {
    std::unique_ptr<MeetingHost> host;
    expect_ok(MeetingHost::start(loopback_host(4), host));
    std::unique_ptr<Meeting> lost;  // some end well, some do not
    if (i % 2 == 0) {
      expect_meeting(*host, 4);
    } else {
      expect_ok(Meeting::join(host->id(), 0, 4, patience(20'000), lost));
      const Stranger stranger(host->id().port());
    }
  }
  EXPECT_EQ(entries("/proc/self/fd"), fds);
  EXPECT_EQ(entries("/proc/self/task"), threads);
}

}  // namespace
}  // namespace ringattn::comm
