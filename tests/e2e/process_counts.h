// What this process holds, for tests of what must not grow. All from /proc, no cost to others.
#pragma once

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <thread>

namespace ringattn::support {

inline int entries_of(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<int>(std::distance(begin(all), end(all)));
}

inline int thread_count() { return entries_of("/proc/self/task"); }
// The count once it is at most `most`, or what it still is after five seconds: the kernel lists a thread for a moment
// after it was joined, and oneTBB ends its threads when it likes.
inline int threads_down_to(int most) {
  for (int i = 0; i < 500 && thread_count() > most; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return thread_count();
}
inline int open_files() { return entries_of("/proc/self/fd"); }

// Bytes handed out by malloc and not yet freed, large mappings included.
inline std::size_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// Least growth of the heap over three runs of `body`: a leak of the body's own shows in each of them, what some other
// thread of the process (a pool that winds down) allocates meanwhile does not.
template <typename Body>
std::size_t heap_growth(const Body& body) {
  std::size_t least = static_cast<std::size_t>(-1);
  for (int run = 0; run < 3 && least != 0; ++run) {
    const std::size_t before = heap_bytes();
    body();
    least = std::min(least, std::max(heap_bytes(), before) - before);
  }
  return least;
}

// A sanitizer brings an allocator of its own, which mallinfo2 knows nothing of.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RINGATTN_TEST_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RINGATTN_TEST_SANITIZED 1
#endif
#ifdef RINGATTN_TEST_SANITIZED
inline constexpr bool kOwnAllocator = false;
#else
inline constexpr bool kOwnAllocator = true;
#endif

// Rounds to run: sanitizers make everything several times slower.
inline constexpr int kSlowdown = kOwnAllocator ? 1 : 5;

}  // namespace ringattn::support
