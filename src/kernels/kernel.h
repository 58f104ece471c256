// The contract between the executor and a kernel. A kernel is chosen once, at plan time; nothing below
// branches on device or ISA.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/problem.h"

namespace ringattn::kernels {

// Query rows of all heads that share a kv head are flattened into lanes: lane index f = row * group +
// head-in-group. A tile is up to Kernel::lanes consecutive f of one (batch row, kv head), so that GQA
// shares each K/V row it loads, and no lane is wasted at a head's end.
inline constexpr int kMaxLanes = 64;
inline constexpr int kMaxBackwardLanes = 128;

struct Shape {
  std::int64_t head_dim_qk, head_dim_v;
  std::int64_t group;
  DType dtype, dtype_out;
  double scale;
  bool exact;        // RINGATTN_ACCURACY_EXACT
  DType dtype_grad;  // of dQ, dK, dV as the caller gets them
};

// Strides are in elements; the innermost (dim) stride is 1. Pointers may have any alignment.
struct QueryTile {
  const void* q;  // row 0 of the shard, first head of the group
  std::int64_t row_stride, head_stride;
  std::int64_t first;  // f of lane 0
  int lanes;           // 1..Kernel::lanes
  bool
      packed;  // the last attend with this scratch was for this same tile: its packed queries are still there
};

// Keys [begin, end) of one K/V block; k and v point at local key 0. Lane l sees keys [lo[l], hi[l]), within
// [begin, end) or empty.
struct KeyRange {
  const void* k;
  std::int64_t k_stride;
  const void* v;
  std::int64_t v_stride;
  std::int64_t begin, end;
  const std::int64_t* lo;
  const std::int64_t* hi;
  bool full;  // every lane sees all of [begin, end): lo and hi need not be read
};

struct OutputTile {
  void* o;  // row 0, first head of the group; dtype_out
  std::int64_t o_row_stride, o_head_stride;
  float* lse;  // the same, or null
  std::int64_t lse_row_stride, lse_head_stride;
  std::int64_t first;
  int lanes;
};

// The queries of a backward tile, with what forward left of them and what flows into them. Lanes as in QueryTile; q is in
// dtype, o and d_o in dtype_out.
struct GradientTile {
  struct Rows {
    const void* data;  // row 0 of the shard, first head of the group
    std::int64_t row_stride, head_stride;
  };
  Rows q, o, d_o;
  Rows lse;    // float, natural logarithm
  Rows d_lse;  // float; data is null where nothing flows into lse
  std::int64_t first;
  int lanes;    // 1..Backward::lanes
  bool packed;  // the last attend with this scratch was for this same tile
};

// Sums of dK and dV of one kv head, fp32, row j for local key j: rows head_dim_qk and head_dim_v floats apart.
struct KeyGradients {
  float* d_k;
  float* d_v;
};

struct QueryGradients {
  void* d_q;  // row 0, first head of the group; dtype_grad
  std::int64_t row_stride, head_stride;
  std::int64_t first;
  int lanes;       // to write
  int real_lanes;  // of them, the lanes that begin was given; the rest is padding and becomes 0
};

// State of a backward tile: lse, delta = rowsum(dO * O) - dlse and the sum of dQ per lane, fp32, in the kernel's own layout.
// attend adds one range of keys: to the state's dQ, and to the key gradients of that range (which the caller has zeroed
// before the first tile). The caller gives ranges of a tile, and tiles of a range, in a fixed order, and no two tiles work
// on the same range at the same time; with that the sums depend on nothing but the arguments. A lane whose lse is -inf
// although it sees keys (all its scores were -inf) makes what it adds to NaN. Non-finite values of a (query, key) pair that the mask hides must not reach anything (bitwise).
struct Backward {
  int lanes;
  std::int64_t keys_per_task;  // the executor gives ranges that do not cross multiples of this
  std::size_t (*state_bytes)(const Shape& shape);
  std::size_t (*scratch_bytes)(const Shape& shape);
  void (*begin)(const Shape& shape, const GradientTile& tile, void* state);
  void (*attend)(const Shape& shape, const GradientTile& tile, const KeyRange& keys,
                 const KeyGradients& gradients, void* state, void* scratch);
  void (*finalize)(const Shape& shape, const QueryGradients& out, const void* state);
};

// State of a tile: unnormalised O, row maximum m and row sum l per lane, fp32, in the kernel's own layout,
// 64-byte aligned. attend may be given key ranges in any order; the result depends on that order only by
// rounding, and on nothing else (not on scratch, thread or other tiles). A row that saw no key ends as O =
// 0, lse = -inf. Non-finite K/V must not reach rows that do not see it (bitwise).
struct Kernel {
  const char* name;  // "cpu.avx2", "cpu.reference"
  int lanes;
  // The executor splits a block into ranges at multiples of this, so that no call takes much over 100 ms.
  std::int64_t keys_per_task;
  std::string (*refuse)(const Problem& problem);  // empty = accepts; otherwise why not
  std::size_t (*state_bytes)(const Shape& shape);
  std::size_t (*scratch_bytes)(const Shape& shape);  // of one worker; 64-byte aligned
  void (*begin)(const Shape& shape, void* state);
  void (*attend)(const Shape& shape, const QueryTile& queries, const KeyRange& keys, void* state,
                 void* scratch);
  void (*finalize)(const Shape& shape, const OutputTile& out, const void* state);
  Backward backward;
};

// All kernels that this machine can run, best first; the last is the reference, which accepts every legal
// problem.
std::span<const Kernel* const> kernels();

struct Choice {
  const Kernel* kernel = nullptr;
  std::string refusal;   // when kernel is null: one line
  bool unknown = false;  // the forced name does not exist
};

// The first kernel that accepts. `forced` (RINGATTN_FORCE_KERNEL; empty = none) picks one by name or fails
// with the reason.
Choice choose(const Problem& problem, const std::string& forced);

// One row of ringattn_merge: o = weight_a * o_a + weight_b * o_b for `dim` elements; null o_* stands for
// zero weight (an empty row).
struct MergeRow {
  const void* o_a;
  DType dtype_a;
  const void* o_b;
  DType dtype_b;
  void* o;
  DType dtype;
  std::int64_t dim;
};
// Returns the merged lse.
float merge_row(const MergeRow& row, float lse_a, float lse_b);

}  // namespace ringattn::kernels
