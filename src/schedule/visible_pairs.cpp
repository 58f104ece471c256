#include <cstdint>

#include "schedule/key_runs.h"
#include "schedule/visible.h"

namespace ringattn::schedule {
namespace {

Wide sum(const Line& line, std::int64_t count) {
  const Wide n = count;
  if (line.step % line.divisor != 0) {
    return n * line.base + floor_sum(count, line.divisor, line.step, line.numerator);
  }
  return n * (line.base + line.numerator / line.divisor) + n * (n - 1) / 2 * (line.step / line.divisor);
}

// Local indices of one end of what each row of a query run sees, added up. Remembers the place for the next
// run.
class EndSum {
 public:
  Wide of(const KeyRuns& keys, std::int64_t bound, const Run& queries) {
    Wide total = 0;
    hint_ = lower_bounds(
        keys, near(keys), bound, queries.stride, queries.length,
        [&total](std::int64_t, std::int64_t rows, const Line& line) { total += sum(line, rows); });
    return total;
  }
  // The run where a single bound falls.
  const Run* run_at(const KeyRuns& keys, std::int64_t bound) {
    return hint_ = keys.run_at(near(keys), bound);
  }

 private:
  const Run* near(const KeyRuns& keys) const {
    return hint_ < keys.first || hint_ > keys.last ? keys.middle() : hint_;
  }
  const Run* hint_ = nullptr;
};

// Query runs one after the other against the keys of one segment.
class SegmentPairs {
 public:
  SegmentPairs(const Shard& keys, std::size_t segment, const Bounds& bounds)
      : reader_(keys, static_cast<std::int64_t>(segment)), bounds_(bounds) {}

  Wide count(const Run& queries) {
    const KeyRuns& keys = reader_.of_sequence(queries.sequence);
    if (keys.empty()) return 0;
    const Wide rows = queries.length;
    const Wide upper =
        bounds_.has_right ? upper_.of(keys, bounds_.upper(queries.position), queries) : rows * keys.end;
    const Wide lower =
        bounds_.has_left ? lower_.of(keys, bounds_.lower(queries.position), queries) : rows * keys.begin;
    return upper - lower;
  }

  bool any(const Run& queries) {
    const KeyRuns& keys = reader_.of_sequence(queries.sequence);
    if (keys.empty()) return false;
    // No key between the first row's lower and the last row's upper bound: nothing. Otherwise something, if
    // the windows of successive rows leave no gap; with gaps (a narrow window on a strided run) it has to be
    // counted.
    std::int64_t nearest = keys.first->position;
    if (bounds_.has_left) {
      const std::int64_t bound = bounds_.lower(queries.position);
      const Run* const run = lower_.run_at(keys, bound);
      if (run == keys.last) return false;
      nearest = run->position +
                (bound > run->position ? ceil_div(bound - run->position, run->stride) * run->stride : 0);
    }
    if (bounds_.has_right && nearest >= bounds_.upper(last_position(queries))) return false;
    const bool gaps = bounds_.has_left && bounds_.has_right && queries.length > 1 &&
                      Wide(bounds_.left) + bounds_.right + 1 < queries.stride;
    return !gaps || count(queries) > 0;
  }

 private:
  SegmentReader reader_;
  const Bounds& bounds_;
  EndSum lower_, upper_;
};

}  // namespace

bool any_visible(const Shard& queries, const Shard& keys, const Mask& mask) {
  const Bounds bounds(mask);
  for (std::size_t segment = 0; segment < keys.segments.size(); ++segment) {
    SegmentPairs pairs(keys, segment, bounds);
    for (const Run& run : queries.runs) {
      if (pairs.any(run)) return true;
    }
  }
  return false;
}

double visible_pairs(const Shard& queries, const Shard& keys, const Mask& mask) {
  const Bounds bounds(mask);
  Wide sum_of_all = 0;
  for (std::size_t segment = 0; segment < keys.segments.size(); ++segment) {
    SegmentPairs pairs(keys, segment, bounds);
    for (const Run& run : queries.runs) sum_of_all += pairs.count(run);
  }
  return static_cast<double>(sum_of_all);
}

}  // namespace ringattn::schedule
