#include "comm/rendezvous_handshake.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace ringattn::comm {
namespace {

constexpr std::array<std::uint8_t, kMagicBytes> kMagic = {'r', 'i', 'n', 'g', 'a', 't', 't', 0x9d};
constexpr std::size_t kHelloBody = HelloBytes().size() - kMacBytes;
constexpr const char* kHelloLabel = "ringattn meeting 1 hello";
constexpr const char* kChallengeLabel = "ringattn meeting 1 challenge";
constexpr const char* kSessionLabel = "ringattn meeting 1 session";
constexpr const char* kProofLabel = "ringattn meeting 1 proof";

}  // namespace

HelloBytes write_hello(const Key& secret, const Hello& hello) {
  std::vector<std::uint8_t> body(kMagic.begin(), kMagic.end());
  put(body, hello.version);
  put(body, std::uint16_t{0});
  put(body, hello.rank);
  put(body, hello.world);
  put(body, hello.patience_ms);
  body.insert(body.end(), hello.nonce.begin(), hello.nonce.end());
  const Mac mac = hmac(secret, kHelloLabel, {body});
  HelloBytes bytes;
  std::copy(body.begin(), body.end(), bytes.begin());
  std::copy(mac.begin(), mac.end(), bytes.begin() + kHelloBody);
  return bytes;
}

bool begins_like_hello(Bytes bytes) {
  return std::equal(bytes.begin(),
                    bytes.begin() + static_cast<std::ptrdiff_t>(std::min(bytes.size(), kMagicBytes)),
                    kMagic.begin());
}

bool read_hello(const Key& secret, const HelloBytes& bytes, Hello& out) {
  const Bytes all(bytes);
  if (!begins_like_hello(all)) return false;
  const Mac mac = hmac(secret, kHelloLabel, {all.first(kHelloBody)});
  if (!equal_in_constant_time(mac, all.subspan(kHelloBody))) return false;
  out.version = get<std::uint16_t>(&bytes[8]);
  out.rank = get<std::int32_t>(&bytes[12]);
  out.world = get<std::int32_t>(&bytes[16]);
  out.patience_ms = get<std::uint32_t>(&bytes[20]);
  std::memcpy(out.nonce.data(), &bytes[24], out.nonce.size());
  return true;
}

ChallengeBytes write_challenge(const Key& secret, const HelloBytes& hello, const Nonce& nonce) {
  const Mac mac = hmac(secret, kChallengeLabel, {hello, nonce});
  ChallengeBytes bytes;
  std::copy(nonce.begin(), nonce.end(), bytes.begin());
  std::copy(mac.begin(), mac.end(), bytes.begin() + static_cast<std::ptrdiff_t>(nonce.size()));
  return bytes;
}

bool read_challenge(const Key& secret, const HelloBytes& hello, const ChallengeBytes& bytes, Nonce& out) {
  const Bytes all(bytes);
  std::copy_n(bytes.begin(), out.size(), out.begin());
  const Mac mac = hmac(secret, kChallengeLabel, {hello, out});
  return equal_in_constant_time(mac, all.subspan(out.size()));
}

Key session_key(const Key& secret, const HelloBytes& hello, const Nonce& host_nonce) {
  return Key(hmac(secret, kSessionLabel, {hello, host_nonce}));
}

ProofBytes write_proof(const Key& session) { return hmac(session, kProofLabel, {}); }

}  // namespace ringattn::comm
