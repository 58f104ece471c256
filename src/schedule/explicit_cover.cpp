#include <algorithm>
#include <string>

#include "schedule/cover.h"
#include "schedule/layout.h"

namespace ringattn::schedule {
namespace {

// Parts sorted by first position: each is compared with those before it that still reach it. Intervals never
// overlap that far, so only progressions that really interleave are compared in pairs.
CoverDefect find_twice(const std::vector<CoverPart>& parts) {
  std::vector<const CoverPart*> open;
  for (const CoverPart& part : parts) {
    std::erase_if(open,
                  [&](const CoverPart* other) { return other->positions.last() < part.positions.first; });
    for (const CoverPart* other : open) {
      const std::int64_t common = first_common(other->positions, part.positions);
      if (common >= 0) return {CoverDefect::Kind::twice, common, *other, part};
    }
    open.push_back(&part);
  }
  return {};
}

// The smallest position below `length` in none of the parts, which are disjoint: the smallest prefix that is
// not full.
std::int64_t first_missing(const std::vector<CoverPart>& parts, std::int64_t length) {
  std::int64_t full = 0, too_long = length;  // prefixes
  while (too_long - full > 1) {
    const std::int64_t middle = full + (too_long - full) / 2;
    std::int64_t covered = 0;
    for (const CoverPart& part : parts) covered += part.positions.count_below(middle);
    (covered == middle ? full : too_long) = middle;
  }
  return full;
}

// "rank 2, run 0"
std::string name_of(const CoverPart& part) {
  return "rank " + std::to_string(part.rank) + ", run " + std::to_string(part.run);
}

}  // namespace

CoverDefect find_defect(std::vector<CoverPart>& parts, std::int64_t length) {
  std::erase_if(parts, [](const CoverPart& part) { return part.positions.length == 0; });
  Wide total = 0;
  for (const CoverPart& part : parts) {
    const Progression& p = part.positions;
    if (p.first < 0 || p.first >= length) return {CoverDefect::Kind::outside, p.first, part, {}};
    const std::int64_t room = (length - 1 - p.first) / p.stride + 1;  // elements before the end
    if (p.length > room) {
      const Wide beyond = p.first + Wide(room) * p.stride;
      const auto position = static_cast<std::int64_t>(std::min<Wide>(beyond, kUnbounded));
      return {CoverDefect::Kind::outside, position, part, {}};
    }
    total += p.length;
  }
  std::sort(parts.begin(), parts.end(), [](const CoverPart& a, const CoverPart& b) {
    return a.positions.first != b.positions.first ? a.positions.first < b.positions.first : a.rank < b.rank;
  });
  const CoverDefect twice = find_twice(parts);
  if (twice.kind != CoverDefect::Kind::none || total == length) return twice;
  return {CoverDefect::Kind::missing, first_missing(parts, length), {}, {}};
}

Status check_cover(std::span<const std::vector<PositionRun>> runs, std::int64_t length, const char* field) {
  const std::string prefix = std::string(field) + ": ";
  std::vector<CoverPart> parts;
  for (std::size_t rank = 0; rank < runs.size(); ++rank) {
    for (std::size_t i = 0; i < runs[rank].size(); ++i) {
      const PositionRun& run = runs[rank][i];
      const CoverPart part{
          {run.first, run.length, run.stride}, static_cast<std::int32_t>(rank), static_cast<std::int64_t>(i)};
      if (run.length < 0) {
        return invalid(prefix + name_of(part) + " has length " + std::to_string(run.length) +
                       "; expected 0 or more");
      }
      if (run.stride < 1) {
        return invalid(prefix + name_of(part) + " has stride " + std::to_string(run.stride) +
                       "; expected 1 or more");
      }
      parts.push_back(part);
    }
  }
  const CoverDefect defect = find_defect(parts, length);
  const std::string position = "position " + std::to_string(defect.position);
  switch (defect.kind) {
    case CoverDefect::Kind::outside:
      return invalid(prefix + name_of(defect.first) + " holds " + position + "; expected positions 0.." +
                     std::to_string(length - 1));
    case CoverDefect::Kind::twice:
      return invalid(prefix + name_of(defect.first) + " and " + name_of(defect.second) + " both hold " +
                     position + "; expected each position once");
    case CoverDefect::Kind::missing:
      return invalid(prefix + "no rank holds " + position + "; expected each of 0.." +
                     std::to_string(length - 1) + " once");
    case CoverDefect::Kind::none:
      break;
  }
  return {};
}

}  // namespace ringattn::schedule
