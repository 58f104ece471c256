#include "text.h"

#include <fmt/format.h>

#include <cmath>

namespace ringattn::tool {
namespace {

// Three digits and a prefix of 1000.
std::string scaled(double value, std::string_view unit) {
  static constexpr std::string_view prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  std::size_t prefix = 0;
  while (std::abs(value) >= 999.5 && prefix + 1 < std::size(prefixes)) {
    value /= 1000;
    ++prefix;
  }
  const bool whole = prefix == 0 && value == std::floor(value);
  const int decimals = whole ? 0 : std::abs(value) < 9.995 ? 2 : std::abs(value) < 99.95 ? 1 : 0;
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (!prefixes[prefix].empty() || !unit.empty()) text += fmt::format(" {}{}", prefixes[prefix], unit);
  return text;
}

}  // namespace

std::string grouped(std::int64_t value) {
  std::string digits = fmt::format("{}", value);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return digits;
}

std::string bytes_text(double bytes) { return scaled(bytes, "B"); }

std::string count_text(double count) { return scaled(count, ""); }

std::string one_line(std::string_view message) {
  std::string text;
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte < 0x20 || byte == 0x7f ? ' ' : c;
  }
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

}  // namespace ringattn::tool
