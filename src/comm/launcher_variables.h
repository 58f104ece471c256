// Reading launchers' variables: whole numbers, places, Slurm's lists of nodes. Each failure names the variable.
#pragma once
#include <cstdint>
#include <string>

#include "base/status.h"
#include "comm/launcher.h"

namespace ringattn::comm {

class Variables {
 public:
  explicit Variables(const Lookup& lookup) : lookup_(lookup) {}

  std::string text(const char* name) const;  // "" = not set
  bool has(const char* name) const { return !text(name).empty(); }
  // `what` says what was expected where it is not set: "the number of ranks".
  Status need(const char* name, const char* what, std::string& out) const;
  Status number(const char* name, const char* what, std::int64_t least, std::int64_t most,
                std::int64_t& out) const;

 private:
  const Lookup& lookup_;
};

struct Place {
  std::string host;
  std::uint16_t port = 0;
};
// "host:port", "192.0.2.1:80", "[2001:db8::1]:80"
Status parse_place(const char* variable, const std::string& text, Place& out);

// The first name of Slurm's form of a list: "n[1-3,7],m2" -> "n1", "rack[01-03]n[4,6]" -> "rack01n4".
Status first_node(const char* variable, const std::string& list, std::string& out);

}  // namespace ringattn::comm
