#include "comm/rendezvous_id.h"

#include <sodium.h>

#include <algorithm>
#include <cstring>

namespace ringattn::comm {
namespace {

constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kPortAt = 2, kSecretAt = 4, kAddressesAt = 36, kAddressBytes = 17, kChecksumAt = 252;
constexpr int kBase64 = sodium_base64_VARIANT_URLSAFE_NO_PADDING;
static_assert(kAddressesAt + UniqueId::kMostAddresses * kAddressBytes <= kChecksumAt);

// Against truncation and typing errors, not against people.
std::array<std::uint8_t, 4> checksum(Bytes id) {
  const Mac digest = sha256("ringattn unique id", {id.first(kChecksumAt)});
  return {digest[0], digest[1], digest[2], digest[3]};
}

}  // namespace

UniqueId::~UniqueId() { sodium_memzero(bytes_.data(), bytes_.size()); }

UniqueId UniqueId::make(const Key& secret, std::uint16_t port, const std::vector<Address>& addresses) {
  UniqueId id;
  const std::size_t count = std::min(addresses.size(), kMostAddresses);
  id.bytes_[0] = kVersion;
  id.bytes_[1] = static_cast<std::uint8_t>(count);
  id.bytes_[kPortAt] = static_cast<std::uint8_t>(port);
  id.bytes_[kPortAt + 1] = static_cast<std::uint8_t>(port >> 8);
  std::memcpy(&id.bytes_[kSecretAt], secret.data(), kKeyBytes);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint8_t* at = &id.bytes_[kAddressesAt + i * kAddressBytes];
    at[0] = addresses[i].family;
    std::memcpy(at + 1, addresses[i].bytes.data(), 16);
  }
  const auto sum = checksum(id.bytes_);
  std::copy(sum.begin(), sum.end(), id.bytes_.begin() + kChecksumAt);
  return id;
}

Status UniqueId::from_bytes(Bytes bytes, UniqueId& out) {
  if (bytes.size() != kBytes) {
    return invalid("unique id: " + std::to_string(bytes.size()) + " bytes, expected 256");
  }
  if (bytes[0] != kVersion) {
    return invalid("unique id: version " + std::to_string(bytes[0]) +
                   ", expected 1: one made by this version of the library");
  }
  const auto sum = checksum(bytes);
  const std::size_t count = bytes[1];
  bool sound = std::equal(sum.begin(), sum.end(), bytes.begin() + kChecksumAt) && count >= 1 &&
               count <= kMostAddresses && get<std::uint16_t>(&bytes[kPortAt]) != 0;
  for (std::size_t i = 0; sound && i < count; ++i) {
    const std::uint8_t family = bytes[kAddressesAt + i * kAddressBytes];
    sound = family == 4 || family == 6;
  }
  if (!sound)
    return invalid("unique id: damaged, expected the 256 bytes that its maker was given, unchanged");
  std::copy(bytes.begin(), bytes.end(), out.bytes_.begin());
  return {};
}

Status UniqueId::from_text(const std::string& text, UniqueId& out) {
  std::array<std::uint8_t, kBytes> bytes{};
  std::size_t size = 0;
  const bool read = sodium_base642bin(bytes.data(), bytes.size(), text.data(), text.size(), " \t\r\n", &size,
                                      nullptr, kBase64) == 0;
  Status status = read && size == kBytes
                      ? from_bytes(bytes, out)
                      : invalid("unique id: text of " + std::to_string(text.size()) +
                                " characters that is not base64url of 256 bytes, expected all 342 of them");
  sodium_memzero(bytes.data(), bytes.size());
  return status;
}

std::string UniqueId::to_text() const {
  std::string text(sodium_base64_ENCODED_LEN(kBytes, kBase64), '\0');
  sodium_bin2base64(text.data(), text.size(), bytes_.data(), bytes_.size(), kBase64);
  text.resize(std::strlen(text.c_str()));
  return text;
}

Key UniqueId::secret() const { return Key::from(Bytes(bytes_).subspan(kSecretAt, kKeyBytes)); }

std::uint16_t UniqueId::port() const { return get<std::uint16_t>(&bytes_[kPortAt]); }

std::vector<Address> UniqueId::addresses() const {
  std::vector<Address> addresses(std::min<std::size_t>(bytes_[1], kMostAddresses));
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const std::uint8_t* at = &bytes_[kAddressesAt + i * kAddressBytes];
    addresses[i].family = at[0];
    std::memcpy(addresses[i].bytes.data(), at + 1, 16);
  }
  return addresses;
}

}  // namespace ringattn::comm
