#include "schedule/axis_call.h"

namespace ringattn::schedule {

AxisCall AxisCall::of_keys(const Problem& problem, std::int32_t world, const Call& call) {
  return {Axis::keys, Partition::of_keys(problem, world), problem, call};
}

AxisCall AxisCall::of_queries(const Problem& problem, std::int32_t world, const Call& call) {
  // LIKE_KEYS exists in scope CAPACITY only.
  const bool like_keys = problem.query_like_keys && problem.scope == Scope::capacity;
  return {like_keys ? Axis::queries_like_keys : Axis::queries_by_index, Partition::of_queries(problem, world),
          problem, call};
}

std::int64_t AxisCall::length_of_row(std::int64_t row) const {
  if (scope_ == Scope::capacity) return capacity_;
  return axis_ == Axis::keys ? call_.total_k(row) : call_.total_q(row);
}

Place AxisCall::place(std::int64_t sequence) const {
  const Sequence& s = call_.sequences[static_cast<std::size_t>(sequence)];
  switch (axis_) {
    case Axis::keys: {
      const std::int64_t start = by_document() ? 0 : s.k_start;
      return {start, s.k_length, 0, start, start + s.k_length};
    }
    case Axis::queries_by_index: {
      const std::int64_t start = by_document() ? 0 : s.q_start;
      return {start, s.q_length, s.offset, start, start + s.q_length};
    }
    case Axis::queries_like_keys: {
      // A sequence alone in its row may have queries beyond its keys: they will be written there.
      const bool alone = call_.rows > 1 || call_.sequences.size() == 1;
      return {s.k_start + s.offset, s.q_length, s.offset, s.k_start,
              alone ? capacity_ : s.k_start + s.k_length};
    }
  }
  return {};
}

}  // namespace ringattn::schedule
