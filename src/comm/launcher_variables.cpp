#include "comm/launcher_variables.h"

#include <charconv>

#include "comm/rendezvous_address.h"

namespace ringattn::comm {
namespace {

bool parse_number(const std::string& text, std::int64_t& out) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, out);
  return error == std::errc() && stop == end;
}

Status wrong(const char* variable, const std::string& value, const std::string& expected) {
  return invalid(std::string(variable) + ": \"" + value + "\", expected " + expected);
}

bool may_be_a_name(const std::string& text) {
  return text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
         std::string::npos;
}

}  // namespace

std::string Variables::text(const char* name) const {
  const char* value = lookup_(name);
  return value == nullptr ? std::string() : std::string(value);
}

Status Variables::need(const char* name, const char* what, std::string& out) const {
  out = text(name);
  return out.empty() ? invalid(std::string(name) + ": not set, expected " + what) : Status();
}

Status Variables::number(const char* name, const char* what, std::int64_t least, std::int64_t most,
                         std::int64_t& out) const {
  std::string value;
  RINGATTN_TRY(need(name, what, value));
  if (parse_number(value, out) && out >= least && out <= most) return {};
  return wrong(name, value, std::string(what) + ", " + std::to_string(least) + ".." + std::to_string(most));
}

Status parse_place(const char* variable, const std::string& text, Place& out) {
  const char* expected = "host:port or [IPv6 address]:port, with a port in 1..65535";
  const std::size_t colon = text.rfind(':');
  std::int64_t port = 0;
  if (colon == std::string::npos || !parse_number(text.substr(colon + 1), port) || port < 1 || port > 65535) {
    return wrong(variable, text, expected);
  }
  std::string host = text.substr(0, colon);
  const bool brackets = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (brackets) host = host.substr(1, host.size() - 2);
  Address address;
  const bool numeric = parse_address(host, address);
  if (host.empty() || (brackets && !(numeric && address.family == 6)) ||
      (!brackets && !(numeric && address.family == 4) && !may_be_a_name(host))) {
    return wrong(variable, text, expected);
  }
  if (numeric && is_wildcard(address)) return wrong(variable, text, "an address that every rank can dial");
  out.host = host;
  out.port = static_cast<std::uint16_t>(port);
  return {};
}

Status first_node(const char* variable, const std::string& list, std::string& out) {
  out.clear();
  bool inside = false, taken = false;  // between brackets; the first of this pair is complete
  std::size_t before = 0;              // length of the name when the bracket opened
  bool sound = true;
  for (const char c : list) {
    if (!inside && c == ',') break;
    if (c == '[') {
      sound = sound && !inside;
      inside = true;
      taken = false;
      before = out.size();
    } else if (c == ']') {
      sound = sound && inside && out.size() > before;
      inside = false;
    } else if (inside && (c == ',' || c == '-')) {
      taken = true;
    } else if (!taken || !inside) {
      sound = sound && (!inside || (c >= '0' && c <= '9'));
      out += c;
    }
  }
  if (sound && !inside && !out.empty() && may_be_a_name(out)) return {};
  return wrong(variable, list, "a list of nodes such as \"n[1-3,7],m2\"");
}

}  // namespace ringattn::comm
