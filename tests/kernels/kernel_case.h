// One tile of work for the kernel tests: inputs in guarded memory, the kernel's run over it, and what fp64 says.
// Written without the code under test: its own conversions, its own attention.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernel.h"
#include "tests/kernels/guarded_bytes.h"
#include "tests/support/half.h"

namespace ringattn::kernels::test {

inline float read(const void* data, DType dtype, std::int64_t index) {
  if (dtype == DType::f32) {
    float value;
    std::memcpy(&value, static_cast<const char*>(data) + 4 * index, 4);
    return value;
  }
  std::uint16_t half;
  std::memcpy(&half, static_cast<const char*>(data) + 2 * index, 2);
  return dtype == DType::bf16 ? support::bf16_to_float(half) : support::f16_to_float(half);
}

inline void write(void* data, DType dtype, std::int64_t index, float value) {
  if (dtype == DType::f32) {
    std::memcpy(static_cast<char*>(data) + 4 * index, &value, 4);
    return;
  }
  const std::uint16_t half =
      dtype == DType::bf16 ? support::float_to_bf16(value) : support::float_to_f16(value);
  std::memcpy(static_cast<char*>(data) + 2 * index, &half, 2);
}

inline ringattn_dtype public_dtype(DType dtype) { return static_cast<ringattn_dtype>(dtype); }

// A strided array [rows][heads][dim] whose gaps hold NaN (and are poisoned under AddressSanitizer).
struct Array {
  Array(std::int64_t row_count, std::int64_t head_count, std::int64_t dim_count, DType type,
        bool heads_outermost, std::int64_t gap, std::size_t misalignment)
      : rows(row_count),
        heads(head_count),
        dim(dim_count),
        dtype(type),
        row_stride(heads_outermost ? dim + gap : heads * (dim + gap)),
        head_stride(heads_outermost ? rows * (dim + gap) : dim + gap),
        elements(std::max<std::int64_t>(rows * heads * (dim + gap) - gap, 0)),
        bytes(static_cast<std::size_t>(elements * size_of(type)), misalignment) {
    for (std::int64_t i = 0; i < elements; ++i) write(bytes.data(), dtype, i, std::nanf(""));
  }
  std::int64_t place(std::int64_t row, std::int64_t head, std::int64_t d) const {
    return row * row_stride + head * head_stride + d;
  }
  float get(std::int64_t row, std::int64_t head, std::int64_t d) const {
    return read(bytes.data(), dtype, place(row, head, d));
  }
  void set(std::int64_t row, std::int64_t head, std::int64_t d, float value) {
    write(bytes.data(), dtype, place(row, head, d), value);
  }
  // Bytes of [row, head, 0..dim) may be touched, everything else of the array may not.
  void forbid_gaps() {
    bytes.forbid();
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t head = 0; head < heads; ++head) {
        bytes.allow(static_cast<std::size_t>(place(row, head, 0) * size_of(dtype)),
                    static_cast<std::size_t>(dim * size_of(dtype)));
      }
    }
  }

  std::int64_t rows, heads, dim;
  DType dtype;
  std::int64_t row_stride, head_stride, elements;
  GuardedBytes bytes;
};

struct Layout {
  bool heads_outermost = false;
  std::int64_t gap = 0;          // elements between rows
  std::size_t misalignment = 0;  // bytes
};

struct Case {
  Case(const Shape& the_shape, int lane_count, std::int64_t key_count, std::int64_t first_lane = 0,
       const Layout& layout = {})
      : shape(the_shape),
        lanes(lane_count),
        keys(key_count),
        first(first_lane),
        q((first + lanes - 1) / shape.group + 1, shape.group, shape.head_dim_qk, shape.dtype,
          layout.heads_outermost, layout.gap, layout.misalignment),
        k(keys, 1, shape.head_dim_qk, shape.dtype, false, layout.gap, layout.misalignment),
        v(keys, 1, shape.head_dim_v, shape.dtype, false, layout.gap, layout.misalignment),
        o_layout(layout),
        lo(static_cast<std::size_t>(lanes), 0),
        hi(static_cast<std::size_t>(lanes), keys) {}

  void fill(std::mt19937_64& random, double q_spread = 1, double k_spread = 1, double v_spread = 1) {
    const auto fill_array = [&](Array& array, double spread) {
      std::normal_distribution<double> normal(0, spread);
      for (std::int64_t r = 0; r < array.rows; ++r) {
        for (std::int64_t h = 0; h < array.heads; ++h) {
          for (std::int64_t d = 0; d < array.dim; ++d) array.set(r, h, d, static_cast<float>(normal(random)));
        }
      }
    };
    fill_array(q, q_spread);
    fill_array(k, k_spread);
    fill_array(v, v_spread);
  }
  std::int64_t row_of(int lane) const { return (first + lane) / shape.group; }
  std::int64_t head_of(int lane) const { return (first + lane) % shape.group; }
  bool sees(int lane, std::int64_t key) const {
    return key >= lo[static_cast<std::size_t>(lane)] && key < hi[static_cast<std::size_t>(lane)];
  }

  Shape shape;
  int lanes;
  std::int64_t keys, first;
  Array q, k, v;
  Layout o_layout;
  std::vector<std::int64_t> lo, hi;
};

struct Range {
  std::int64_t begin, end;
  bool rebased = false;  // handed over as a block of its own: pointers at key `begin`, keys from 0
};

struct Result {
  std::vector<float> o;    // [lane][dim_v]
  std::vector<float> lse;  // [lane]
  std::string broken;      // "" or which promise about memory was broken
};

inline bool same_bits(float a, float b) { return support::bits_of(a) == support::bits_of(b); }

inline void attend_range(const Kernel& kernel, const Case& test, const Range& range, bool packed, void* state,
                         void* scratch) {
  const QueryTile tile{test.q.bytes.data(), test.q.row_stride, test.q.head_stride,
                       test.first,          test.lanes,        packed};
  const std::int64_t base = range.rebased ? range.begin : 0;
  std::vector<std::int64_t> lo, hi;
  bool full = true;
  for (std::size_t lane = 0; lane < test.lo.size(); ++lane) {
    lo.push_back(std::max(test.lo[lane], range.begin) - base);
    hi.push_back(std::min(test.hi[lane], range.end) - base);
    if (hi.back() <= lo.back()) lo.back() = hi.back() = range.begin - base;
    full = full && lo.back() == range.begin - base && hi.back() == range.end - base;
  }
  const auto at = [&](const Array& array) {
    return static_cast<const char*>(array.bytes.data()) + base * array.row_stride * size_of(array.dtype);
  };
  kernel.attend(test.shape, tile,
                {at(test.k), test.k.row_stride, at(test.v), test.v.row_stride, range.begin - base,
                 range.end - base, full ? nullptr : lo.data(), full ? nullptr : hi.data(), full},
                state, scratch);
}

// Runs the kernel over the ranges in their order. Scratch starts as garbage, so nothing may depend on it.
inline Result run(const Kernel& kernel, Case& test, const std::vector<Range>& ranges, int garbage = 0xff) {
  GuardedBytes state(kernel.state_bytes(test.shape), 0), scratch(kernel.scratch_bytes(test.shape), 0);
  state.fill(garbage);
  scratch.fill(garbage);
  Array o(test.q.rows, test.shape.group, test.shape.head_dim_v, test.shape.dtype_out,
          test.o_layout.heads_outermost, test.o_layout.gap, test.o_layout.misalignment);
  Array lse(test.q.rows, test.shape.group, 1, DType::f32, !test.o_layout.heads_outermost, test.o_layout.gap,
            test.o_layout.misalignment);
  const std::vector<unsigned char> o_before = o.bytes.copy(), lse_before = lse.bytes.copy();
  const std::vector<unsigned char> q_before = test.q.bytes.copy(), k_before = test.k.bytes.copy(),
                                   v_before = test.v.bytes.copy();
  for (Array* input : {&test.q, &test.k, &test.v}) input->forbid_gaps();

  kernel.begin(test.shape, state.data());
  bool packed = false;
  for (const Range& range : ranges) {
    attend_range(kernel, test, range, packed, state.data(), scratch.data());
    packed = true;
  }
  o.forbid_gaps();
  lse.forbid_gaps();
  kernel.finalize(test.shape,
                  {o.bytes.data(), o.row_stride, o.head_stride, static_cast<float*>(lse.bytes.data()),
                   lse.row_stride, lse.head_stride, test.first, test.lanes},
                  state.data());
  for (Array* array : {&test.q, &test.k, &test.v, &o, &lse}) array->bytes.allow_all();

  Result result;
  for (int lane = 0; lane < test.lanes; ++lane) {
    const std::int64_t row = test.row_of(lane), head = test.head_of(lane);
    result.lse.push_back(lse.get(row, head, 0));
    lse.set(row, head, 0, std::nanf(""));
    for (std::int64_t d = 0; d < test.shape.head_dim_v; ++d) {
      result.o.push_back(o.get(row, head, d));
      o.set(row, head, d, std::nanf(""));
    }
  }
  if (o.bytes.copy() != o_before || lse.bytes.copy() != lse_before)
    result.broken = "wrote to rows that are not the tile's";
  if (test.q.bytes.copy() != q_before || test.k.bytes.copy() != k_before || test.v.bytes.copy() != v_before) {
    result.broken = "wrote to its inputs";
  }
  for (const GuardedBytes* bytes :
       {&state, &scratch, &o.bytes, &lse.bytes, &test.q.bytes, &test.k.bytes, &test.v.bytes}) {
    if (!bytes->guards_intact()) result.broken = "wrote outside a buffer";
  }
  return result;
}

inline Result run(const Kernel& kernel, Case& test) { return run(kernel, test, {{0, test.keys}}); }

// fp64 attention of one tile, and D21's slack terms. Scores of -inf throughout give NaN, as the formula does.
struct Truth {
  std::vector<double> o, lse;              // [lane][dim_v], [lane]
  std::vector<double> o_slack, lse_slack;  // without the ulp of the output
};

inline Truth truth_of(const Case& test) {
  constexpr double kUnit = 0x1p-23;
  Truth truth;
  for (int lane = 0; lane < test.lanes; ++lane) {
    std::vector<double> scores;
    std::vector<std::int64_t> seen;
    double largest_terms = 0, maximum = -std::numeric_limits<double>::infinity();
    for (std::int64_t j = 0; j < test.keys; ++j) {
      if (!test.sees(lane, j)) continue;
      double sum = 0, terms = 0;
      for (std::int64_t d = 0; d < test.shape.head_dim_qk; ++d) {
        const double product =
            double{test.q.get(test.row_of(lane), test.head_of(lane), d)} * test.k.get(j, 0, d);
        sum += product;
        terms += std::abs(product);
      }
      scores.push_back(test.shape.scale * sum);
      seen.push_back(j);
      largest_terms = std::max(largest_terms, test.shape.scale * terms);
      maximum = std::max(maximum, scores.back());
    }
    double sum = 0;
    std::vector<double> o(static_cast<std::size_t>(test.shape.head_dim_v), 0), o_terms(o);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const double p = std::exp(scores[i] - maximum);
      sum += p;
      for (std::size_t d = 0; d < o.size(); ++d) {
        const double value = test.v.get(seen[i], 0, static_cast<std::int64_t>(d));
        o[d] += p * value;
        o_terms[d] += p * std::abs(value);
      }
    }
    const bool empty = seen.empty();
    for (std::size_t d = 0; d < o.size(); ++d) {
      truth.o.push_back(empty ? 0 : o[d] / sum);
      truth.o_slack.push_back(empty ? 0 : kUnit * (1 + largest_terms) * o_terms[d] / sum);
    }
    truth.lse.push_back(empty ? maximum : maximum + std::log(sum));
    truth.lse_slack.push_back(
        empty ? 0 : kUnit * (1 + largest_terms) * (1 + std::abs(maximum) + std::abs(std::log(sum))));
  }
  return truth;
}

// D21's plain implementation of one tile.
inline Result plain_of(const Case& test) {
  Result result;
  const auto dtype = public_dtype(test.shape.dtype);
  for (int lane = 0; lane < test.lanes; ++lane) {
    std::vector<float> scores;
    std::vector<std::int64_t> seen;
    float maximum = -std::numeric_limits<float>::infinity();
    for (std::int64_t j = 0; j < test.keys; ++j) {
      if (!test.sees(lane, j)) continue;
      float sum = 0;
      for (std::int64_t d = 0; d < test.shape.head_dim_qk; ++d) {
        sum += test.q.get(test.row_of(lane), test.head_of(lane), d) * test.k.get(j, 0, d);
      }
      scores.push_back(static_cast<float>(test.shape.scale) * sum);
      seen.push_back(j);
      maximum = std::max(maximum, scores.back());
    }
    float sum = 0;
    std::vector<float> o(static_cast<std::size_t>(test.shape.head_dim_v), 0);
    for (std::size_t i = 0; i < seen.size(); ++i) sum += std::exp(scores[i] - maximum);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const float p = support::round_to(dtype, std::exp(scores[i] - maximum) / sum);
      for (std::size_t d = 0; d < o.size(); ++d)
        o[d] += p * test.v.get(seen[i], 0, static_cast<std::int64_t>(d));
    }
    for (float value : o) result.o.push_back(support::round_to(public_dtype(test.shape.dtype_out), value));
    result.lse.push_back(seen.empty() ? maximum : maximum + std::log(sum));
  }
  return result;
}

}  // namespace ringattn::kernels::test
