// The unique id: what ranks need to find one another and to trust one another. One rank makes it (it hosts the
// meeting), the caller carries it to the others.
//
//     0 version   1 count of addresses   2..3 port   4..35 secret   36..239 addresses of 17 bytes (family,
//     16 bytes)   240..251 zero   252..255 checksum over all before it
//
// Whoever holds it can join the ring: it belongs into files of mode 600, environments and pipes, not into
// argument lists or logs. Nothing of the library prints it.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/rendezvous_address.h"
#include "comm/rendezvous_crypto.h"

namespace ringattn::comm {

class UniqueId {
 public:
  static constexpr std::size_t kBytes = 256;
  static constexpr std::size_t kMostAddresses = 12;

  // Addresses beyond the most are left out.
  static UniqueId make(const Key& secret, std::uint16_t port, const std::vector<Address>& addresses);
  static Status from_bytes(Bytes bytes, UniqueId& out);
  // base64url, as to_text writes it; white space around it is allowed.
  static Status from_text(const std::string& text, UniqueId& out);

  UniqueId() = default;  // empty: from_bytes would refuse it
  UniqueId(const UniqueId&) = default;
  UniqueId& operator=(const UniqueId&) = default;
  ~UniqueId();

  const std::array<std::uint8_t, kBytes>& bytes() const { return bytes_; }
  std::string to_text() const;

  Key secret() const;
  std::uint16_t port() const;
  std::vector<Address> addresses() const;

 private:
  std::array<std::uint8_t, kBytes> bytes_{};
};

}  // namespace ringattn::comm
