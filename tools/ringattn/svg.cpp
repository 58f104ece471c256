#include "svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>

namespace ringattn::tool {
namespace {

// At most two decimals and no trailing zeros: a third of the bytes of a picture are numbers.
std::string number(double value) {
  std::string text = fmt::format("{:.2f}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

int channel(double value) { return static_cast<int>(std::lround(std::clamp(value, 0.0, 1.0) * 255)); }

// Hue in degrees, saturation and lightness in 0..1.
std::string hsl(double hue, double saturation, double lightness) {
  const double chroma = (1 - std::abs(2 * lightness - 1)) * saturation;
  std::array<int, 3> rgb{};
  for (int i = 0; i < 3; ++i) {
    const double k = std::fmod((i == 0 ? 0 : i == 1 ? 8 : 4) + hue / 30, 12);
    rgb[static_cast<std::size_t>(i)] =
        channel(lightness - chroma / 2 * std::max(-1.0, std::min({k - 3, 9 - k, 1.0})));
  }
  return fmt::format("#{:02x}{:02x}{:02x}", rgb[0], rgb[1], rgb[2]);
}

std::string_view name_of(Anchor anchor) {
  switch (anchor) {
    case Anchor::middle:
      return "middle";
    case Anchor::end:
      return "end";
    default:
      return "start";
  }
}

}  // namespace

std::string escape_xml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&apos;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20 || c == '\t' || c == '\n') out += c;
    }
  }
  return out;
}

std::string block_colour(int block, int blocks) {
  static constexpr std::array<const char*, 8> few = {"#4c78a8", "#f58518", "#54a24b", "#b279a2",
                                                     "#e45756", "#72b7b2", "#9d755d", "#eeca3b"};
  if (blocks <= static_cast<int>(few.size())) return few[static_cast<std::size_t>(block) % few.size()];
  // Many ranks: round the colour wheel, as the block goes round the ring; neighbours differ in lightness too.
  return hsl(360.0 * block / blocks, 0.55, block % 2 == 0 ? 0.46 : 0.62);
}

std::string_view text_colour_on(const std::string& colour) {
  const auto value = static_cast<std::uint32_t>(std::stoul(colour.substr(1), nullptr, 16));
  const double luminance =
      0.299 * ((value >> 16) & 255) + 0.587 * ((value >> 8) & 255) + 0.114 * (value & 255);
  return luminance > 150 ? "#1b1f24" : "#ffffff";
}

double text_width(std::string_view text, double size) {
  const auto characters = std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
  return 0.54 * size * static_cast<double>(characters);
}

Svg::Svg(double width, double height, std::string_view title) {
  fmt::format_to(
      std::back_inserter(out_),
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"Inter, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif\" role=\"img\">\n"
      "<title>{2}</title>\n"
      "<defs><pattern id=\"hatch\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
      "patternTransform=\"rotate(45)\"><rect width=\"5\" height=\"5\" fill=\"#fbe3e4\"/>"
      "<rect width=\"2\" height=\"5\" fill=\"#c9394b\"/></pattern></defs>\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
      number(width), number(height), escape_xml(title));
}

void Svg::rect(double x, double y, double width, double height, const RectStyle& style) {
  auto out = std::back_inserter(out_);
  fmt::format_to(out, "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"", number(x), number(y),
                 number(width), number(height), style.fill);
  if (!style.stroke.empty()) fmt::format_to(out, " stroke=\"{}\"", style.stroke);
  if (style.radius > 0) fmt::format_to(out, " rx=\"{}\"", number(style.radius));
  if (style.opacity < 1) fmt::format_to(out, " opacity=\"{}\"", number(style.opacity));
  if (style.tooltip.empty()) {
    out_ += "/>\n";
  } else {
    fmt::format_to(out, "><title>{}</title></rect>\n", escape_xml(style.tooltip));
  }
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view colour, double width) {
  fmt::format_to(std::back_inserter(out_),
                 "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{}\" stroke-width=\"{}\"/>\n",
                 number(x1), number(y1), number(x2), number(y2), colour, number(width));
}

void Svg::text(double x, double y, std::string_view text, const TextStyle& style) {
  auto out = std::back_inserter(out_);
  fmt::format_to(out, "<text x=\"{}\" y=\"{}\" font-size=\"{}\" fill=\"{}\"", number(x), number(y),
                 number(style.size), style.colour);
  if (style.anchor != Anchor::start) fmt::format_to(out, " text-anchor=\"{}\"", name_of(style.anchor));
  if (style.bold) out_ += " font-weight=\"600\"";
  fmt::format_to(out, ">{}</text>\n", escape_xml(text));
}

void Svg::arrow(double x, double y, double length, std::string_view colour) {
  const double head = std::copysign(std::min(5.0, std::abs(length)), length);
  const double tip = x + length;
  if (std::abs(length) > 5) line(x, y, tip - head, y, colour, 1.5);
  fmt::format_to(std::back_inserter(out_), "<path d=\"M{} {}L{} {}L{} {}Z\" fill=\"{}\"/>\n", number(tip),
                 number(y), number(tip - head), number(y - 3.5), number(tip - head), number(y + 3.5), colour);
}

std::string Svg::finish() {
  out_ += "</svg>\n";
  return std::move(out_);
}

}  // namespace ringattn::tool
