#include "plan_svg.h"

#include <fmt/format.h>

#include <algorithm>

#include "svg.h"
#include "text.h"

namespace ringattn::tool {
namespace {

constexpr double kLeft = 150;    // rank, its tokens
constexpr double kRight = 190;   // its share of the work
constexpr double kHeader = 118;  // title, problem, legend, step numbers
constexpr double kFooter = 40;

constexpr std::string_view kQuiet = "#6a737d";
constexpr std::string_view kFrame = "#d0d7de";
constexpr std::string_view kSend = "#8250df";

struct Send {
  int block;
  int peer;
  std::uint64_t bytes;
};

// What one rank does in one step.
struct Cell {
  int block = -1;  // -1 = computes nothing
  double pairs = 0;
  std::vector<Send> sends;
};

using Row = std::vector<Cell>;

int hop_distance(int rank, int block, int ranks) { return ((rank - block) % ranks + ranks) % ranks; }

// In a ring a block needs as many hops as its owner is ranks away: then columns are points in time, and a hole is
// a block that the mask hides. Other orders are drawn as they come.
bool is_ring_order(const std::vector<std::vector<PlannedOperation>>& operations) {
  const int ranks = static_cast<int>(operations.size());
  for (int rank = 0; rank < ranks; ++rank) {
    int last = -1;
    for (const PlannedOperation& operation : operations[static_cast<std::size_t>(rank)]) {
      if (operation.kind != "attend") continue;
      const int hop = hop_distance(rank, operation.block, ranks);
      if (hop < last) return false;
      last = hop;
    }
  }
  return true;
}

Cell& cell_at(Row& row, int column) {
  const auto index = static_cast<std::size_t>(column);
  if (row.size() <= index) row.resize(index + 1);
  return row[index];
}

int column_of_block(const Row& row, int block) {
  for (std::size_t column = 0; column < row.size(); ++column) {
    if (row[column].block == block) return static_cast<int>(column);
  }
  return -1;
}

Row row_of(const std::vector<PlannedOperation>& operations, int rank, int ranks, bool ring_order) {
  Row row;
  for (const PlannedOperation& operation : operations) {
    if (operation.kind != "attend") continue;
    int column = column_of_block(row, operation.block);
    if (column < 0)
      column = ring_order ? hop_distance(rank, operation.block, ranks) : static_cast<int>(row.size());
    Cell& cell = cell_at(row, column);
    cell.block = operation.block;
    cell.pairs += operation.pairs;
  }
  // A block travels on while it is computed; one that only passes through stands where it would be computed.
  for (const PlannedOperation& operation : operations) {
    if (operation.kind != "send") continue;
    int column = column_of_block(row, operation.block);
    if (column < 0) column = ring_order ? hop_distance(rank, operation.block, ranks) : 0;
    cell_at(row, column).sends.push_back({operation.block, operation.peer, operation.bytes});
  }
  return row;
}

class Picture {
 public:
  Picture(const RingPlan& plan, std::string_view problem);
  std::string draw();

 private:
  double x(std::size_t column) const { return kLeft + static_cast<double>(column) * cell_width_; }
  double y(std::size_t rank) const { return kHeader + static_cast<double>(rank) * row_height_; }
  bool roomy() const { return cell_width_ >= 90; }
  void header(Svg& svg) const;
  void rank(Svg& svg, std::size_t rank) const;
  void cell(Svg& svg, std::size_t rank, std::size_t column) const;
  void sends(Svg& svg, const Cell& cell, double left, double top) const;
  void share(Svg& svg, std::size_t rank) const;
  void footer(Svg& svg) const;

  const RingPlan& plan_;
  std::string_view problem_;
  std::vector<Row> rows_;
  std::size_t columns_ = 1;
  std::size_t most_sends_ = 1;  // of one cell
  double most_pairs_ = 1;       // of one cell
  double cell_width_ = 0, cell_height_ = 0, row_height_ = 0;
  double width_ = 0, height_ = 0;
};

Picture::Picture(const RingPlan& plan, std::string_view problem) : plan_(plan), problem_(problem) {
  const int ranks = static_cast<int>(plan.operations.size());
  const bool ring_order = is_ring_order(plan.operations);
  for (int rank = 0; rank < ranks; ++rank) {
    rows_.push_back(row_of(plan.operations[static_cast<std::size_t>(rank)], rank, ranks, ring_order));
    columns_ = std::max(columns_, rows_.back().size());
    for (const Cell& cell : rows_.back()) {
      most_pairs_ = std::max(most_pairs_, cell.pairs);
      most_sends_ = std::max(most_sends_, cell.sends.size());
    }
  }
  cell_width_ = std::clamp(1040.0 / static_cast<double>(columns_), 16.0, 150.0);
  cell_height_ = roomy() ? 46 : 26;
  const double send_height = roomy() ? 16 * static_cast<double>(most_sends_) : 8;
  row_height_ = cell_height_ + send_height + (roomy() ? 12 : 6);
  width_ = std::max(900.0, x(columns_) + kRight);
  height_ = y(rows_.size()) + kFooter;
}

void Picture::header(Svg& svg) const {
  svg.text(24, 32, fmt::format("Ring attention on {} rank{}", rows_.size(), rows_.size() == 1 ? "" : "s"),
           {.size = 18, .bold = true});
  svg.text(24, 53, problem_, {.size = 12.5, .colour = kQuiet});
  double at = 24;
  const double legend = 68;
  svg.rect(at, legend, 22, 13, {.fill = "#f6f8fa", .stroke = kFrame, .radius = 2});
  svg.rect(at, legend + 5, 22, 8, {.fill = block_colour(0, static_cast<int>(rows_.size())), .radius = 2});
  at += 28;
  std::string_view note = "block that is computed, in its owner's colour; height = work";
  svg.text(at, legend + 10, note, {.colour = kQuiet});
  at += text_width(note, 12);
  svg.arrow(at, legend + 7, 20, kSend);
  svg.text(at + 27, legend + 10, "block passed on meanwhile", {.colour = kQuiet});
  for (std::size_t column = 0; column < columns_; ++column) {
    const bool every = roomy() || cell_width_ >= 24 || column % 5 == 0;
    if (!every) continue;
    svg.text(x(column) + cell_width_ / 2, kHeader - 10,
             roomy() ? fmt::format("step {}", column) : fmt::format("{}", column),
             {.size = 11, .colour = kQuiet, .anchor = Anchor::middle});
  }
  svg.text(x(columns_) + 14, kHeader - 10, "work of the rank", {.size = 11, .colour = kQuiet});
}

void Picture::sends(Svg& svg, const Cell& cell, double left, double top) const {
  for (std::size_t i = 0; i < cell.sends.size(); ++i) {
    const Send& send = cell.sends[i];
    if (!roomy()) {
      if (i == 0) svg.arrow(left + cell_width_ * 0.2, top + 5, cell_width_ * 0.6, kSend);
      continue;
    }
    const double line = top + 10 + 16 * static_cast<double>(i);
    svg.arrow(left + 6, line, 16, kSend);
    const std::string size = bytes_text(static_cast<double>(send.bytes));
    const std::string whole = fmt::format("{} to {}, {}", send.block, send.peer, size);
    const std::string text =
        text_width(whole, 10.5) + 28 < cell_width_ ? whole : fmt::format("to {}", send.peer);
    svg.text(left + 26, line + 4, text, {.size = 10.5, .colour = "#4c2889"});
  }
}

void Picture::cell(Svg& svg, std::size_t rank, std::size_t column) const {
  const Cell& cell = rows_[rank][column];
  const double gap = roomy() ? 4 : 1.5;
  const double left = x(column) + gap, top = y(rank);
  const double width = cell_width_ - 2 * gap;
  if (cell.block >= 0) {
    const std::string colour = block_colour(cell.block, static_cast<int>(rows_.size()));
    const double bar = std::max(1.5, cell_height_ * cell.pairs / most_pairs_);
    const std::string tip = fmt::format("rank {}, step {}: K/V block {}, {} pairs", rank, column, cell.block,
                                        count_text(cell.pairs));
    svg.rect(left, top, width, cell_height_,
             {.fill = "#f6f8fa", .stroke = kFrame, .radius = 3, .tooltip = tip});
    svg.rect(left, top + cell_height_ - bar, width, bar, {.fill = colour, .radius = 3, .tooltip = tip});
    const bool on_bar = bar > 20;
    const std::string_view ink = on_bar ? text_colour_on(colour) : std::string_view("#24292f");
    if (roomy()) {
      svg.text(left + 7, top + cell_height_ - 7, fmt::format("K/V {}", cell.block),
               {.size = 12, .colour = ink, .bold = true});
      const std::string pairs = count_text(cell.pairs);
      if (text_width(pairs, 10.5) + 62 < width) {
        svg.text(left + width - 7, top + cell_height_ - 7, pairs,
                 {.size = 10.5, .colour = ink, .anchor = Anchor::end});
      }
    } else if (cell_width_ >= 24) {
      svg.text(left + width / 2, top + cell_height_ - 5, fmt::format("{}", cell.block),
               {.size = 10, .colour = ink, .anchor = Anchor::middle});
    }
  }
  sends(svg, cell, left, top + cell_height_ + 2);
}

void Picture::share(Svg& svg, std::size_t rank) const {
  const ringattn_plan_info& info = plan_.infos[rank];
  const double most = std::max(1.0, info.pairs_max);
  const double room = kRight - 100;
  const double left = x(columns_) + 14, top = y(rank) + cell_height_ / 2 - 6;
  svg.rect(left, top, room, 12, {.fill = "#f6f8fa", .stroke = kFrame, .radius = 2});
  svg.rect(left, top, room * info.pairs / most, 12, {.fill = "#57606a", .radius = 2});
  svg.text(left + room + 8, top + 10, count_text(info.pairs), {.size = 11});
}

void Picture::rank(Svg& svg, std::size_t rank) const {
  const ringattn_plan_info& info = plan_.infos[rank];
  const double middle = y(rank) + cell_height_ / 2;
  svg.rect(24, y(rank), 4, cell_height_,
           {.fill = block_colour(static_cast<int>(rank), static_cast<int>(rows_.size())), .radius = 2});
  svg.text(36, middle + (roomy() ? -2 : 4), fmt::format("rank {}", rank), {.size = 13, .bold = true});
  if (roomy()) {
    const std::string tokens = info.local_q == info.local_k
                                   ? fmt::format("{} tokens", grouped(info.local_q))
                                   : fmt::format("{} q, {} k", grouped(info.local_q), grouped(info.local_k));
    svg.text(36, middle + 13, tokens, {.size = 10.5, .colour = kQuiet});
  }
  for (std::size_t column = 0; column < rows_[rank].size(); ++column) cell(svg, rank, column);
  share(svg, rank);
}

void Picture::footer(Svg& svg) const {
  const ringattn_plan_info& info = plan_.infos.front();
  const double balance = info.pairs_mean > 0 ? info.pairs_max / info.pairs_mean : 1;
  svg.line(24, height_ - kFooter + 4, width_ - 24, height_ - kFooter + 4, kFrame);
  double sent = 0;
  for (const ringattn_plan_info& one : plan_.infos) sent += static_cast<double>(one.bytes_sent);
  svg.text(
      24, height_ - 14,
      fmt::format("work of the busiest rank / mean = {:.4f}; {} visible pairs (batch and heads "
                  "counted); {} sent in all",
                  balance, count_text(info.pairs_mean * static_cast<double>(rows_.size())), bytes_text(sent)),
      {.size = 12});
}

std::string Picture::draw() {
  Svg svg(width_, height_, "Plan of ring attention");
  header(svg);
  for (std::size_t i = 0; i < rows_.size(); ++i) rank(svg, i);
  footer(svg);
  return svg.finish();
}

}  // namespace

std::string plan_svg(const RingPlan& plan, std::string_view problem) { return Picture(plan, problem).draw(); }

}  // namespace ringattn::tool
