#include "tests/faults/messages.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

namespace ringattn::faults {
namespace {

constexpr std::size_t kMostBytes = 64 << 10;

}  // namespace

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

const std::string& Message::text(const std::string& name) const {
  static const std::string nothing;
  const auto found = values.find(name);
  return found == values.end() ? nothing : found->second;
}

std::int64_t Message::number(const std::string& name, std::int64_t otherwise) const {
  const std::string& value = text(name);
  return value.empty() ? otherwise : std::strtoll(value.c_str(), nullptr, 10);
}

std::string encode(const Message& message) {
  std::string packet = message.verb;
  for (const auto& [name, value] : message.values) {
    packet += '\n' + name + '=' + value;
  }
  return packet;
}

Message decode(std::string_view packet) {
  Message message;
  for (bool first = true; !packet.empty() || first; first = false) {
    const std::size_t end = std::min(packet.find('\n'), packet.size());
    const std::string_view line = packet.substr(0, end);
    packet.remove_prefix(std::min(end + 1, packet.size()));
    if (first) {
      message.verb = line;
      continue;
    }
    const std::size_t equals = std::min(line.find('='), line.size());
    message.values[std::string(line.substr(0, equals))] = line.substr(std::min(equals + 1, line.size()));
  }
  return message;
}

Channel::Channel(Channel&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Channel& Channel::operator=(Channel&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Channel::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

bool Channel::send(const Message& message) const {
  const std::string packet = encode(message);
  return ::send(fd_, packet.data(), packet.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(packet.size());
}

Heard Channel::hear(Message& out, Clock::time_point deadline) const {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wanted{fd_, POLLIN, 0};
    const int ready = ::poll(&wanted, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return Heard::late;
    std::string packet(kMostBytes, '\0');
    const ssize_t count = ::recv(fd_, packet.data(), packet.size(), 0);
    if (count <= 0) return Heard::gone;
    packet.resize(static_cast<std::size_t>(count));
    out = decode(packet);
    return Heard::message;
  }
}

}  // namespace ringattn::faults
