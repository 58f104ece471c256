// Just enough SVG for our pictures: shapes and text appended to one string, numbers short, text escaped.
#pragma once
#include <string>
#include <string_view>

namespace ringattn::tool {

// Text or attribute value with the five characters of XML escaped and bytes that XML 1.0 forbids left out.
std::string escape_xml(std::string_view text);

// The colour that stands for the K/V block of one rank in every picture of a ring of `blocks` ranks: "#rrggbb".
std::string block_colour(int block, int blocks);
// Black or white, whichever reads better on `colour`.
std::string_view text_colour_on(const std::string& colour);

enum class Anchor { start, middle, end };

struct TextStyle {
  double size = 12;
  std::string_view colour = "#24292f";
  Anchor anchor = Anchor::start;
  bool bold = false;
};

struct RectStyle {
  std::string_view fill = "none";
  std::string_view stroke = {};  // empty = no outline
  double radius = 0;
  double opacity = 1;
  std::string_view tooltip = {};
};

class Svg {
 public:
  Svg(double width, double height, std::string_view title);

  void rect(double x, double y, double width, double height, const RectStyle& style);
  void line(double x1, double y1, double x2, double y2, std::string_view colour, double width = 1);
  void text(double x, double y, std::string_view text, const TextStyle& style = {});
  // An arrow whose point is at (x + length, y); a negative length points to the left.
  void arrow(double x, double y, double length, std::string_view colour);

  std::string finish();

 private:
  std::string out_;
};

// Rough width of a text in the font of our pictures, for deciding whether it fits.
double text_width(std::string_view text, double size);

}  // namespace ringattn::tool
