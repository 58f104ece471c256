#include "transports/tcp/handshake.h"

#include <sodium.h>

#include <cstring>

namespace ringattn::tcp {
namespace {

// Without a secret the handshake still tells versions, rings and ranks apart; it keeps nobody out.
constexpr char kNoSecret[] = "ringattn tcp without a secret";

static_assert(sizeof Hello::mac == crypto_auth_hmacsha256_BYTES);

class Mac {
 public:
  // The label keeps one side's message from passing as the other's.
  Mac(const Ring& ring, const char* label) {
    crypto_auth_hmacsha256_init(&state_, ring.key.data(), ring.key.size());
    add(label, std::strlen(label));
  }
  void add(const void* data, std::size_t bytes) {
    crypto_auth_hmacsha256_update(&state_, static_cast<const unsigned char*>(data), bytes);
  }
  void write(unsigned char* out) { crypto_auth_hmacsha256_final(&state_, out); }

 private:
  crypto_auth_hmacsha256_state state_;
};

void write_mac(const Ring& ring, const Challenge& challenge, const Hello& hello, unsigned char* out) {
  Mac mac(ring, "ringattn tcp 1 hello");
  mac.add(&challenge, sizeof challenge);
  mac.add(&hello, offsetof(Hello, mac));
  mac.write(out);
}

void write_mac(const Ring& ring, const Challenge& challenge, const Hello& hello, const Welcome& welcome,
               unsigned char* out) {
  Mac mac(ring, "ringattn tcp 1 welcome");
  mac.add(&challenge, sizeof challenge);
  mac.add(&hello, sizeof hello);
  mac.add(&welcome, offsetof(Welcome, mac));
  mac.write(out);
}

}  // namespace

Ring::Ring(const ringattn_link_desc_v1& desc) : world_size(desc.world_size) {
  group[0] = desc.group[0];
  group[1] = desc.group[1];
  const auto* secret = static_cast<const unsigned char*>(desc.secret);
  if (secret != nullptr && desc.secret_bytes > 0) {
    key.assign(secret, secret + desc.secret_bytes);
  } else {
    key.assign(kNoSecret, kNoSecret + sizeof kNoSecret - 1);
  }
}

Ring::~Ring() { sodium_memzero(key.data(), key.size()); }

Challenge make_challenge() {
  Challenge challenge;
  randombytes_buf(challenge.nonce, sizeof challenge.nonce);
  return challenge;
}

Hello make_hello(const Ring& ring, const Challenge& challenge, std::int32_t from, std::int32_t to,
                 Channel channel) {
  Hello hello;
  hello.channel = static_cast<std::uint32_t>(channel);
  std::memcpy(hello.group, ring.group, sizeof hello.group);
  hello.world_size = ring.world_size;
  hello.from = from;
  hello.to = to;
  randombytes_buf(hello.nonce, sizeof hello.nonce);
  write_mac(ring, challenge, hello, hello.mac);
  return hello;
}

Welcome make_welcome(const Ring& ring, const Challenge& challenge, const Hello& hello, Verdict verdict) {
  Welcome welcome;
  welcome.verdict = verdict;
  write_mac(ring, challenge, hello, welcome, welcome.mac);
  return welcome;
}

bool is_genuine(const Ring& ring, const Challenge& challenge, const Hello& hello) {
  if (hello.magic != kMagic || hello.version != kProtocol) return false;
  unsigned char mac[sizeof hello.mac];
  write_mac(ring, challenge, hello, mac);
  return sodium_memcmp(mac, hello.mac, sizeof mac) == 0;
}

bool is_genuine(const Ring& ring, const Challenge& challenge, const Hello& hello, const Welcome& welcome) {
  if (welcome.magic != kMagic || welcome.version != kProtocol) return false;
  unsigned char mac[sizeof welcome.mac];
  write_mac(ring, challenge, hello, welcome, mac);
  return sodium_memcmp(mac, welcome.mac, sizeof mac) == 0;
}

}  // namespace ringattn::tcp
