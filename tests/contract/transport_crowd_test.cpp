// The contract, part 7: many ranks in processes of their own, over every way that large messages may go.
#include <time.h>

#include <cstdlib>

#include "comm/plugins.h"
#include "contract/process_ring.h"
#include "contract/random_traffic.h"
#include "contract/transport_suite.h"
#include "transports/tcp/tcp.h"

namespace ringattn::test {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

struct Way {
  std::string name;
  const ringattn_transport_v1* table;
  const char* lanes;   // what UCX may use; null = what the library chooses
  const char* logged;  // what the link says that it uses; null = nothing
  bool eager = false;  // as the library chooses between hosts
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

std::vector<Way> ways() {
  std::vector<Way> all = {{"tcp", ringattn_transport_tcp_v1(), nullptr, nullptr}};
#if defined(RINGATTN_HAS_UCX) && !defined(RINGATTN_TSAN)  // TransportUcx.CanRunHere tells why it is left out
  if (comm::ucx_table()->score(nullptr) > 0) {
    all.push_back({"ucx_shared_memory", comm::ucx_table(), nullptr, "posix"});
    all.push_back({"ucx_network", comm::ucx_table(), "tcp,self", "tcp"});
    all.push_back({"ucx_network_eager", comm::ucx_table(), "tcp,self", "tcp", true});
  }
#endif
  return all;
}

class TransportCrowd : public testing::TestWithParam<Way> {
 protected:
  static ProcessRing::Options options() {
    ProcessRing::Options chosen;
    chosen.open_timeout_ms = 30'000;
    chosen.in_child = [] {
      if (GetParam().lanes != nullptr) ::setenv("UCX_TLS", GetParam().lanes, 1);
      if (GetParam().eager) ::setenv("UCX_RNDV_THRESH", "inf", 1);
    };
    return chosen;
  }
  // The lanes are those that the test is about.
  static std::string check_lanes(const ChildRank& child) {
    const char* const wanted = GetParam().logged;
    if (wanted == nullptr || child.log.find(std::string("go over ") + wanted) != std::string::npos) return "";
    return "expected messages to go over " + std::string(wanted) + ", but: " + child.log;
  }
  // No rank leaves before all are done.
  static void leave_together(ProcessRing& ring, std::int32_t ranks) {
    for (std::int32_t rank = 0; rank < ranks; ++rank) EXPECT_EQ(ring.next(rank), "R") << "rank " << rank;
    for (std::int32_t rank = 0; rank < ranks; ++rank) ring.go(rank);
    for (std::int32_t rank = 0; rank < ranks; ++rank) EXPECT_EQ(ring.next(rank), "") << "rank " << rank;
  }

 private:
  Watchdog watchdog_{GetParam().name};
};
INSTANTIATE_TEST_SUITE_P(All, TransportCrowd, testing::ValuesIn(ways()),
                         [](const auto& instance) { return instance.param.name; });

// Transfers that nobody will ever match, and their end.
class Orphans {
 public:
  explicit Orphans(ChildRank& child) : child_(child), buffer_(kLarge), source_(kLarge, 0xaa) {}

  std::string post(std::uint64_t round) {
    TestLink& link = child_.link;
    const std::int32_t next = (link.rank() + 1) % child_.world_size;
    const std::uint64_t tag = kTag | round << 8;
    const bool taken =
        link.post({link.send_of(next, tag, source_.data(), kLarge, kUser),
                   link.send_of(next, tag | 1, source_.data(), 100, kUser + 1),
                   link.receive_of(next, tag | 2, buffer_.data(), kLarge, kUser + 2),
                   link.receive_of(next, tag | 3, buffer_.data(), 100, kUser + 3)}) == RINGATTN_OK;
    return taken ? "" : "post: " + child_.state();
  }
  // While the round's own transfers have all ended.
  std::string withdraw() {
    child_.link.withdraw(kTag, kTag);
    std::uint64_t users = 0;
    for (int i = 0; i < 4; ++i) {
      const auto completion = child_.link.next();
      if (!completion) return "a withdrawn transfer does not end: " + child_.state();
      if (completion->status != RINGATTN_ERR_CANCELED || completion->user < kUser)
        return "a withdrawn transfer ended " + std::to_string(completion->status);
      users += completion->user - kUser;
    }
    return users == 0 + 1 + 2 + 3 ? "" : "a withdrawn transfer ended twice";
  }

 private:
  static constexpr std::size_t kLarge = 300'000;
  static constexpr std::uint64_t kTag = std::uint64_t{1} << 63, kUser = 1'000'000;
  ChildRank& child_;
  Bytes buffer_, source_;
};

#if defined(RINGATTN_ASAN) || defined(RINGATTN_TSAN)
constexpr std::uint64_t kRounds = 1;  // loops over bytes take ten times as long
#else
constexpr std::uint64_t kRounds = 5;
#endif

// Sizes from 0 to several MiB, all pairs at the same time and both ways, posted in any order; what is withdrawn meanwhile
// disturbs nothing.
TEST_P(TransportCrowd, EightProcessesSendEverythingEverywhere) {
  constexpr std::int32_t kRanks = 8;
  ProcessRing ring(
      GetParam().table, kRanks,
      [](ChildRank& child) {
        std::string wrong = check_lanes(child);
        std::mt19937_64 random(static_cast<std::uint64_t>(child.link.rank()));
        Orphans orphans(child);
        for (std::uint64_t round = 0; round < kRounds && wrong.empty(); ++round) {
          const auto messages = messages_of(kRanks, round, 300, {.most = 5 << 20, .skewed = true});
          wrong = orphans.post(round);
          if (wrong.empty()) wrong = RandomRound(child.link, messages, random).run();
          if (wrong.empty()) wrong = orphans.withdraw();
        }
        if (!wrong.empty()) return wrong;
        child.report();
        child.pause();
        return child.link.state() == RINGATTN_OK ? std::string() : child.state();
      },
      options());
  leave_together(ring, kRanks);
}

double process_cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

constexpr milliseconds kSpan{500};

// Waits for a message that nobody sends before all have waited for kSpan; tells the microseconds of CPU time that this took.
std::string wait_and_tell(ChildRank& child) {
  TestLink& link = child.link;
  const std::int32_t n = child.world_size, next = (link.rank() + 1) % n, previous = (link.rank() + n - 1) % n;
  Bytes source(100'000, 7), buffer(source.size());
  if (link.receive(next, 1, buffer.data(), buffer.size()) != RINGATTN_OK) return child.state();
  child.report();
  child.pause();
  const double before = process_cpu_seconds();
  for (const auto end = Clock::now() + kSpan; Clock::now() < end;) {
    link.wait(end - Clock::now());
    if (link.poll()) return "a message came too early";
  }
  child.line.send("us:" + std::to_string(static_cast<long>(1e6 * (process_cpu_seconds() - before))));
  child.pause();
  if (link.send(previous, 1, source.data(), source.size()) != RINGATTN_OK) return child.state();
  for (int i = 0; i < 2; ++i) {
    const auto completion = link.next();
    if (!completion || completion->status != RINGATTN_OK) return child.state();
  }
  child.report();
  child.pause();
  return buffer == source ? "" : "wrong bytes";
}

// More ranks than cores must not take the cores from those that compute.
TEST_P(TransportCrowd, SixteenWaitingProcessesBurnNoCpu) {
  constexpr std::int32_t kRanks = 16;
  ProcessRing ring(GetParam().table, kRanks, wait_and_tell, options());
  for (std::int32_t rank = 0; rank < kRanks; ++rank) ASSERT_EQ(ring.next(rank), "R");
  for (std::int32_t rank = 0; rank < kRanks; ++rank) ring.go(rank);
  double cpu = 0;
  for (std::int32_t rank = 0; rank < kRanks; ++rank) {
    const std::string told = ring.next(rank);
    ASSERT_EQ(told.rfind("us:", 0), 0u) << "rank " << rank << ": " << told;
    cpu += 1e-6 * std::atof(told.c_str() + 3);
  }
  for (std::int32_t rank = 0; rank < kRanks; ++rank) ring.go(rank);
  const double wall = std::chrono::duration<double>(kSpan).count();
  std::printf("%s: 16 processes waited %.1f s with %.4f s of CPU time\n", GetParam().name.c_str(), wall, cpu);
  EXPECT_LT(cpu, 0.2 * wall);
  leave_together(ring, kRanks);
}

}  // namespace
}  // namespace ringattn::test
