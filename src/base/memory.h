// Aligned memory that is freed by its owner.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace ringattn {

inline constexpr std::size_t kAlignment = 64;  // a cache line, and the widest vector

inline std::uint64_t round_up(std::uint64_t bytes, std::uint64_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

struct AlignedDelete {
  void operator()(std::byte* data) const { ::operator delete(data, std::align_val_t(kAlignment)); }
};
using AlignedBytes = std::unique_ptr<std::byte, AlignedDelete>;

// Throws std::bad_alloc.
inline AlignedBytes allocate_aligned(std::uint64_t bytes) {
  return AlignedBytes(static_cast<std::byte*>(::operator new(bytes, std::align_val_t(kAlignment))));
}

}  // namespace ringattn
