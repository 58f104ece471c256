// One axis of one call: where each sequence lies on the coordinates that the partition cuts.
#pragma once
#include <cstdint>

#include "base/call.h"
#include "base/problem.h"
#include "schedule/partition.h"

namespace ringattn::schedule {

// Tokens of one sequence: token i has coordinate start + i and mask position `position` + i. Boxes of a row's
// sequences never overlap and grow, also where a sequence has no token and its start means nothing.
struct Place {
  std::int64_t start, length, position;
  std::int64_t box, box_end;
};

class AxisCall {
 public:
  static AxisCall of_keys(const Problem& problem, std::int32_t world, const Call& call);
  static AxisCall of_queries(const Problem& problem, std::int32_t world, const Call& call);

  const Partition& partition() const { return partition_; }
  const Call& call() const { return call_; }
  bool by_document() const { return scope_ == Scope::document; }  // each sequence is cut by itself
  std::int64_t length_of_row(std::int64_t row) const;             // that is cut; not by_document
  Place place(std::int64_t sequence) const;

 private:
  enum class Axis { keys, queries_by_index, queries_like_keys };
  AxisCall(Axis axis, Partition partition, const Problem& problem, const Call& call)
      : axis_(axis), partition_(partition), scope_(problem.scope), call_(call) {
    capacity_ = axis == Axis::queries_by_index ? problem.seq_q : problem.seq_k;
  }

  Axis axis_;
  Partition partition_;
  Scope scope_;
  std::int64_t capacity_;
  const Call& call_;
};

}  // namespace ringattn::schedule
