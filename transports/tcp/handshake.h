// How two ends of a new connection prove that they know the ring's secret, before anything else is said.
//
// The listener challenges, the dialer answers with who it is, the listener says whether it may stay. All
// messages have a fixed size, so nobody can make the other side read or allocate more.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ringattn/transport.h"
#include "transports/tcp/frames.h"

namespace ringattn::tcp {

// What the ranks of one ring have in common.
struct Ring {
  std::uint64_t group[2] = {};
  std::int32_t world_size = 0;
  std::vector<unsigned char> key;

  explicit Ring(const ringattn_link_desc_v1& desc);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
};

inline constexpr std::uint64_t kMagic = 0x7063742d67696e72;  // "ring-tcp"
inline constexpr std::uint32_t kProtocol = 1;

struct Challenge {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kProtocol;
  std::uint32_t zero = 0;
  unsigned char nonce[32] = {};
};

struct Hello {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kProtocol;
  std::uint32_t channel = 0;
  std::uint64_t group[2] = {};
  std::int32_t world_size = 0;
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::uint32_t zero = 0;
  unsigned char nonce[32] = {};
  unsigned char mac[32] = {};
};

enum class Verdict : std::uint32_t {
  welcome = 0,
  other_ring = 1,
  already_here = 2,
};

struct Welcome {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kProtocol;
  Verdict verdict = Verdict::welcome;
  unsigned char mac[32] = {};
};

static_assert(sizeof(Challenge) == 48 && sizeof(Hello) == 112 && sizeof(Welcome) == 48);

Challenge make_challenge();
Hello make_hello(const Ring& ring, const Challenge& challenge, std::int32_t from, std::int32_t to,
                 Channel channel);
Welcome make_welcome(const Ring& ring, const Challenge& challenge, const Hello& hello, Verdict verdict);

// Whether the message is of this protocol and was made by somebody who knows the ring's key.
bool is_genuine(const Ring& ring, const Challenge& challenge, const Hello& hello);
bool is_genuine(const Ring& ring, const Challenge& challenge, const Hello& hello, const Welcome& welcome);

}  // namespace ringattn::tcp
