#include "tests/support/count_new.h"

#include <cstddef>
#include <cstdlib>
#include <new>

// AddressSanitizer checks that new meets delete, for every test of the program: there we leave them alone.
#if !defined(__SANITIZE_ADDRESS__)
#define RINGATTN_COUNT_NEW 1
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#undef RINGATTN_COUNT_NEW
#endif
#endif
#endif

namespace {
thread_local std::uint64_t news = 0;
}  // namespace

#ifdef RINGATTN_COUNT_NEW

namespace {

void* counted(std::size_t bytes) {
  ++news;
  if (void* memory = std::malloc(bytes != 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}

void* counted(std::size_t bytes, std::align_val_t alignment) {
  ++news;
  const auto step = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(step, (bytes / step + 1) * step)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) { return counted(bytes, alignment); }
void* operator new[](std::size_t bytes, std::align_val_t alignment) { return counted(bytes, alignment); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace ringattn::support {
bool counts_new() { return true; }
}  // namespace ringattn::support

#else

namespace ringattn::support {
bool counts_new() { return false; }
}  // namespace ringattn::support

#endif

namespace ringattn::support {
std::uint64_t news_of_this_thread() { return news; }
}  // namespace ringattn::support
