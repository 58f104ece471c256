// Who owns which positions in one call: every rank's shard of queries and keys as runs. Pure arithmetic.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/call.h"
#include "base/problem.h"
#include "base/status.h"

namespace ringattn::schedule {

// Local tokens local, local + 1, ... (length of them) sit at positions position, position + stride, ... of
// one sequence of the call. Positions are the mask's: a key's index in its sequence; a query's index plus
// its sequence's offset.
struct Run {
  std::int64_t local, length;
  std::int64_t position, stride;
  std::int64_t sequence;
};

// One rank's tokens of one axis in one row. Runs are in local order and cover [0, length). A *segment* is a
// longest stretch of runs in which (sequence, position) only grows, so that what a query sees of a segment
// is one interval of local indices. Every partition but EXPLICIT has at most one segment.
struct Shard {
  std::span<const Run> runs;
  std::span<const std::int64_t> segments;  // index of the first run of each segment
  std::int64_t length = 0;
};

class Layout {
 public:
  // Takes all memory that any call of the problem can need; build then allocates nothing.
  void reserve(const Problem& problem, std::int32_t world);
  // Cuts both axes for the values of one call. Refuses what LIKE_KEYS cannot place (message names sequence,
  // position, length).
  Status build(const Problem& problem, std::int32_t world, const Call& call);

  std::int32_t world() const { return world_; }
  std::int64_t rows() const { return rows_; }  // 1 or batch: rows with shards of their own
  Shard queries(std::int32_t rank, std::int64_t row) const;
  Shard keys(std::int32_t rank, std::int64_t row) const;
  // The longest row of a rank's shard.
  std::int64_t local_queries(std::int32_t rank) const;
  std::int64_t local_keys(std::int32_t rank) const;
  std::uint64_t bytes() const;  // memory held

 private:
  struct Axis {
    std::vector<Run> runs;
    std::vector<std::int64_t> segments;
    std::vector<std::int64_t> first_run, first_segment, length;  // [rank * rows + row]
    std::vector<std::int64_t> longest;                           // [rank]
  };
  Shard shard(const Axis& axis, std::int32_t rank, std::int64_t row) const;
  static void build_axis(const class AxisCall& cut, Axis& axis);

  std::int32_t world_ = 0;
  std::int64_t rows_ = 0;
  Axis queries_, keys_;
};

// The most local tokens of `rank` that any call can have. May be asked without a Layout.
std::int64_t local_capacity_queries(const Problem& problem, std::int32_t rank, std::int32_t world);
std::int64_t local_capacity_keys(const Problem& problem, std::int32_t rank, std::int32_t world);

// EXPLICIT: do the ranks' runs cover 0..length-1 exactly once? Names rank, run and position otherwise.
Status check_cover(std::span<const std::vector<PositionRun>> runs, std::int64_t length, const char* field);

}  // namespace ringattn::schedule
