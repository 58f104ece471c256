#include "schedule/layout.h"

#include <algorithm>
#include <string>

#include "schedule/axis_call.h"
#include "schedule/capacity.h"

namespace ringattn::schedule {
namespace {

// Far beyond any real position, and small enough that positions and bounds of a mask can be added.
constexpr std::int64_t kMaxOffset = std::int64_t{1} << 60;

// Appends the runs and segments of one shard, in local order.
class ShardBuilder {
 public:
  ShardBuilder(std::vector<Run>& runs, std::vector<std::int64_t>& segments)
      : runs_(runs), segments_(segments), first_run_(runs.size()) {}

  void add(std::int64_t position, std::int64_t length, std::int64_t stride, std::int64_t sequence) {
    bool grows = false;
    if (runs_.size() > first_run_) {
      Run& before = runs_.back();
      const std::int64_t next = before.position + before.length * before.stride;
      if (before.sequence == sequence && before.stride == stride && next == position) {
        before.length += length;
        length_ += length;
        return;
      }
      grows = before.sequence < sequence || (before.sequence == sequence && next - before.stride < position);
    }
    if (!grows) segments_.push_back(static_cast<std::int64_t>(runs_.size() - first_run_));
    runs_.push_back({length_, length, position, stride, sequence});
    length_ += length;
  }
  std::int64_t length() const { return length_; }

 private:
  std::vector<Run>& runs_;
  std::vector<std::int64_t>& segments_;
  std::size_t first_run_;
  std::int64_t length_ = 0;
};

// Adds the elements of the piece that are tokens of the sequence.
void clip(const Progression& piece, const Place& place, std::int64_t sequence, ShardBuilder& shard) {
  const std::int64_t from = piece.count_below(place.start),
                     to = piece.count_below(place.start + place.length);
  if (from >= to) return;
  const std::int64_t position = place.position + (piece.first + from * piece.stride - place.start);
  shard.add(position, to - from, piece.stride, sequence);
}

// The first sequence of first..last-1 whose box ends behind the coordinate.
std::int64_t sequence_at(const AxisCall& axis, std::int64_t first, std::int64_t last,
                         std::int64_t coordinate) {
  while (first < last) {
    const std::int64_t middle = first + (last - first) / 2;
    if (axis.place(middle).box_end > coordinate) {
      last = middle;
    } else {
      first = middle + 1;
    }
  }
  return first;
}

// A row cut as a whole: every piece of the rank meets the sequences that it overlaps.
void build_row(const AxisCall& axis, std::int32_t rank, std::int64_t row, ShardBuilder& shard) {
  const std::int64_t first = axis.call().first_of(row), last = axis.call().last_of(row);
  if (first == last) return;
  const Cut cut(axis.partition(), rank, axis.length_of_row(row));
  std::int64_t from = axis.place(first).box, to = axis.place(last - 1).box_end;
  if (last - first == 1) {  // few queries on a long row of keys: only the pieces that they touch
    const Place place = axis.place(first);
    if (place.length == 0) return;
    from = place.start;
    to = place.start + place.length;
  }
  for (std::int64_t i = cut.begin(from), end = cut.end(to); i < end; ++i) {
    const Progression piece = cut.piece(i);
    if (piece.length == 0) continue;
    for (std::int64_t s = sequence_at(axis, first, last, piece.first); s < last; ++s) {
      const Place place = axis.place(s);
      if (place.box > piece.last()) break;
      clip(piece, place, s, shard);
    }
  }
}

// Every sequence of a row cut by itself.
void build_documents(const AxisCall& axis, std::int32_t rank, std::int64_t row, ShardBuilder& shard) {
  for (std::int64_t s = axis.call().first_of(row), last = axis.call().last_of(row); s < last; ++s) {
    const Place place = axis.place(s);
    const Cut cut(axis.partition(), rank, place.length);
    for (std::int64_t i = 0, end = cut.end(place.length); i < end; ++i) clip(cut.piece(i), place, s, shard);
  }
}

// Queries of LIKE_KEYS must lie where keys can: in the row, and among the keys of their own sequence if there
// are others.
Status check_like_keys(const Problem& problem, const Call& call) {
  const bool alone = call.rows > 1 || call.sequences.size() == 1;
  for (std::size_t i = 0; i < call.sequences.size(); ++i) {
    const Sequence& s = call.sequences[i];
    const std::int64_t bound = alone ? problem.seq_k : s.k_length;
    if (s.q_length == 0 || (s.offset >= 0 && s.offset <= bound - s.q_length)) continue;
    const std::int64_t outside = s.offset < 0 ? s.offset : std::max(s.offset, bound);
    return invalid("query_cut: LIKE_KEYS cannot place the query of sequence " + std::to_string(i) +
                   " at position " + std::to_string(outside) + "; expected 0.." + std::to_string(bound - 1) +
                   ", " + (alone ? "the keys of its row (seq_k)" : "the keys of its own sequence") +
                   "; query_cut BY_INDEX takes any position");
  }
  return {};
}

Status check_call(const Problem& problem, std::int32_t world, const Call& call) {
  for (std::size_t i = 0; i < call.sequences.size(); ++i) {
    const std::int64_t offset = call.sequences[i].offset;
    if (offset < -kMaxOffset || offset > kMaxOffset) {
      return invalid("query_offset: " + std::to_string(offset) + " in sequence " + std::to_string(i) +
                     "; expected at most 2^60 in magnitude");
    }
  }
  const bool like_keys = problem.query_like_keys && problem.scope == Scope::capacity;
  if (problem.partition == PartitionKind::explicit_runs) {
    const auto ranks = static_cast<std::size_t>(world);
    if (problem.runs_k.size() != ranks || (!like_keys && problem.runs_q.size() != ranks)) {
      return {RINGATTN_ERR_INTERNAL,
              "schedule: an EXPLICIT layout needs the runs of all " + std::to_string(world) + " ranks"};
    }
  }
  return like_keys ? check_like_keys(problem, call) : Status();
}

std::uint64_t bytes_of(const auto&... vectors) { return (... + (vectors.capacity() * sizeof(vectors[0]))); }

}  // namespace

void Layout::reserve(const Problem& problem, std::int32_t world) {
  const auto take = [world](const AxisBound& bound, Axis& axis) {
    axis.runs.reserve(static_cast<std::size_t>(bound.runs));
    axis.segments.reserve(static_cast<std::size_t>(bound.segments));
    for (auto* vector : {&axis.first_run, &axis.first_segment, &axis.length}) {
      vector->reserve(static_cast<std::size_t>(bound.shards + 1));
    }
    axis.longest.reserve(static_cast<std::size_t>(world));
  };
  take(bound_of_queries(problem, world), queries_);
  take(bound_of_keys(problem, world), keys_);
}

Status Layout::build(const Problem& problem, std::int32_t world, const Call& call) {
  RINGATTN_TRY(check_call(problem, world, call));
  world_ = world;
  rows_ = call.rows;
  build_axis(AxisCall::of_queries(problem, world, call), queries_);
  build_axis(AxisCall::of_keys(problem, world, call), keys_);
  return {};
}

void Layout::build_axis(const AxisCall& cut, Axis& axis) {
  axis.runs.clear();
  axis.segments.clear();
  for (auto* vector : {&axis.first_run, &axis.first_segment, &axis.length, &axis.longest}) vector->clear();
  for (std::int32_t rank = 0; rank < cut.partition().world; ++rank) {
    std::int64_t longest = 0;
    for (std::int64_t row = 0; row < cut.call().rows; ++row) {
      axis.first_run.push_back(static_cast<std::int64_t>(axis.runs.size()));
      axis.first_segment.push_back(static_cast<std::int64_t>(axis.segments.size()));
      ShardBuilder shard(axis.runs, axis.segments);
      if (cut.by_document()) {
        build_documents(cut, rank, row, shard);
      } else {
        build_row(cut, rank, row, shard);
      }
      axis.length.push_back(shard.length());
      longest = std::max(longest, shard.length());
    }
    axis.longest.push_back(longest);
  }
  axis.first_run.push_back(static_cast<std::int64_t>(axis.runs.size()));
  axis.first_segment.push_back(static_cast<std::int64_t>(axis.segments.size()));
}

Shard Layout::shard(const Axis& axis, std::int32_t rank, std::int64_t row) const {
  const auto at = static_cast<std::size_t>(rank * rows_ + row);
  const auto part = [at](const auto& values, const std::vector<std::int64_t>& first) {
    return std::span(values).subspan(static_cast<std::size_t>(first[at]),
                                     static_cast<std::size_t>(first[at + 1] - first[at]));
  };
  return {part(axis.runs, axis.first_run), part(axis.segments, axis.first_segment), axis.length[at]};
}

Shard Layout::queries(std::int32_t rank, std::int64_t row) const { return shard(queries_, rank, row); }
Shard Layout::keys(std::int32_t rank, std::int64_t row) const { return shard(keys_, rank, row); }

std::int64_t Layout::local_queries(std::int32_t rank) const {
  return queries_.longest[static_cast<std::size_t>(rank)];
}
std::int64_t Layout::local_keys(std::int32_t rank) const {
  return keys_.longest[static_cast<std::size_t>(rank)];
}

std::uint64_t Layout::bytes() const {
  const auto of = [](const Axis& axis) {
    return bytes_of(axis.runs, axis.segments, axis.first_run, axis.first_segment, axis.length, axis.longest);
  };
  return of(queries_) + of(keys_);
}

}  // namespace ringattn::schedule
