// Where positions fall among key runs. A mask's bound is a progression of positions, one for each query row
// of a run; this turns it into local key indices a stretch of rows at a time, so that nobody searches row by
// row.
#pragma once
#include <algorithm>
#include <cstdint>

#include "schedule/layout.h"
#include "schedule/progression.h"

namespace ringattn::schedule {

inline std::int64_t last_position(const Run& run) { return run.position + (run.length - 1) * run.stride; }

// Bounds farther away than this see everything: positions are at most 2^60 + 2^41 in magnitude.
inline constexpr std::int64_t kFarAway = std::int64_t{1} << 62;

// The first run of first..last-1 for which `before`, true for a beginning of them, is false. Looks near
// `hint` first: successive query runs ask for successive places.
template <typename Before>
const Run* search_near(const Run* hint, const Run* first, const Run* last, Before&& before) {
  std::ptrdiff_t step = 1;
  if (hint != last && before(*hint)) {
    const Run* low = hint + 1;
    for (; last - low >= step && before(low[step - 1]); step *= 2) low += step;
    return std::partition_point(low, last - low >= step ? low + (step - 1) : last, before);
  }
  const Run* high = hint;
  for (; high - first >= step && !before(high[-step]); step *= 2) high -= step;
  return std::partition_point(high - first >= step ? high - (step - 1) : first, high, before);
}

// Key runs of one sequence in one segment; positions grow from run to run.
struct KeyRuns {
  const Run* first = nullptr;
  const Run* last = nullptr;
  std::int64_t begin = 0, end = 0;  // local indices

  bool empty() const { return first == last; }
  const Run* middle() const { return first + (last - first) / 2; }

  // The first run with a position that is not below `position`.
  const Run* run_at(const Run* hint, std::int64_t position) const {
    return search_near(hint, first, last, [=](const Run& run) { return last_position(run) < position; });
  }
};

// Finds the runs of one sequence after the other in a segment.
class SegmentReader {
 public:
  SegmentReader(const Shard& keys, std::int64_t segment) {
    const auto at = static_cast<std::size_t>(segment);
    const Run* const runs = keys.runs.data();
    first_ = runs + keys.segments[at];
    last_ = at + 1 < keys.segments.size() ? runs + keys.segments[at + 1] : runs + keys.runs.size();
    found_.first = found_.last = first_ + (last_ - first_) / 2;
  }

  const KeyRuns& of_sequence(std::int64_t sequence) {
    if (sequence == sequence_) return found_;
    const Run* const first =
        search_near(found_.last, first_, last_, [=](const Run& run) { return run.sequence < sequence; });
    const Run* const last =
        search_near(first, first, last_, [=](const Run& run) { return run.sequence == sequence; });
    sequence_ = sequence;
    found_ = {first, last};
    if (first != last) found_ = {first, last, first->local, (last - 1)->local + (last - 1)->length};
    return found_;
  }

 private:
  const Run* first_;
  const Run* last_;
  std::int64_t sequence_ = -1;
  KeyRuns found_;
};

// For rows i of a stretch: base + floor((numerator + i * step) / divisor).
struct Line {
  std::int64_t base, numerator, step, divisor;
};

// Local index of the first key that is not below position + i * step, for 0 <= i < count, as stretches of
// rows: emit(i, n, line) stands for rows i..i+n-1. Stretches are in order. Returns the run where the last row
// fell: the hint for the next.
template <typename Emit>
const Run* lower_bounds(const KeyRuns& keys, const Run* hint, std::int64_t position, std::int64_t step,
                        std::int64_t count, Emit&& emit) {
  const Run* run = keys.run_at(hint, position);
  for (std::int64_t i = 0; i < count;) {
    if (run == keys.last) {
      emit(i, count - i, Line{keys.end, 0, 0, 1});
      break;
    }
    const bool before = position <= run->position;
    const std::int64_t until = before ? run->position : last_position(*run);
    std::int64_t rows = count - i;
    if (position + (rows - 1) * step > until) rows = (until - position) / step + 1;
    if (before) {
      emit(i, rows, Line{run->local, 0, 0, 1});
    } else {
      emit(i, rows, Line{run->local, position - run->position + run->stride - 1, step, run->stride});
    }
    i += rows;
    position += rows * step;
    if (i < count && position > last_position(*run)) run = keys.run_at(run, position);
  }
  return run;
}

// Bounds of the mask as positions of keys; a row sees keys from (lower of its position) to below (upper of
// its position).
struct Bounds {
  explicit Bounds(const Mask& mask)
      : has_left(mask.left < kFarAway),
        has_right(mask.right < kFarAway),
        left(mask.left),
        right(mask.right) {}
  std::int64_t lower(std::int64_t position) const { return position - left; }
  std::int64_t upper(std::int64_t position) const { return position + right + 1; }

  bool has_left, has_right;
  std::int64_t left, right;
};

}  // namespace ringattn::schedule
