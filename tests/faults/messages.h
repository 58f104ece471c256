// What a driver and its rank processes tell each other: a verb and named values, one packet each.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace ringattn::faults {

// CLOCK_MONOTONIC, so that times taken in different processes of one machine can be compared.
using Clock = std::chrono::steady_clock;
std::int64_t now_ns();

struct Message {
  std::string verb;
  std::map<std::string, std::string> values;

  Message() = default;
  Message(std::string given_verb) : verb(std::move(given_verb)) {}
  Message(const char* given_verb) : verb(given_verb) {}

  Message& with(const std::string& name, std::string value) {
    values[name] = std::move(value);
    return *this;
  }
  Message& with(const std::string& name, std::int64_t value) { return with(name, std::to_string(value)); }
  bool has(const std::string& name) const { return values.count(name) != 0; }
  const std::string& text(const std::string& name) const;  // "" where it was not given
  std::int64_t number(const std::string& name, std::int64_t otherwise = 0) const;
};

// Values are single lines, as all messages of the library are.
std::string encode(const Message& message);
Message decode(std::string_view packet);

enum class Heard { message, gone, late };

// One end of a socket pair that keeps packets apart; owns it.
class Channel {
 public:
  explicit Channel(int fd = -1) : fd_(fd) {}
  ~Channel() { close(); }
  Channel(Channel&& other) noexcept;
  Channel& operator=(Channel&& other) noexcept;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  bool send(const Message& message) const;
  Heard hear(Message& out, Clock::time_point deadline) const;
  void close();

 private:
  int fd_;
};

}  // namespace ringattn::faults
