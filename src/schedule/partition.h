// The partition formulas (ringattn.h section 7; they are ABI): one rank's part of an axis as pieces in local
// order.
#pragma once
#include <cstdint>
#include <vector>

#include "base/problem.h"
#include "schedule/progression.h"

namespace ringattn::schedule {

// How one axis is cut, whatever its length. Borrows the explicit runs of the problem.
struct Partition {
  PartitionKind kind;
  std::int64_t stripe;
  std::int32_t world;
  const std::vector<std::vector<PositionRun>>* runs;  // EXPLICIT: [rank] -> runs

  static Partition of_keys(const Problem& problem, std::int32_t world);
  static Partition of_queries(const Problem& problem, std::int32_t world);
};

// One rank's pieces of 0..length-1. Pieces are disjoint; their order is the local order.
class Cut {
 public:
  Cut(const Partition& partition, std::int32_t rank, std::int64_t length);

  // Pieces begin(from) <= i < end(to) are all that can touch from..to-1.
  std::int64_t begin(std::int64_t from) const;
  std::int64_t end(std::int64_t to) const;
  Progression piece(std::int64_t i) const;

 private:
  bool has_stripes() const { return partition_.kind == PartitionKind::striped && stripe_ > 1; }

  Partition partition_;
  std::int32_t rank_;
  std::int64_t length_;
  std::int64_t stripe_;  // 1 also where stripes make no difference
};

// Positions of 0..length-1 that belong to the rank.
std::int64_t share_of(const Partition& partition, std::int32_t rank, std::int64_t length);

}  // namespace ringattn::schedule
