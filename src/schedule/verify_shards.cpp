// Both axes are covered exactly once: for every sequence, the runs of all ranks hold each of its positions
// once.
#include <algorithm>

#include "schedule/cover.h"
#include "schedule/verify_parts.h"

namespace ringattn::schedule {
namespace {

struct Axis {
  const char* name;
  Shard (Layout::*shard)(std::int32_t, std::int64_t) const;
  std::int64_t Sequence::*length;
  std::int64_t (*first_position)(const Sequence&);
};

const Axis kAxes[] = {
    {"queries", &Layout::queries, &Sequence::q_length, [](const Sequence& s) { return s.offset; }},
    {"keys", &Layout::keys, &Sequence::k_length, [](const Sequence&) -> std::int64_t { return 0; }},
};

// Runs follow one another without gaps, and positions grow inside a segment.
Status verify_order(const Axis& axis, const Shard& shard, std::int32_t rank) {
  std::int64_t local = 0;
  std::size_t segment = 0;
  for (std::size_t i = 0; i < shard.runs.size(); ++i) {
    const Run& run = shard.runs[i];
    const std::string name = std::string(axis.name) + ", run " + std::to_string(i) + ": ";
    if (run.local != local || run.length < 1 || run.stride < 1) {
      return violation(rank, name + "local order has a gap or an empty run");
    }
    const bool starts_segment =
        segment < shard.segments.size() && shard.segments[segment] == static_cast<std::int64_t>(i);
    if (starts_segment) ++segment;
    if (i == 0 && !starts_segment) return violation(rank, name + "belongs to no segment");
    if (!starts_segment) {
      const Run& before = shard.runs[i - 1];
      const std::int64_t last = before.position + (before.length - 1) * before.stride;
      const bool grows =
          before.sequence < run.sequence || (before.sequence == run.sequence && last < run.position);
      if (!grows) return violation(rank, name + "positions fall back inside a segment");
    }
    local += run.length;
  }
  if (local != shard.length || segment != shard.segments.size()) {
    return violation(rank, std::string(axis.name) + ": the shard's length or segments do not fit its runs");
  }
  return {};
}

struct Piece {
  std::int64_t sequence;
  CoverPart part;
};

Status verify_sequence(const Axis& axis, std::int64_t sequence, std::int64_t length,
                       std::vector<CoverPart>& parts) {
  const CoverDefect defect = find_defect(parts, length);
  if (defect.kind == CoverDefect::Kind::none) return {};
  const char* const what = defect.kind == CoverDefect::Kind::outside ? " is outside the sequence"
                           : defect.kind == CoverDefect::Kind::twice ? " is held twice"
                                                                     : " is held by no rank";
  return violation(defect.first.rank, std::string(axis.name) + " of sequence " + std::to_string(sequence) +
                                          ": token " + std::to_string(defect.position) + what);
}

Status verify_row(const Subject& subject, const Axis& axis, std::int64_t row) {
  const Call& call = subject.call;
  std::vector<Piece> pieces;
  for (std::int32_t rank = 0; rank < subject.layout.world(); ++rank) {
    const Shard shard = (subject.layout.*axis.shard)(rank, row);
    RINGATTN_TRY(verify_order(axis, shard, rank));
    for (std::size_t i = 0; i < shard.runs.size(); ++i) {
      const Run& run = shard.runs[i];
      if (run.sequence < call.first_of(row) || run.sequence >= call.last_of(row)) {
        return violation(rank, std::string(axis.name) + " of sequence " + std::to_string(run.sequence) +
                                   ", which is not in row " + std::to_string(row));
      }
      const std::int64_t first =
          run.position - axis.first_position(call.sequences[static_cast<std::size_t>(run.sequence)]);
      pieces.push_back({run.sequence, {{first, run.length, run.stride}, rank, static_cast<std::int64_t>(i)}});
    }
  }
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.sequence < b.sequence; });
  auto next = pieces.begin();
  std::vector<CoverPart> parts;
  for (std::int64_t s = call.first_of(row); s < call.last_of(row); ++s) {
    parts.clear();
    for (; next != pieces.end() && next->sequence == s; ++next) parts.push_back(next->part);
    RINGATTN_TRY(verify_sequence(axis, s, call.sequences[static_cast<std::size_t>(s)].*axis.length, parts));
  }
  return {};
}

}  // namespace

Status verify_shards(const Subject& subject) {
  const Layout& layout = subject.layout;
  if (layout.rows() != subject.call.rows) return violation(0, "the layout is that of another call");
  for (std::int64_t row = 0; row < layout.rows(); ++row) {
    for (const Axis& axis : kAxes) RINGATTN_TRY(verify_row(subject, axis, row));
  }
  for (std::int32_t rank = 0; rank < layout.world(); ++rank) {
    if (layout.local_queries(rank) > local_capacity_queries(subject.problem, rank, layout.world()) ||
        layout.local_keys(rank) > local_capacity_keys(subject.problem, rank, layout.world())) {
      return violation(rank, "a shard is longer than the plan's local capacity");
    }
  }
  return {};
}

}  // namespace ringattn::schedule
