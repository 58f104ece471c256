// Who else may call while the ranks of a tcp ring connect: nobody of these disturbs them.
#include <netinet/in.h>

#include <atomic>

#include "contract/process_ring.h"
#include "contract/transport_suite.h"
#include "transports/tcp/addresses.h"
#include "transports/tcp/dial.h"
#include "transports/tcp/tcp.h"

namespace ringattn::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr char kSecret[] = "the secret of this ring";

std::vector<tcp::SocketAddress> endpoints(const std::string& blob) {
  tcp::LinkAddress address;
  EXPECT_TRUE(tcp::read_address(blob.data(), blob.size(), address));
  address.at.resize(1);  // loopback
  return address.at;
}

int connect_to(const std::string& blob) {
  const tcp::SocketAddress at = endpoints(blob).front();
  const int fd = ::socket(at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(::connect(fd, &at.any, at.bytes()), 0);
  return fd;
}

// Calls as a rank, by the real protocol, until it is let in or turned away with this word; what it heard last.
std::string call_as(const std::string& blob, std::uint64_t group, std::int32_t world_size, std::int32_t from,
                    const std::string& secret, const std::string& word) {
  ringattn_link_desc_v1 desc = TransportRing::describe(from, world_size, group);
  desc.secret = secret.data();
  desc.secret_bytes = secret.size();
  const tcp::Ring ring(desc);
  tcp::Dial dial(ring, from, 0, tcp::Channel::life, endpoints(blob));
  const auto deadline = tcp::Clock::now() + seconds(5);
  while (tcp::Clock::now() < deadline && dial.tried().find(word) == std::string::npos) {
    pollfd entry = dial.to_poll();
    ::poll(&entry, 1, 5);
    dial.advance(entry.revents != 0);
    if (dial.done()) return "let in";
  }
  return dial.tried();
}

std::string say_hello(ChildRank& child) {
  const std::int32_t n = child.world_size, rank = child.link.rank();
  std::uint8_t mine = static_cast<std::uint8_t>(rank), theirs = 99;
  child.link.receive((rank + n - 1) % n, 1, &theirs, 1);
  child.link.send((rank + 1) % n, 1, &mine, 1);
  for (int i = 0; i < 2; ++i) {
    const auto completion = child.link.next();
    if (!completion || completion->status != RINGATTN_OK) return "no hello: " + child.state();
  }
  return theirs == (rank + n - 1) % n ? "" : "a stranger's hello";
}

TEST(TransportStrangers, GarbageSilenceAndWrongSecretsDisturbNobody) {
  const Watchdog watchdog("TransportStrangers");
  const std::size_t descriptors = open_descriptors();
  std::vector<int> strangers;
  {
    ProcessRing::Options options;
    options.before_connect = [&](ProcessRing& ring) {
      for (const std::string& address : ring.addresses()) {
        for (int i = 0; i < 30; ++i)
          strangers.push_back(connect_to(address));  // three kinds, silent ones too
      }
      const std::string garbage = "GET / HTTP/1.1\r\n\r\n" + std::string(200, 'x');
      const std::string huge(4096, '\xff');
      for (std::size_t i = 0; i < strangers.size(); ++i) {
        if (i % 3 == 0) ::send(strangers[i], garbage.data(), garbage.size(), MSG_NOSIGNAL);
        if (i % 3 == 1) ::send(strangers[i], huge.data(), huge.size(), MSG_NOSIGNAL);
      }
    };
    options.before_last = [&](ProcessRing& ring) {
      const auto turned_away = [&](std::uint64_t group, std::int32_t world_size, std::int32_t from,
                                   const std::string& secret, const std::string& word) {
        const std::string heard = call_as(ring.addresses()[0], group, world_size, from, secret, word);
        EXPECT_NE(heard.find(word), std::string::npos) << heard;
      };
      turned_away(ring.group(), 3, 2, "another secret", "secret");
      turned_away(ring.group(), 3, 1, kSecret, "already");  // a second rank 1
      turned_away(ring.group() + 1, 3, 2, kSecret, "another ring");
      turned_away(ring.group(), 4, 2, kSecret, "another ring");  // another world size
      turned_away(ring.group(), 3, 3, kSecret, "another ring");  // a rank too many
    };
    ProcessRing ring(ringattn_transport_tcp_v1(), 3, say_hello, options);
    for (std::int32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(ring.next(rank), "");
  }
  for (const int fd : strangers) ::close(fd);
  EXPECT_EQ(open_descriptors(), descriptors);
}

// Bytes one at a time, for longer than a handshake may take, while the ring connects around them.
TEST(TransportStrangers, ASlowOneHoldsUpNobody) {
  const Watchdog watchdog("TransportStrangers");
  std::atomic<bool> stop{false};
  std::thread slow;
  ProcessRing::Options options;
  options.before_connect = [&](ProcessRing& ring) {
    const int fd = connect_to(ring.addresses()[0]);  // here: once all have connected nobody listens
    slow = std::thread([&stop, fd] {
      while (!stop) {
        ::send(fd, "r", 1, MSG_NOSIGNAL);
        std::this_thread::sleep_for(milliseconds(20));
      }
      ::close(fd);
    });
  };
  const auto start = tcp::Clock::now();
  ProcessRing ring(ringattn_transport_tcp_v1(), 2, say_hello, options);
  for (std::int32_t rank = 0; rank < 2; ++rank) EXPECT_EQ(ring.next(rank), "");
  EXPECT_LT(tcp::Clock::now() - start, seconds(2));
  stop = true;
  slow.join();
}

TEST(TransportStrangers, AddressesThatCannotBeReadAreRefused) {
  tcp::LinkAddress address, back;
  std::string error;
  const tcp::Fd listener = tcp::open_listener(address, error);
  ASSERT_TRUE(listener) << error;
  const std::string blob = tcp::write_address(address);
  ASSERT_TRUE(tcp::read_address(blob.data(), blob.size(), back));
  EXPECT_EQ(back.who(), address.who());
  EXPECT_EQ(back.at.size(), address.at.size());
  for (std::size_t bytes = 0; bytes < blob.size(); ++bytes) {
    EXPECT_FALSE(tcp::read_address(blob.data(), bytes, back)) << bytes;
  }
  const std::string longer = blob + "x";
  EXPECT_FALSE(tcp::read_address(longer.data(), longer.size(), back));
  std::string many = blob;
  many[24] = '\xff';  // the count
  EXPECT_FALSE(tcp::read_address(many.data(), many.size(), back));
}

}  // namespace
}  // namespace ringattn::test
