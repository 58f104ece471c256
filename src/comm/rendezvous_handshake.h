// How a rank and the host of a meeting convince each other that both know the secret, before either believes
// anything. A stranger hears nothing from the host, as it answers only what carries a right MAC.
//
//     rank -> host   hello      magic, version, rank, world, patience, nonce, MAC(secret, all of it)
//     host -> rank   challenge  nonce, MAC(secret, hello, nonce)
//     rank -> host   proof      MAC(session key), which takes the host's fresh nonce: a replay ends here
//
// Both then share a session key for the frames that follow (rendezvous_channel.h).
#pragma once
#include <array>
#include <cstdint>

#include "comm/rendezvous_crypto.h"

namespace ringattn::comm {

inline constexpr std::uint16_t kMeetingVersion = 1;
inline constexpr std::uint32_t kPatient = 0xffffffff;  // no limit
inline constexpr std::size_t kMagicBytes = 8;

struct Hello {
  std::uint16_t version = kMeetingVersion;
  std::int32_t rank = 0;
  std::int32_t world = 0;
  std::uint32_t patience_ms = kPatient;  // so long this rank will wait; the host tells it why when it is over
  Nonce nonce{};
};

using HelloBytes = std::array<std::uint8_t, 88>;
using ChallengeBytes = std::array<std::uint8_t, 64>;
using ProofBytes = Mac;

HelloBytes write_hello(const Key& secret, const Hello& hello);
bool begins_like_hello(Bytes bytes);  // any number of first bytes
bool read_hello(const Key& secret, const HelloBytes& bytes, Hello& out);

ChallengeBytes write_challenge(const Key& secret, const HelloBytes& hello, const Nonce& nonce);
bool read_challenge(const Key& secret, const HelloBytes& hello, const ChallengeBytes& bytes, Nonce& out);

Key session_key(const Key& secret, const HelloBytes& hello, const Nonce& host_nonce);
ProofBytes write_proof(const Key& session);

}  // namespace ringattn::comm
