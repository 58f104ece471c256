// What this process holds, for tests of what must not grow. All from /proc, no cost to others.
#pragma once

#include <malloc.h>

#include <cstddef>
#include <filesystem>
#include <iterator>

namespace ringattn::support {

inline int entries_of(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<int>(std::distance(begin(all), end(all)));
}

inline int thread_count() { return entries_of("/proc/self/task"); }
inline int open_files() { return entries_of("/proc/self/fd"); }

// Bytes handed out by malloc and not yet freed, large mappings included.
inline std::size_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// A sanitizer brings an allocator of its own, which mallinfo2 knows nothing of.
inline constexpr bool kOwnAllocator =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    false;
#else
    true;
#endif
#else
    true;
#endif

// Rounds to run: sanitizers make everything several times slower.
inline constexpr int kSlowdown = kOwnAllocator ? 1 : 5;

}  // namespace ringattn::support
