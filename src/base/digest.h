// A 64-bit digest of values, the same on every machine: FNV-1a over 64-bit words with a final mix.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace ringattn {

class Digest {
 public:
  Digest& add(std::uint64_t word) {
    for (int byte = 0; byte < 8; ++byte) {
      value_ = (value_ ^ ((word >> (8 * byte)) & 0xff)) * 0x100000001b3ULL;
    }
    return *this;
  }
  Digest& add(std::span<const std::int64_t> words) {
    add(static_cast<std::uint64_t>(words.size()));
    for (const std::int64_t word : words) add(static_cast<std::uint64_t>(word));
    return *this;
  }
  std::uint64_t value() const {
    std::uint64_t x = value_;
    x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
    return x ^ (x >> 29);
  }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

}  // namespace ringattn
