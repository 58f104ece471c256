// The problem as a value type: what one plan describes, checked and with all defaults filled in.
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include "ringattn.h"

namespace ringattn {

inline constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();
inline constexpr std::int64_t kMaxHeadDim = 576;
inline constexpr std::int32_t kMaxWorldSize = 4096;

enum class DType : std::int32_t {
  f32 = RINGATTN_DTYPE_F32,
  f16 = RINGATTN_DTYPE_F16,
  bf16 = RINGATTN_DTYPE_BF16
};
inline std::int64_t size_of(DType dtype) { return dtype == DType::f32 ? 4 : 2; }

enum class PartitionKind : std::int32_t {
  contiguous = RINGATTN_PARTITION_CONTIGUOUS,
  striped = RINGATTN_PARTITION_STRIPED,
  zigzag = RINGATTN_PARTITION_ZIGZAG,
  explicit_runs = RINGATTN_PARTITION_EXPLICIT
};
enum class Scope : std::int32_t {
  capacity = RINGATTN_SCOPE_CAPACITY,
  call = RINGATTN_SCOPE_CALL,
  document = RINGATTN_SCOPE_DOCUMENT
};

// Visible: query position - left <= key position <= query position + right, in the same sequence.
// kUnbounded = no bound.
struct Mask {
  std::int64_t left = kUnbounded;
  std::int64_t right = kUnbounded;
};

struct PositionRun {  // positions first, first + stride, ...
  std::int64_t first, length, stride;
  bool operator==(const PositionRun&) const = default;
};

struct Problem {
  std::int64_t batch = 1;
  std::int64_t seq_q = 0, seq_k = 0;  // capacity, global
  std::int64_t heads = 1, kv_heads = 1;
  std::int64_t head_dim_qk = 1, head_dim_v = 1;
  std::int64_t max_sequences = 1;
  DType dtype = DType::f32, dtype_out = DType::f32, dtype_grad = DType::f32;
  Mask mask;
  std::int32_t accuracy = RINGATTN_ACCURACY_DEFAULT;
  double scale = 1;
  PartitionKind partition = PartitionKind::contiguous;
  bool query_like_keys = true;  // LIKE_KEYS; false = BY_INDEX (AUTO is resolved)
  Scope scope = Scope::capacity;
  std::int32_t schedule = RINGATTN_SCHEDULE_RING;
  std::int64_t stripe = 1;
  std::uint32_t flags = 0;  // RINGATTN_PLAN_...
  // EXPLICIT only: runs of every rank, [rank] -> runs, known after agreement (or from a preview's facts).
  std::vector<std::vector<PositionRun>> runs_q, runs_k;

  std::int64_t group() const { return heads / kv_heads; }  // query heads per kv head
  bool backward() const { return (flags & RINGATTN_PLAN_BACKWARD) != 0; }
};

}  // namespace ringattn
