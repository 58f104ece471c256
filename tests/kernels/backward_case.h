// Backward work for the kernel tests: some tiles of query lanes over one block of keys, the kernel's run over
// them, and what fp64 says. Written without the code under test.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/kernels/kernel_case.h"
#include "tests/kernels/limits.h"

namespace ringattn::kernels::test {

// A Case may have more lanes than a kernel takes at once: it is then cut into tiles.
struct BackwardCase : Case {
  BackwardCase(const Shape& the_shape, int lane_count, std::int64_t key_count, std::int64_t first_lane = 0,
               const Layout& layout = {})
      : Case(the_shape, lane_count, key_count, first_lane, layout),
        o(q.rows, shape.group, shape.head_dim_v, shape.dtype_out, layout.heads_outermost, layout.gap,
          layout.misalignment),
        d_o(q.rows, shape.group, shape.head_dim_v, shape.dtype_out, !layout.heads_outermost, layout.gap,
            layout.misalignment),
        lse(q.rows, shape.group, 1, DType::f32, layout.heads_outermost, layout.gap, layout.misalignment),
        d_lse(q.rows, shape.group, 1, DType::f32, !layout.heads_outermost, layout.gap, layout.misalignment) {}

  // Everything but the intervals, which are set before; lse and O are those of fp64, rounded.
  void fill_backward(std::mt19937_64& random, double q_spread = 1) {
    fill(random, q_spread);
    std::normal_distribution<double> normal(0, 1);
    const Truth truth = truth_of(*this);
    exact_o = truth.o;
    exact_lse = truth.lse;
    for (int lane = 0; lane < lanes; ++lane) {
      const std::int64_t row = row_of(lane), head = head_of(lane);
      lse.set(row, head, 0, static_cast<float>(exact_lse[static_cast<std::size_t>(lane)]));
      d_lse.set(row, head, 0, static_cast<float>(normal(random)));
      for (std::int64_t d = 0; d < shape.head_dim_v; ++d) {
        o.set(row, head, d,
              static_cast<float>(exact_o[static_cast<std::size_t>(lane * shape.head_dim_v + d)]));
        d_o.set(row, head, d, static_cast<float>(normal(random)));
      }
    }
  }
  std::vector<Array*> inputs() { return {&q, &k, &v, &o, &d_o, &lse, &d_lse}; }

  Array o, d_o, lse, d_lse;
  bool has_d_lse = true;
  std::vector<double> exact_o, exact_lse;
};

struct BackwardRun {
  std::vector<Range> ranges;
  int tile_lanes = 0;  // 0 = as many as the kernel takes
  bool tiles_innermost =
      true;            // all tiles of a range, then the next range; else the other way around, with `packed`
  int garbage = 0xff;  // what scratch and states hold before
};

struct Gradients {
  std::vector<float> d_q;       // [lane][dim_qk]
  std::vector<float> d_k, d_v;  // [key][dim]
  std::string broken;           // "" or which promise about memory was broken
};

// One kernel at work on a case. Scratch and states start as garbage.
class BackwardRunner {
 public:
  BackwardRunner(const Kernel& kernel, BackwardCase& test, const BackwardRun& how)
      : backward_(kernel.backward),
        test_(test),
        how_(how),
        tile_lanes_(how.tile_lanes == 0 ? backward_.lanes : std::min(how.tile_lanes, backward_.lanes)),
        scratch_(backward_.scratch_bytes(test.shape), 0),
        d_k_(static_cast<std::size_t>(4 * test.keys * test.shape.head_dim_qk), 4),
        d_v_(static_cast<std::size_t>(4 * test.keys * test.shape.head_dim_v), 12),
        d_q_(test.q.rows, test.shape.group, test.shape.head_dim_qk, test.shape.dtype_grad,
             test.o_layout.heads_outermost, test.o_layout.gap, test.o_layout.misalignment) {
    scratch_.fill(how.garbage);
    d_k_.fill(0);
    d_v_.fill(0);
    for (int first = 0; first < test.lanes; first += tile_lanes_) {
      states_.push_back(std::make_unique<GuardedBytes>(backward_.state_bytes(test.shape), 0));
      states_.back()->fill(how.garbage);
    }
  }

  Gradients run() {
    const std::vector<unsigned char> d_q_before = d_q_.bytes.copy();
    std::vector<std::vector<unsigned char>> before;
    for (Array* input : test_.inputs()) before.push_back(input->bytes.copy());
    for (Array* input : test_.inputs()) input->forbid_gaps();
    for (int tile = 0; tile < tiles(); ++tile)
      backward_.begin(test_.shape, gradient_tile(tile, false), state(tile));
    attend_all();
    d_q_.forbid_gaps();
    for (int tile = 0; tile < tiles(); ++tile) {
      const GradientTile whole = gradient_tile(tile, false);
      backward_.finalize(
          test_.shape,
          {d_q_.bytes.data(), d_q_.row_stride, d_q_.head_stride, whole.first, whole.lanes, whole.lanes},
          state(tile));
    }
    for (Array* array : test_.inputs()) array->bytes.allow_all();
    d_q_.bytes.allow_all();
    Gradients result = collect();
    if (d_q_.bytes.copy() != d_q_before) result.broken = "wrote to rows that are not the tile's";
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (test_.inputs()[i]->bytes.copy() != before[i]) result.broken = "wrote to its inputs";
    }
    return result;
  }

 private:
  int tiles() const { return static_cast<int>(states_.size()); }
  void* state(int tile) { return states_[static_cast<std::size_t>(tile)]->data(); }

  GradientTile gradient_tile(int tile, bool packed) {
    const auto rows = [](const Array& array) {
      return GradientTile::Rows{array.bytes.data(), array.row_stride, array.head_stride};
    };
    const int first = tile * tile_lanes_;
    GradientTile result{rows(test_.q),
                        rows(test_.o),
                        rows(test_.d_o),
                        rows(test_.lse),
                        rows(test_.d_lse),
                        test_.first + first,
                        std::min(tile_lanes_, test_.lanes - first),
                        packed};
    if (!test_.has_d_lse) result.d_lse.data = nullptr;
    return result;
  }

  void attend_all() {
    if (how_.tiles_innermost) {
      for (const Range& range : how_.ranges) {
        for (int tile = 0; tile < tiles(); ++tile) attend(tile, range, false);
      }
      return;
    }
    for (int tile = 0; tile < tiles(); ++tile) {
      bool packed = false;
      for (const Range& range : how_.ranges) attend(tile, range, std::exchange(packed, true));
    }
  }

  void attend(int tile, const Range& range, bool packed) {
    const GradientTile queries = gradient_tile(tile, packed);
    const std::int64_t base = range.rebased ? range.begin : 0;
    std::vector<std::int64_t> lo, hi;
    bool full = true;
    for (int lane = 0; lane < queries.lanes; ++lane) {
      const auto index = static_cast<std::size_t>(tile * tile_lanes_ + lane);
      lo.push_back(std::max(test_.lo[index], range.begin) - base);
      hi.push_back(std::min(test_.hi[index], range.end) - base);
      if (hi.back() <= lo.back()) lo.back() = hi.back() = range.begin - base;
      full = full && lo.back() == range.begin - base && hi.back() == range.end - base;
    }
    const auto at = [&](const Array& array) {
      return static_cast<const char*>(array.bytes.data()) + base * array.row_stride * size_of(array.dtype);
    };
    const KeyGradients gradients{static_cast<float*>(d_k_.data()) + base * test_.shape.head_dim_qk,
                                 static_cast<float*>(d_v_.data()) + base * test_.shape.head_dim_v};
    backward_.attend(test_.shape, queries,
                     {at(test_.k), test_.k.row_stride, at(test_.v), test_.v.row_stride, range.begin - base,
                      range.end - base, full ? nullptr : lo.data(), full ? nullptr : hi.data(), full},
                     gradients, state(tile), scratch_.data());
  }

  Gradients collect() {
    Gradients result;
    for (int lane = 0; lane < test_.lanes; ++lane) {
      const std::int64_t row = test_.row_of(lane), head = test_.head_of(lane);
      for (std::int64_t d = 0; d < test_.shape.head_dim_qk; ++d) {
        result.d_q.push_back(d_q_.get(row, head, d));
        d_q_.set(row, head, d, std::nanf(""));
      }
    }
    const auto floats_of = [](const GuardedBytes& bytes) {
      std::vector<float> floats(bytes.size() / 4);
      std::memcpy(floats.data(), bytes.data(), bytes.size());
      return floats;
    };
    result.d_k = floats_of(d_k_);
    result.d_v = floats_of(d_v_);
    std::vector<const GuardedBytes*> all{&scratch_, &d_k_, &d_v_, &d_q_.bytes};
    for (const auto& state : states_) all.push_back(state.get());
    for (const Array* input : test_.inputs()) all.push_back(&input->bytes);
    for (const GuardedBytes* bytes : all) {
      if (!bytes->guards_intact()) result.broken = "wrote outside a buffer";
    }
    return result;
  }

  const Backward& backward_;
  BackwardCase& test_;
  BackwardRun how_;
  int tile_lanes_;
  GuardedBytes scratch_, d_k_, d_v_;
  Array d_q_;
  std::vector<std::unique_ptr<GuardedBytes>> states_;
};

inline Gradients run_backward(const Kernel& kernel, BackwardCase& test, const BackwardRun& how) {
  return BackwardRunner(kernel, test, how).run();
}
inline Gradients run_backward(const Kernel& kernel, BackwardCase& test) {
  return run_backward(kernel, test, {{{0, test.keys}}});
}

// fp64 gradients from the same inputs, but with O and lse before they were rounded. The slack is D21's with
// |lse| beside A, since lse is rounded to float, and with what the rounding of O does to delta. It is
// doubled, because no plain implementation's error is added.
struct BackwardTruth {
  std::vector<double> d_q, d_k, d_v;
  std::vector<double> d_q_slack, d_k_slack, d_v_slack;
};

struct LaneTerms {
  double lse = 0;
  double delta = 0, delta_terms = 0, delta_rounding = 0;
};

inline LaneTerms lane_terms_of(const BackwardCase& test, int lane) {
  const std::int64_t row = test.row_of(lane), head = test.head_of(lane);
  LaneTerms terms;
  terms.lse = test.exact_lse[static_cast<std::size_t>(lane)];
  for (std::int64_t d = 0; d < test.shape.head_dim_v; ++d) {
    const double o = test.exact_o[static_cast<std::size_t>(lane * test.shape.head_dim_v + d)];
    const double d_o = test.d_o.get(row, head, d);
    terms.delta += o * d_o;
    terms.delta_terms += std::abs(o * d_o);
    terms.delta_rounding += std::abs(d_o) * std::abs(o - test.o.get(row, head, d));
  }
  if (!test.has_d_lse) return terms;
  terms.delta -= test.d_lse.get(row, head, 0);
  terms.delta_terms += std::abs(test.d_lse.get(row, head, 0));
  return terms;
}

// The products of one lane and key; `terms` are sums of their absolute values.
struct PairProducts {
  double score = 0, score_terms = 0;
  double d_probability = 0, d_probability_terms = 0;
};

inline PairProducts pair_products_of(const BackwardCase& test, int lane, std::int64_t key) {
  const std::int64_t row = test.row_of(lane), head = test.head_of(lane);
  PairProducts pair;
  for (std::int64_t d = 0; d < test.shape.head_dim_qk; ++d) {
    const double product = test.shape.scale * test.q.get(row, head, d) * test.k.get(key, 0, d);
    pair.score += product;
    pair.score_terms += std::abs(product);
  }
  for (std::int64_t d = 0; d < test.shape.head_dim_v; ++d) {
    const double product = double{test.d_o.get(row, head, d)} * test.v.get(key, 0, d);
    pair.d_probability += product;
    pair.d_probability_terms += std::abs(product);
  }
  return pair;
}

inline void add_pair(const BackwardCase& test, int lane, std::int64_t key, const LaneTerms& own,
                     BackwardTruth& truth) {
  const PairProducts pair = pair_products_of(test, lane, key);
  const std::int64_t row = test.row_of(lane), head = test.head_of(lane);
  const std::int64_t dim_qk = test.shape.head_dim_qk, dim_v = test.shape.head_dim_v;
  const double unit = 0x1p-22 * (1 + pair.score_terms + std::abs(own.lse));
  const double p = std::exp(pair.score - own.lse);
  const double d_score = test.shape.scale * p * (pair.d_probability - own.delta);
  const double d_score_slack =
      test.shape.scale * p * (unit * (pair.d_probability_terms + own.delta_terms) + own.delta_rounding);
  for (std::int64_t d = 0; d < dim_qk; ++d) {
    const auto query = static_cast<std::size_t>(lane * dim_qk + d);
    const auto place = static_cast<std::size_t>(key * dim_qk + d);
    const double q = test.q.get(row, head, d), k = test.k.get(key, 0, d);
    truth.d_q[query] += d_score * k;
    truth.d_q_slack[query] += d_score_slack * std::abs(k);
    truth.d_k[place] += d_score * q;
    truth.d_k_slack[place] += d_score_slack * std::abs(q);
  }
  for (std::int64_t d = 0; d < dim_v; ++d) {
    const auto place = static_cast<std::size_t>(key * dim_v + d);
    const double d_o = test.d_o.get(row, head, d);
    truth.d_v[place] += p * d_o;
    truth.d_v_slack[place] += unit * p * std::abs(d_o);
  }
}

inline BackwardTruth backward_truth_of(const BackwardCase& test) {
  BackwardTruth truth;
  const auto queries = static_cast<std::size_t>(test.lanes * test.shape.head_dim_qk);
  const auto keys = static_cast<std::size_t>(test.keys * test.shape.head_dim_qk);
  const auto values = static_cast<std::size_t>(test.keys * test.shape.head_dim_v);
  truth.d_q.resize(queries), truth.d_q_slack.resize(queries);
  truth.d_k.resize(keys), truth.d_k_slack.resize(keys);
  truth.d_v.resize(values), truth.d_v_slack.resize(values);
  for (int lane = 0; lane < test.lanes; ++lane) {
    const LaneTerms own = lane_terms_of(test, lane);
    for (std::int64_t j = 0; j < test.keys; ++j) {
      if (test.sees(lane, j)) add_pair(test, lane, j, own, truth);
    }
  }
  return truth;
}

inline std::string beyond_slack(const char* what, const std::vector<float>& result,
                                const std::vector<double>& truth, const std::vector<double>& slack,
                                DType dtype) {
  if (result.size() != truth.size()) return std::string(what) + ": wrong size";
  for (std::size_t i = 0; i < truth.size(); ++i) {
    const double limit = slack[i] + unit_in_last_place(dtype, truth[i]);
    if (std::abs(result[i] - truth[i]) <= limit) continue;  // false for NaN
    char text[200];
    std::snprintf(text, sizeof text, "%s[%zu] is %.9g, not %.9g: limit %.3g", what, i,
                  static_cast<double>(result[i]), truth[i], limit);
    return text;
  }
  return "";
}

// "" or the first element out of its limit.
inline std::string beyond_limit(const BackwardCase& test, const Gradients& result) {
  const BackwardTruth truth = backward_truth_of(test);
  const std::string d_q = beyond_slack("d_q", result.d_q, truth.d_q, truth.d_q_slack, test.shape.dtype_grad);
  if (!d_q.empty()) return d_q;
  const std::string d_k = beyond_slack("d_k", result.d_k, truth.d_k, truth.d_k_slack, DType::f32);
  return d_k.empty() ? beyond_slack("d_v", result.d_v, truth.d_v, truth.d_v_slack, DType::f32) : d_k;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) { return same_bits(x, y); });
}
inline bool same_bits(const Gradients& a, const Gradients& b) {
  return same_bits(a.d_q, b.d_q) && same_bits(a.d_k, b.d_k) && same_bits(a.d_v, b.d_v);
}

}  // namespace ringattn::kernels::test
