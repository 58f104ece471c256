#include "schedule/visible.h"

#include <algorithm>

#include "schedule/key_runs.h"

namespace ringattn::schedule {
namespace {

void fill(const Line& line, std::int64_t count, std::int64_t* out) {
  if (line.step == 0) {
    std::fill_n(out, count, line.base + line.numerator);
    return;
  }
  // One division for the stretch; then quotient and remainder go on by whole steps.
  std::int64_t quotient = line.numerator / line.divisor, rest = line.numerator % line.divisor;
  const std::int64_t step = line.step / line.divisor, step_rest = line.step % line.divisor;
  quotient += line.base;
  if (step_rest == 0) {
    for (std::int64_t i = 0; i < count; ++i, quotient += step) out[i] = quotient;
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = quotient;
    quotient += step;
    rest += step_rest;
    if (rest >= line.divisor) {
      rest -= line.divisor;
      ++quotient;
    }
  }
}

// One end of what the rows of one query run see, the first of them at key position `bound`. Remembers the
// place for the next run.
class End {
 public:
  void write(const KeyRuns& keys, std::int64_t bound, std::int64_t stride, std::int64_t count,
             std::int64_t* out) {
    if (hint_ < keys.first || hint_ > keys.last) hint_ = keys.middle();
    hint_ = lower_bounds(
        keys, hint_, bound, stride, count,
        [out](std::int64_t i, std::int64_t rows, const Line& line) { fill(line, rows, out + i); });
  }

 private:
  const Run* hint_ = nullptr;
};

}  // namespace

void visible_keys(const Shard& queries, std::int64_t first, std::int64_t count, const Shard& keys,
                  std::int64_t segment, const Mask& mask, std::int64_t* lo, std::int64_t* hi) {
  if (count <= 0) return;
  const Bounds bounds(mask);
  auto run = std::partition_point(queries.runs.begin(), queries.runs.end(),
                                  [=](const Run& r) { return r.local + r.length <= first; });
  SegmentReader reader(keys, segment);
  End lower, upper;
  for (std::int64_t done = 0; done < count; ++run) {
    const std::int64_t skipped = first + done - run->local;
    const std::int64_t rows = std::min(run->length - skipped, count - done);
    const std::int64_t position = run->position + skipped * run->stride;
    const KeyRuns& seen = reader.of_sequence(run->sequence);
    if (bounds.has_left && !seen.empty()) {
      lower.write(seen, bounds.lower(position), run->stride, rows, lo + done);
    } else {
      std::fill_n(lo + done, rows, seen.begin);
    }
    if (bounds.has_right && !seen.empty()) {
      upper.write(seen, bounds.upper(position), run->stride, rows, hi + done);
    } else {
      std::fill_n(hi + done, rows, seen.end);
    }
    done += rows;
  }
}

}  // namespace ringattn::schedule
