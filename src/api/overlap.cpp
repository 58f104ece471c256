#include "api/overlap.h"

#include <algorithm>
#include <array>

namespace ringattn::api {
namespace {

// A tensor's bytes: runs of `run` bytes, repeated along up to four axes. Strides in bytes, the smallest first.
struct Runs {
  struct Axis {
    __int128 stride;
    std::int64_t count;
  };
  std::array<Axis, 4> axes{};
  int depth = 0;
  __int128 run;

  explicit Runs(const TensorView& t) : run(t.element) {
    for (int i = 0; i < 4; ++i) {
      if (t.shape[i] > 1 && t.stride[i] > 0)
        insert({static_cast<__int128>(t.stride[i]) * t.element, t.shape[i]});
    }
    join_dense();
  }

  __int128 span() const {
    __int128 bytes = run;
    for (int i = 0; i < depth; ++i) bytes += of(i).stride * (of(i).count - 1);
    return bytes;
  }
  const Axis& of(int i) const { return axes[static_cast<std::size_t>(i)]; }

 private:
  void insert(const Axis& axis) {
    std::size_t at = static_cast<std::size_t>(depth++);
    for (; at > 0 && axes[at - 1].stride > axis.stride; --at) axes[at] = axes[at - 1];
    axes[at] = axis;
  }
  // Axes whose runs touch are one longer run.
  void join_dense() {
    int joined = 0;
    while (joined < depth && of(joined).stride <= run) {
      run += of(joined).stride * (of(joined).count - 1);
      ++joined;
    }
    std::copy(axes.begin() + joined, axes.begin() + depth, axes.begin());
    depth -= joined;
  }
};

// Looks for indices i of a and j of b with -b.run < first_b + j.stride_b - first_a - i.stride_a < a.run. Axes that
// a and b have in common are one unknown j - i. Outer axes first: what the inner ones can still add leaves few
// values of an outer one, where strides are nested.
class Search {
 public:
  Search(const Runs& a, const Runs& b) : run_a_(a.run), run_b_(b.run) {
    int i = a.depth, j = b.depth;
    while (i > 0 || j > 0) {
      const __int128 s = i > 0 ? a.of(i - 1).stride : 0, t = j > 0 ? b.of(j - 1).stride : 0;
      Unknown unknown{std::max(s, t), 0, 0};
      if (s >= t) unknown.least = 1 - a.of(--i).count;
      if (t >= s) unknown.most = b.of(--j).count - 1;
      unknowns_[static_cast<std::size_t>(depth_++)] = unknown;
    }
  }

  bool found(__int128 first_b_minus_a) { return found(0, first_b_minus_a); }

 private:
  struct Unknown {
    __int128 stride;
    std::int64_t least, most;
  };

  static __int128 floor_div(__int128 x, __int128 y) { return x / y - (x % y < 0 ? 1 : 0); }

  bool found(int level, __int128 distance) {
    if (level == depth_) return -run_b_ < distance && distance < run_a_;
    const Unknown& own = unknowns_[static_cast<std::size_t>(level)];
    __int128 inner_least = 0, inner_most = 0;
    for (int i = level + 1; i < depth_; ++i) {
      const Unknown& inner = unknowns_[static_cast<std::size_t>(i)];
      inner_least += inner.stride * inner.least;
      inner_most += inner.stride * inner.most;
    }
    const __int128 low = -run_b_ + 1 - distance - inner_most, high = run_a_ - 1 - distance - inner_least;
    const __int128 from = std::max<__int128>(own.least, -floor_div(-low, own.stride)),
                   to = std::min<__int128>(own.most, floor_div(high, own.stride));
    for (__int128 x = from; x <= to && steps_ < kMostSteps; ++x) {
      ++steps_;
      if (found(level + 1, distance + own.stride * x)) return true;
    }
    return false;
  }

  static constexpr std::int64_t kMostSteps = 1 << 22;
  const __int128 run_a_, run_b_;
  std::array<Unknown, 8> unknowns_{};
  int depth_ = 0;
  std::int64_t steps_ = 0;
};

}  // namespace

__int128 bytes_spanned(const TensorView& t) { return t.empty() ? 0 : Runs(t).span(); }

bool overlap(const TensorView& a, const TensorView& b) {
  if (a.empty() || b.empty()) return false;
  const Runs runs_a(a), runs_b(b);
  const __int128 first_a = reinterpret_cast<std::uintptr_t>(a.data),
                 first_b = reinterpret_cast<std::uintptr_t>(b.data);
  if (first_a + runs_a.span() <= first_b || first_b + runs_b.span() <= first_a) return false;
  return Search(runs_a, runs_b).found(first_b - first_a);
}

}  // namespace ringattn::api
