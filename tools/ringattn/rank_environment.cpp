#include "rank_environment.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>

#include "error.h"
#include "run_process.h"

namespace ringattn::tool {
namespace {

// Of all interfaces; 0 where it is taken.
std::uint16_t bind_port(std::uint16_t port) {
  const Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.is_open()) throw RunFailed(fmt::format("cannot make a socket: {}", std::strerror(errno)));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener.number(), generic, size) != 0 || getsockname(listener.number(), generic, &size) != 0)
    return 0;
  return ntohs(address.sin_port);
}

std::string random_secret() {
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    throw RunFailed(fmt::format("getrandom: {}", std::strerror(errno)));
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

// Rank 0 binds it a moment later; below the ports of outgoing connections few would take it in between.
std::uint16_t free_port() {
  std::random_device random;
  for (int attempt = 0; attempt < 64; ++attempt) {
    const std::uint16_t port = bind_port(static_cast<std::uint16_t>(16384 + (random() & 0x3fff)));
    if (port != 0) return port;
  }
  const std::uint16_t port = bind_port(0);
  if (port == 0) throw RunFailed("no free port");
  return port;
}

std::vector<std::string> rank_environment(int ranks, const std::string& rendezvous) {
  const std::vector<std::string> set = {
      fmt::format("RINGATTN_WORLD_SIZE={}", ranks),
      "RINGATTN_RENDEZVOUS=" + (rendezvous.empty() ? fmt::format("127.0.0.1:{}", free_port()) : rendezvous),
      "RINGATTN_SECRET=" + random_secret()};
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view name(*variable, std::strcspn(*variable, "="));
    const auto has_name = [&](const std::string& text) { return text.substr(0, text.find('=')) == name; };
    if (name == "RINGATTN_RANK" || name == "RINGATTN_LOCAL_RANK") continue;
    if (std::none_of(set.begin(), set.end(), has_name)) all.emplace_back(*variable);
  }
  all.insert(all.end(), set.begin(), set.end());
  return all;
}

}  // namespace ringattn::tool
