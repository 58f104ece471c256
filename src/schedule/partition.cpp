#include "schedule/partition.h"

#include <algorithm>

namespace ringattn::schedule {

Partition Partition::of_keys(const Problem& problem, std::int32_t world) {
  return {problem.partition, problem.stripe, world, &problem.runs_k};
}

Partition Partition::of_queries(const Problem& problem, std::int32_t world) {
  return {problem.partition, problem.stripe, world,
          problem.query_like_keys ? &problem.runs_k : &problem.runs_q};
}

namespace {

// Piece i of `count` pieces of 0..length-1, the first (length mod count) of them one longer.
Progression even_piece(std::int64_t length, std::int64_t count, std::int64_t i) {
  const std::int64_t quotient = length / count, longer = length % count;
  return {i * quotient + std::min(i, longer), quotient + (i < longer ? 1 : 0), 1};
}

}  // namespace

Cut::Cut(const Partition& partition, std::int32_t rank, std::int64_t length)
    : partition_(partition), rank_(rank), length_(length) {
  // A stripe longer than the axis is as good as one of its length, and cannot overflow.
  stripe_ = std::min(partition.stripe, std::max<std::int64_t>(length, 1));
  if (partition.world == 1) stripe_ = 1;
}

std::int64_t Cut::begin(std::int64_t from) const {
  return has_stripes() ? from / (partition_.world * stripe_) : 0;
}

std::int64_t Cut::end(std::int64_t to) const {
  switch (partition_.kind) {
    case PartitionKind::contiguous:
      return 1;
    case PartitionKind::zigzag:
      return 2;
    case PartitionKind::striped:
      return has_stripes() ? ceil_div(std::min(to, length_), partition_.world * stripe_) : 1;
    case PartitionKind::explicit_runs:
      return static_cast<std::int64_t>((*partition_.runs)[static_cast<std::size_t>(rank_)].size());
  }
  return 0;
}

Progression Cut::piece(std::int64_t i) const {
  const std::int64_t world = partition_.world;
  switch (partition_.kind) {
    case PartitionKind::contiguous:
      return even_piece(length_, world, rank_);
    case PartitionKind::zigzag:
      return even_piece(length_, 2 * world, i == 0 ? rank_ : 2 * world - 1 - rank_);
    case PartitionKind::striped: {
      const std::int64_t first = (i * world + rank_) * stripe_;
      const std::int64_t left = std::max<std::int64_t>(length_ - first, 0);
      return has_stripes() ? Progression{first, std::min(left, stripe_), 1}
                           : Progression{first, ceil_div(left, world), world};
    }
    case PartitionKind::explicit_runs: {
      const PositionRun& run =
          (*partition_.runs)[static_cast<std::size_t>(rank_)][static_cast<std::size_t>(i)];
      return {run.first, run.length, run.stride};
    }
  }
  return {0, 0, 1};
}

std::int64_t share_of(const Partition& partition, std::int32_t rank, std::int64_t length) {
  const std::int64_t world = partition.world;
  if (partition.kind == PartitionKind::striped) {  // whole turns round the ranks, then a rest
    const std::int64_t stripe = std::min(partition.stripe, std::max<std::int64_t>(length, 1));
    const std::int64_t turn = world * stripe;
    return length / turn * stripe + std::clamp<std::int64_t>(length % turn - rank * stripe, 0, stripe);
  }
  const Cut cut(partition, rank, length);
  std::int64_t sum = 0;
  for (std::int64_t i = cut.begin(0), end = cut.end(length); i < end; ++i) sum += cut.piece(i).length;
  return sum;
}

}  // namespace ringattn::schedule
