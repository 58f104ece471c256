#include "timeline_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "svg.h"

namespace ringattn::tool {
namespace {

constexpr double kWidth = 1280;
constexpr double kLeft = 132;  // lane names
constexpr double kRight = 24;
constexpr double kPlot = kWidth - kLeft - kRight;
constexpr double kHeader = 96;  // title, subtitle, legend
constexpr double kRankTitle = 24;
constexpr double kRankGap = 14;
constexpr double kAxis = 30;
// Neighbours closer than this are drawn as one shape: a picture cannot show more, and a trace has any number of tiles.
constexpr double kMergePixels = 0.6;

constexpr std::string_view kGrid = "#e6e8eb";
constexpr std::string_view kQuiet = "#6a737d";
constexpr std::string_view kSend = "#8250df";
constexpr std::string_view kAgree = "#57606a";

struct Style {
  double height;
  double gap;
};

Style style_of(int kind) {
  if (kind == RINGATTN_EVENT_TILE) return {20, 3};
  if (kind == RINGATTN_EVENT_RECEIVE || kind == RINGATTN_EVENT_SEND) return {13, 2};
  return {9, 2};
}

// A step of the axis: 1, 2 or 5 times a power of ten, so that about ten fit.
double axis_step(double milliseconds) {
  const double raw = milliseconds / 10;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10 * power;
}

std::string milliseconds(double ns) {
  const double ms = ns / 1e6;
  return fmt::format("{:.{}f} ms", ms, ms < 10 ? 2 : ms < 100 ? 1 : 0);
}

// The lanes of a trace, with the agreement drawn over the waiting: it is a part of it.
std::vector<Lane> rows_of(const RankTrace& trace) {
  std::vector<Lane> lanes = lanes_of(trace);
  const auto kind = [](int wanted) { return [wanted](const Lane& lane) { return lane.kind == wanted; }; };
  const auto wait = std::find_if(lanes.begin(), lanes.end(), kind(RINGATTN_EVENT_WAIT));
  const auto agree = std::find_if(lanes.begin(), lanes.end(), kind(RINGATTN_EVENT_AGREE));
  if (agree == lanes.end()) return lanes;
  if (wait == lanes.end()) {
    agree->kind = RINGATTN_EVENT_WAIT;
  } else {
    wait->events.insert(wait->events.end(), agree->events.begin(), agree->events.end());
    lanes.erase(agree);
  }
  return lanes;
}

// One drawn shape: an event, or several short ones that nearly touch.
struct Segment {
  ringattn_event event;
  int count = 1;
};

class Picture {
 public:
  Picture(const std::vector<RankTrace>& traces, const TimelineText& text);
  std::string draw();

 private:
  double x(std::uint64_t ns) const {
    return kLeft + kPlot * static_cast<double>(ns - span_.begin_ns) / static_cast<double>(length_ns_);
  }
  std::vector<Segment> merge(const Lane& lane) const;
  void header(Svg& svg) const;
  void legend(Svg& svg) const;
  double legend_blocks(Svg& svg, double at, double y) const;
  void axis(Svg& svg) const;
  void rank(Svg& svg, std::size_t index, double y) const;
  void lane(Svg& svg, const Lane& lane, double y) const;
  void segment(Svg& svg, const Segment& segment, double y, double height) const;
  std::string summary(const RankTrace& trace) const;
  double rank_height(std::size_t index) const;

  const std::vector<RankTrace>& traces_;
  const TimelineText& text_;
  std::vector<std::vector<Lane>> lanes_;
  Span span_;
  std::uint64_t length_ns_ = 1;
  int blocks_ = 1;
  double height_ = 0;
};

Picture::Picture(const std::vector<RankTrace>& traces, const TimelineText& text)
    : traces_(traces), text_(text) {
  span_ = span_of(traces);
  length_ns_ = std::max<std::uint64_t>(1, span_.end_ns - span_.begin_ns);
  blocks_ = static_cast<int>(traces.size());
  for (const RankTrace& trace : traces) {
    lanes_.push_back(rows_of(trace));
    for (const ringattn_event& event : trace.events) blocks_ = std::max(blocks_, event.block + 1);
  }
  height_ = kHeader + kAxis;
  for (std::size_t i = 0; i < traces.size(); ++i) height_ += rank_height(i) + kRankGap;
}

double Picture::rank_height(std::size_t index) const {
  double height = kRankTitle + 6;
  for (const Lane& lane : lanes_[index]) height += style_of(lane.kind).height + style_of(lane.kind).gap;
  return height;
}

std::vector<Segment> Picture::merge(const Lane& lane) const {
  std::vector<Segment> segments;
  for (const ringattn_event& event : lane.events) {
    if (!segments.empty()) {
      ringattn_event& last = segments.back().event;
      if (last.kind == event.kind && last.block == event.block && last.peer == event.peer &&
          x(event.start_ns) - x(last.end_ns) < kMergePixels) {
        last.end_ns = std::max(last.end_ns, event.end_ns);
        last.bytes += event.bytes;
        ++segments.back().count;
        continue;
      }
    }
    segments.push_back({event});
  }
  return segments;
}

double Picture::legend_blocks(Svg& svg, double at, double y) const {
  svg.text(at, y + 10, "tile of K/V block", {.colour = kQuiet});
  at += text_width("tile of K/V block", 12) + 4;
  const bool few = blocks_ <= 8;
  for (int block = 0; block < blocks_; ++block) {
    const std::string colour = block_colour(block, blocks_);
    const double width = few ? 22 : std::max(2.0, 240.0 / blocks_);
    svg.rect(at, y, width, 13, {.fill = colour, .radius = few ? 2.0 : 0.0});
    if (few) {
      svg.text(at + width / 2, y + 10.5, fmt::format("{}", block),
               {.size = 10, .colour = text_colour_on(colour), .anchor = Anchor::middle});
    }
    at += width + (few ? 3 : 0);
  }
  if (!few) svg.text(at + 5, y + 10, fmt::format("0 to {}", blocks_ - 1), {.colour = kQuiet});
  return at + (few ? 20 : 80);
}

void Picture::legend(Svg& svg) const {
  const double y = 66;
  double at = legend_blocks(svg, kLeft, y);
  const auto entry = [&](const RectStyle& style, std::string_view name) {
    svg.rect(at, y, 22, 13, style);
    svg.text(at + 27, y + 10, name, {.colour = kQuiet});
    at += 27 + text_width(name, 12) + 16;
  };
  entry({.fill = "#ffffff", .stroke = block_colour(0, blocks_), .radius = 2},
        "receive, in its block's colour");
  entry({.fill = "#efe7fb", .stroke = kSend, .radius = 2}, "send, until it was read");
  entry({.fill = "url(#hatch)"}, "waiting, nothing to compute");
  entry({.fill = kAgree}, "ranks agree");
}

void Picture::header(Svg& svg) const {
  svg.text(kLeft, 28, text_.title, {.size = 18, .bold = true});
  svg.text(kLeft, 49, text_.subtitle, {.size = 12.5, .colour = kQuiet});
  legend(svg);
}

void Picture::axis(Svg& svg) const {
  const double total = static_cast<double>(length_ns_) / 1e6;
  const double step = axis_step(total);
  const double bottom = height_ - kAxis;
  for (int i = 0; i * step <= total * (1 + 1e-9); ++i) {
    const double at = kLeft + kPlot * i * step / total;
    svg.line(at, kHeader - 4, at, bottom, kGrid);
    svg.text(at, bottom + 16, fmt::format("{:.6g}", i * step),
             {.size = 11, .colour = kQuiet, .anchor = Anchor::middle});
  }
  svg.text(kLeft - 12, bottom + 16, "ms", {.size = 11, .colour = kQuiet, .anchor = Anchor::end});
}

void Picture::segment(Svg& svg, const Segment& segment, double y, double height) const {
  const ringattn_event& event = segment.event;
  const double left = x(event.start_ns);
  const double width = std::max(0.35, x(event.end_ns) - left);
  const std::string when =
      fmt::format("{} at {}", milliseconds(static_cast<double>(event.end_ns - event.start_ns)),
                  milliseconds(static_cast<double>(event.start_ns - span_.begin_ns)));
  const std::string colour = block_colour(std::max(0, event.block), blocks_);
  const auto label = [&](std::string_view text, std::string_view text_colour, double size) {
    if (text_width(text, size) + 6 > width) return;
    svg.text(left + width / 2, y + height / 2 + size * 0.36, text,
             {.size = size, .colour = text_colour, .anchor = Anchor::middle});
  };
  switch (event.kind) {
    case RINGATTN_EVENT_TILE: {
      const std::string tip = fmt::format("K/V block {}: {} tile{}, {}", event.block, segment.count,
                                          segment.count == 1 ? "" : "s", when);
      svg.rect(left, y, width, height, {.fill = colour, .tooltip = tip});
      label(fmt::format("{}", event.block), text_colour_on(colour), 11);
      break;
    }
    case RINGATTN_EVENT_RECEIVE: {
      const std::string tip = fmt::format("receive block {} from rank {}, {} bytes, {}", event.block,
                                          event.peer, event.bytes, when);
      svg.rect(left, y + 0.5, width, height - 1,
               {.fill = "#ffffff", .stroke = colour, .radius = 2, .tooltip = tip});
      label(fmt::format("block {} from rank {}", event.block, event.peer), "#24292f", 9.5);
      break;
    }
    case RINGATTN_EVENT_SEND: {
      const std::string tip =
          fmt::format("send block {} to rank {}, {} bytes, {}", event.block, event.peer, event.bytes, when);
      svg.rect(left, y + 0.5, width, height - 1,
               {.fill = "#efe7fb", .stroke = kSend, .radius = 2, .tooltip = tip});
      label(fmt::format("block {} to rank {}", event.block, event.peer), "#4c2889", 9.5);
      break;
    }
    case RINGATTN_EVENT_MOVE: {
      const std::string tip =
          fmt::format("moves memory of block {}, {} bytes, {}", event.block, event.bytes, when);
      svg.rect(left, y + 1.5, width, height - 3, {.fill = colour, .tooltip = tip});
      break;
    }
    case RINGATTN_EVENT_AGREE:
      svg.rect(left, y, width, height, {.fill = kAgree, .tooltip = "ranks agree on the call, " + when});
      break;
    default:
      svg.rect(left, y, width, height, {.fill = "url(#hatch)", .tooltip = "waits, " + when});
  }
}

void Picture::lane(Svg& svg, const Lane& lane, double y) const {
  const double height = style_of(lane.kind).height;
  std::string name;
  switch (lane.kind) {
    case RINGATTN_EVENT_TILE:
      name = fmt::format("worker {}", lane.worker);
      break;
    case RINGATTN_EVENT_RECEIVE:
      name = lane.number == 0 ? "receive" : "";
      break;
    case RINGATTN_EVENT_SEND:
      name = lane.number == 0 ? "send" : "";
      break;
    case RINGATTN_EVENT_MOVE:
      name = lane.number == 0 ? "move" : "";
      break;
    default:
      name = lane.number == 0 ? "wait" : "";
  }
  svg.text(kLeft - 12, y + height / 2 + 4, name, {.size = 11, .colour = kQuiet, .anchor = Anchor::end});
  for (const Segment& part : merge(lane)) segment(svg, part, y, height);
}

std::string Picture::summary(const RankTrace& trace) const {
  const ringattn_times& times = trace.times;
  const double total = std::max(1.0, static_cast<double>(times.total_ns));
  std::string text = fmt::format(
      "{} tiles, computing {} of worker time; received {:.2f} MB, waited {} ({:.1f}%)", times.tiles,
      milliseconds(static_cast<double>(times.compute_ns)), static_cast<double>(times.bytes_received) / 1e6,
      milliseconds(static_cast<double>(times.exposed_wait_ns)),
      100 * static_cast<double>(times.exposed_wait_ns) / total);
  if (trace.dropped > 0) text += fmt::format("; {} events not recorded", trace.dropped);
  return text;
}

void Picture::rank(Svg& svg, std::size_t index, double y) const {
  const RankTrace& trace = traces_[index];
  const std::string colour = block_colour(trace.rank, blocks_);
  svg.rect(8, y, 4, rank_height(index), {.fill = colour, .radius = 2});
  svg.line(20, y, kWidth - kRight, y, "#d0d7de");
  svg.text(20, y + 17, fmt::format("rank {}", trace.rank), {.size = 14, .bold = true});
  svg.text(kLeft, y + 16, summary(trace), {.size = 11.5, .colour = kQuiet});
  double at = y + kRankTitle;
  for (const Lane& one : lanes_[index]) {
    lane(svg, one, at);
    at += style_of(one.kind).height + style_of(one.kind).gap;
  }
}

std::string Picture::draw() {
  Svg svg(kWidth, height_, text_.title);
  axis(svg);
  header(svg);
  double y = kHeader;
  for (std::size_t i = 0; i < traces_.size(); ++i) {
    rank(svg, i, y);
    y += rank_height(i) + kRankGap;
  }
  return svg.finish();
}

}  // namespace

std::string timeline_svg(const std::vector<RankTrace>& traces, const TimelineText& text) {
  return Picture(traces, text).draw();
}

}  // namespace ringattn::tool
