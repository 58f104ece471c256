// The contract, part 8: a message whose size no 32-bit number holds, between two processes.
#include <sys/mman.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "contract/process_ring.h"
#include "contract/transport_suite.h"

namespace ringattn::test {
namespace {

std::vector<TransportSubject> process_subjects() {
  std::vector<TransportSubject> subjects = transport_subjects();
  std::erase_if(subjects, [](const TransportSubject& subject) {
    return (subject.table->caps & RINGATTN_TRANSPORT_PROCESSES) == 0;
  });
  return subjects;
}
RINGATTN_TRANSPORT_SUITE(TransportHuge, process_subjects());

constexpr std::uint64_t kBytes = (std::uint64_t{1} << 31) + 12345;
constexpr std::uint64_t kWords = kBytes / 8, kTail = kBytes % 8;
// The contents repeat after so many bytes, and 2^31 and 2^32 are no multiples of it.
constexpr std::uint64_t kPeriod = 33 << 20, kPeriodWords = kPeriod / 8;
constexpr std::uint64_t kNeededKiB = 8 << 20;

std::uint64_t available_kib() {
  std::FILE* const file = std::fopen("/proc/meminfo", "r");
  std::uint64_t found = 0;
  char line[256];
  while (file != nullptr && found == 0 && std::fgets(line, sizeof line, file) != nullptr)
    std::sscanf(line, "MemAvailable: %" SCNu64, &found);
  if (file != nullptr) std::fclose(file);
  return found;
}

// No two words of a period are equal, so that no piece is right in another's place.
std::uint64_t word_of(std::uint64_t i) { return i % kPeriodWords * 0x9e3779b97f4a7c15u + 1; }

// What is sent: the same 33 MiB of memory again and again, as the time goes into making pages.
const std::uint64_t* source_words() {
  const int file = ::memfd_create("ringattn-huge", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, kPeriod) != 0) std::abort();
  constexpr std::uint64_t kRoom = (kBytes / kPeriod + 1) * kPeriod;
  auto* const room =
      static_cast<char*>(::mmap(nullptr, kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  for (std::uint64_t at = 0; at < kRoom; at += kPeriod) {
    if (::mmap(room + at, kPeriod, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
      std::abort();
  }
  ::close(file);
  auto* const words = reinterpret_cast<std::uint64_t*>(room);
  for (std::uint64_t i = 0; i < kPeriodWords; ++i) words[i] = word_of(i);
  return words;
}

// Where it arrives: two words more than needed, as what lies beyond the message must stay as it is; in large pages, where
// there are any.
struct Free {
  void operator()(std::uint64_t* words) const { std::free(words); }
};
std::unique_ptr<std::uint64_t[], Free> target_words() {
  constexpr std::size_t kLargePage = 2 << 20,
                        kRoom = ((kWords + 2) * 8 + kLargePage - 1) / kLargePage * kLargePage;
  auto* const words = static_cast<std::uint64_t*>(std::aligned_alloc(kLargePage, kRoom));
  if (words == nullptr) std::abort();
  ::madvise(words, kRoom, MADV_HUGEPAGE);
  words[kWords] = words[kWords + 1] = 0;
  return std::unique_ptr<std::uint64_t[], Free>(words);
}

std::string send_it(ChildRank& child) {
  if (child.link.send(1, 1, source_words(), kBytes) != RINGATTN_OK) return child.state();
  const auto completion = child.link.next(std::chrono::seconds(60));
  if (!completion || completion->status != RINGATTN_OK) return "the send: " + child.state();
  return completion->bytes == kBytes ? "" : "the send tells another size";
}

std::string receive_it(ChildRank& child) {
  const auto words = target_words();
  if (child.link.receive(0, 1, words.get(), kBytes) != RINGATTN_OK) return child.state();
  const auto completion = child.link.next(std::chrono::seconds(60));
  if (!completion || completion->status != RINGATTN_OK) return "the receive: " + child.state();
  if (completion->bytes != kBytes) return "the receive tells another size";
  for (std::uint64_t i = 0; i < kWords; ++i) {
    if (words[i] != word_of(i)) return "wrong bytes from byte " + std::to_string(8 * i);
  }
  const std::uint64_t last = word_of(kWords), end[2] = {words[kWords], words[kWords + 1]};
  std::uint64_t wanted[2] = {0, 0};
  std::memcpy(wanted, &last, kTail);
  return std::memcmp(end, wanted, sizeof end) == 0 ? "" : "wrong bytes at the end";
}

// Its whole work, on a machine that has much else to do.
std::string next_in_a_minute(ProcessRing& ring, std::int32_t rank) {
  std::string told = "hangs";
  for (int i = 0; i < 3 && told == "hangs"; ++i) told = ring.next(rank);
  return told;
}

TEST_P(TransportHuge, MoreThanTwoGiBInOneMessage) {
#if defined(RINGATTN_ASAN) || defined(RINGATTN_TSAN)
  GTEST_SKIP() << "a sanitizer makes 2 GiB take minutes";
#endif
  const std::uint64_t available = available_kib();
  if (available < kNeededKiB)
    GTEST_SKIP() << "needs " << (kNeededKiB >> 20) << " GiB of memory, available are " << (available >> 20);
  ProcessRing ring(GetParam().table, 2, [](ChildRank& child) {
    const std::string wrong = child.link.rank() == 0 ? send_it(child) : receive_it(child);
    child.report();
    child.pause();
    return wrong;
  });
  for (std::int32_t rank = 0; rank < 2; ++rank) EXPECT_EQ(next_in_a_minute(ring, rank), "R");
  for (std::int32_t rank = 0; rank < 2; ++rank) ring.go(rank);
  for (std::int32_t rank = 0; rank < 2; ++rank) EXPECT_EQ(ring.next(rank), "") << "rank " << rank;
}

}  // namespace
}  // namespace ringattn::test
