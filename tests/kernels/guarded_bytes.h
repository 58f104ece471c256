// Memory with canaries on both sides; under AddressSanitizer also poisoned, so that reads outside fail too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <vector>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RINGATTN_TEST_POISONS 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define RINGATTN_TEST_POISONS 1
#endif
#if defined(RINGATTN_TEST_POISONS)
#include <sanitizer/asan_interface.h>
#endif

namespace ringattn::kernels::test {

class GuardedBytes {
 public:
  // `misalignment` bytes past a 64-byte boundary.
  GuardedBytes(std::size_t size, std::size_t misalignment)
      : size_(size),
        front_(kGuard + misalignment),
        total_(front_ + size + kGuard),
        base_(static_cast<unsigned char*>(::operator new (total_, std::align_val_t{64}))) {
    std::memset(base_, kCanary, total_);
    allow_all();
  }
  ~GuardedBytes() {
    open(0, total_);
    ::operator delete (base_, std::align_val_t{64});
  }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;

  void* data() { return base_ + front_; }
  const void* data() const { return base_ + front_; }
  std::size_t size() const { return size_; }
  void fill(int byte) { std::memset(data(), byte, size_); }
  std::vector<unsigned char> copy() const { return {base_ + front_, base_ + front_ + size_}; }

  // Only what is allowed afterwards may be touched. The sanitizer's granularity is 8 bytes: some gap bytes stay open.
  void forbid() { close(0, total_); }
  void allow(std::size_t offset, std::size_t count) { open(front_ + offset, count); }
  void allow_all() {
    close(0, total_);
    open(front_, size_);
  }

  bool guards_intact() const {
    open(0, total_);
    const auto is_canary = [](unsigned char byte) { return byte == kCanary; };
    const bool intact = std::all_of(base_, base_ + front_, is_canary) &&
                        std::all_of(base_ + front_ + size_, base_ + total_, is_canary);
    close(0, front_);
    close(front_ + size_, kGuard);
    open(front_, size_);
    return intact;
  }

 private:
  static constexpr std::size_t kGuard = 128;
  static constexpr unsigned char kCanary = 0xa5;

#if defined(RINGATTN_TEST_POISONS)
  void close(std::size_t offset, std::size_t count) const {
    ASAN_POISON_MEMORY_REGION(base_ + offset, count);
  }
  void open(std::size_t offset, std::size_t count) const {
    ASAN_UNPOISON_MEMORY_REGION(base_ + offset, count);
  }
#else
  void close(std::size_t, std::size_t) const {}
  void open(std::size_t, std::size_t) const {}
#endif

  std::size_t size_, front_, total_;
  unsigned char* base_;
};

}  // namespace ringattn::kernels::test
