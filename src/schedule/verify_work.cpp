// Every visible pair is attended exactly once: each rank attends each block that it sees any of, once, and no
// other; and what all ranks see of all blocks is as much as the mask's definition makes visible, counted
// without shards.
#include <algorithm>
#include <cmath>

#include "schedule/progression.h"
#include "schedule/verify_parts.h"
#include "schedule/visible.h"

namespace ringattn::schedule {
namespace {

constexpr double kExact = 9007199254740992.0;  // 2^53

// Sum of clamp(first + i, 0, most) for 0 <= i < count.
Wide sum_clamped(Wide first, Wide count, Wide most) {
  const Wide from = std::clamp<Wide>(-first, 0, count);         // rows before it give 0
  const Wide to = std::clamp<Wide>(most - first, from, count);  // rows from here on give `most`
  const Wide ramp = to - from;
  return ramp * (first + from) + ramp * (ramp - 1) / 2 + (count - to) * most;
}

// The mask's definition for whole sequences: query i sees keys from i + offset - left to i + offset + right.
double all_pairs(const Call& call, const Mask& mask) {
  Wide pairs = 0;
  for (const Sequence& s : call.sequences) {
    const Wide upper = Wide(s.offset) + mask.right + 1, lower = Wide(s.offset) - mask.left;
    pairs += sum_clamped(upper, s.q_length, s.k_length) - sum_clamped(lower, s.q_length, s.k_length);
  }
  return static_cast<double>(pairs);
}

double pairs_of(const Subject& subject, std::int32_t rank, std::int32_t block) {
  double pairs = 0;
  for (std::int64_t row = 0; row < subject.layout.rows(); ++row) {
    pairs += visible_pairs(subject.layout.queries(rank, row), subject.layout.keys(block, row),
                           subject.problem.mask);
  }
  return pairs;
}

}  // namespace

Status verify_work(const Subject& subject) {
  const std::int32_t world = subject.layout.world();
  std::vector<std::int32_t> attended(static_cast<std::size_t>(world));
  double sum = 0;
  for (const Schedule& schedule : subject.schedules) {
    std::fill(attended.begin(), attended.end(), 0);
    for (const Operation& op : schedule.operations) {
      if (op.kind == Kind::attend) ++attended[static_cast<std::size_t>(op.block)];
    }
    for (std::int32_t block = 0; block < world; ++block) {
      const double pairs = pairs_of(subject, schedule.rank, block);
      const std::int32_t expected = pairs > 0 && subject.problem.batch > 0 ? 1 : 0;
      const std::int32_t found = attended[static_cast<std::size_t>(block)];
      if (found != expected) {
        return violation(schedule.rank, "block " + std::to_string(block) + " is attended " +
                                            std::to_string(found) + " times; expected " +
                                            std::to_string(expected));
      }
      sum += pairs;
    }
  }
  const double expected = all_pairs(subject.call, subject.problem.mask);
  if (std::abs(sum - expected) > (expected < kExact ? 0 : expected * 1e-12)) {
    return violation(
        0, "all ranks together see " + std::to_string(sum) + " pairs; expected " + std::to_string(expected));
  }
  return {};
}

}  // namespace ringattn::schedule
