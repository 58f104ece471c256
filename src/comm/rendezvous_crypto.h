// The keyed hash behind every word of a meeting: HMAC-SHA256 of libsodium. A key is wiped when it goes.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace ringattn::comm {

inline constexpr std::size_t kKeyBytes = 32;
inline constexpr std::size_t kMacBytes = 32;

using Bytes = std::span<const std::uint8_t>;
using Mac = std::array<std::uint8_t, kMacBytes>;
using Nonce = std::array<std::uint8_t, 32>;

class Key {
 public:
  Key() = default;  // all zero
  explicit Key(const Mac& bytes) : bytes_(bytes) {}
  Key(const Key&) = default;
  Key& operator=(const Key&) = default;
  ~Key();

  static Key random();
  static Key from(Bytes bytes);  // kKeyBytes of them
  const std::uint8_t* data() const { return bytes_.data(); }
  Bytes bytes() const { return bytes_; }

 private:
  Mac bytes_{};
};

// Must have succeeded before anything else here; any thread, any number of times.
Status start_crypto();

void fill_random(std::span<std::uint8_t> out);
// HMAC-SHA256 over the label, its closing 0, and the parts one after the other: parts have fixed sizes or carry
// their own.
Mac hmac(const Key& key, std::string_view label, std::initializer_list<Bytes> parts);
Mac sha256(std::string_view label, std::initializer_list<Bytes> parts);
bool equal_in_constant_time(Bytes a, Bytes b);

// Fixed-width numbers, lowest byte first.
template <typename T>
void put(std::vector<std::uint8_t>& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<std::uint8_t>(static_cast<std::uint64_t>(value) >> (8 * i)));
  }
}
template <typename T>
T get(const std::uint8_t* in) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= static_cast<std::uint64_t>(in[i]) << (8 * i);
  return static_cast<T>(value);
}

}  // namespace ringattn::comm
