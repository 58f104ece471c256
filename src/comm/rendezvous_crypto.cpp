#include "comm/rendezvous_crypto.h"

#include <sodium.h>

#include <cstring>

namespace ringattn::comm {

static_assert(kMacBytes == crypto_auth_hmacsha256_BYTES && kMacBytes == crypto_hash_sha256_BYTES);

Key::~Key() { sodium_memzero(bytes_.data(), bytes_.size()); }

Key Key::random() {
  Key key;
  fill_random(key.bytes_);
  return key;
}

Key Key::from(Bytes bytes) {
  Key key;
  std::memcpy(key.bytes_.data(), bytes.data(), kKeyBytes);
  return key;
}

Status start_crypto() {
  if (sodium_init() >= 0) return {};
  return {RINGATTN_ERR_TRANSPORT, "libsodium: sodium_init failed, expected a source of random numbers"};
}

void fill_random(std::span<std::uint8_t> out) { randombytes_buf(out.data(), out.size()); }

Mac hmac(const Key& key, std::string_view label, std::initializer_list<Bytes> parts) {
  crypto_auth_hmacsha256_state state;
  const unsigned char end = 0;
  Mac mac;
  crypto_auth_hmacsha256_init(&state, key.data(), kKeyBytes);
  crypto_auth_hmacsha256_update(&state, reinterpret_cast<const unsigned char*>(label.data()), label.size());
  crypto_auth_hmacsha256_update(&state, &end, 1);
  for (const Bytes part : parts) crypto_auth_hmacsha256_update(&state, part.data(), part.size());
  crypto_auth_hmacsha256_final(&state, mac.data());
  sodium_memzero(&state, sizeof state);
  return mac;
}

Mac sha256(std::string_view label, std::initializer_list<Bytes> parts) {
  crypto_hash_sha256_state state;
  const unsigned char end = 0;
  Mac digest;
  crypto_hash_sha256_init(&state);
  crypto_hash_sha256_update(&state, reinterpret_cast<const unsigned char*>(label.data()), label.size());
  crypto_hash_sha256_update(&state, &end, 1);
  for (const Bytes part : parts) crypto_hash_sha256_update(&state, part.data(), part.size());
  crypto_hash_sha256_final(&state, digest.data());
  sodium_memzero(&state, sizeof state);
  return digest;
}

bool equal_in_constant_time(Bytes a, Bytes b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace ringattn::comm
