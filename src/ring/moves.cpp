// Memory that an execution moves besides its tiles: the own K/V into wire form, arrived sums of gradients into own ones, dK
// and dV into the caller's tensors. In parts of about a megabyte, so that all workers share it and polling goes on.
#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/float_convert.h"
#include "ring/execution.h"

namespace ringattn::ring {

using schedule::Kind;
using schedule::Operation;

namespace {

constexpr std::int64_t kPartBytes = 1 << 20;

std::int64_t parts(std::int64_t count, std::int64_t most) { return (count + most - 1) / most; }

// Rows of K and V, all heads and batch rows together, that make a part.
std::int64_t rows_of_part(const Problem& p) {
  const std::int64_t bytes = (p.head_dim_qk + p.head_dim_v) * static_cast<std::int64_t>(sizeof(float));
  return std::max<std::int64_t>(1, kPartBytes / bytes);
}

constexpr std::int64_t kFloatsOfPart = kPartBytes / static_cast<std::int64_t>(sizeof(float));

void add_floats(float* target, const float* source, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) target[i] += source[i];
}

}  // namespace

std::int64_t Execution::parts_of(const Operation& operation) const {
  const Problem& p = plan_.problem;
  const std::int64_t heads = p.batch * p.kv_heads;
  if (operation.kind == Kind::pack) return parts(heads * layout_.local_keys(plan_.rank), rows_of_part(p));
  if (operation.kind == Kind::finalize) return parts(heads * tensors_.d_k.shape[1], rows_of_part(p));
  return parts(static_cast<std::int64_t>(operation.bytes / sizeof(float)), kFloatsOfPart);
}

void Execution::run_move(const Task& task, std::int32_t worker) {
  const Operation& operation = schedule_.operations[static_cast<std::size_t>(task.move)];
  const std::uint64_t start = now_ns();
  const std::int64_t rows = rows_of_part(plan_.problem);
  std::int64_t bytes = 0;
  if (operation.kind == Kind::pack) {
    bytes = pack_rows(task.tile * rows, (task.tile + 1) * rows);
  } else if (operation.kind == Kind::finalize) {
    bytes = write_key_gradients(operation.target >= 0, task.tile * rows, (task.tile + 1) * rows);
  } else {
    bytes = add_arrived(operation, task.tile);
  }
  trace_.add(RINGATTN_EVENT_MOVE, worker, -1, operation.block, task.move, start, now_ns(),
             static_cast<std::uint64_t>(bytes));
}

std::int64_t Execution::add_arrived(const Operation& operation, std::int64_t part) const {
  const auto* arrived =
      static_cast<const float*>(transfers_[static_cast<std::size_t>(operation.source)].data);
  auto* const sum = reinterpret_cast<float*>(workspace_ + plan_.backward.gradients[operation.target]);
  const auto all = static_cast<std::int64_t>(operation.bytes / sizeof(float));
  const std::int64_t first = part * kFloatsOfPart, count = std::min(kFloatsOfPart, all - first);
  if (operation.kind == Kind::copy) {
    std::copy_n(arrived + first, count, sum + first);
  } else {
    add_floats(sum + first, arrived + first, count);
  }
  return count * static_cast<std::int64_t>(sizeof(float));
}

// Rows are counted over [batch, kv_head, key]. In wire form all of K comes before all of V.
std::int64_t Execution::pack_rows(std::int64_t first, std::int64_t last) const {
  const Problem& p = plan_.problem;
  const std::int64_t keys = layout_.local_keys(plan_.rank), all = p.batch * p.kv_heads * keys;
  const auto k_bytes = static_cast<std::size_t>(p.head_dim_qk * size_of(p.dtype));
  const auto v_bytes = static_cast<std::size_t>(p.head_dim_v * size_of(p.dtype));
  std::byte* const k = workspace_ + layout_of_workspace().packed;
  std::byte* const v = k + static_cast<std::size_t>(all) * k_bytes;
  last = std::min(last, all);
  for (std::int64_t row = first; row < last; ++row) {
    const std::int64_t head = row / keys, key = row % keys;
    const std::int64_t batch = head / p.kv_heads, kv_head = head % p.kv_heads;
    std::memcpy(k + static_cast<std::size_t>(row) * k_bytes, tensors_.k.at(batch, key, kv_head), k_bytes);
    std::memcpy(v + static_cast<std::size_t>(row) * v_bytes, tensors_.v.at(batch, key, kv_head), v_bytes);
  }
  return (last - first) * static_cast<std::int64_t>(k_bytes + v_bytes);
}

// Rows are counted over [batch, kv_head, row of the tensor]: those beyond the shard are padding and become 0; so do all
// where no rank sees a key (`any` is false).
std::int64_t Execution::write_key_gradients(bool any, std::int64_t first, std::int64_t last) const {
  const Problem& p = plan_.problem;
  const std::int64_t keys = layout_.local_keys(plan_.rank), rows = tensors_.d_k.shape[1];
  const float zeros[kMaxHeadDim] = {};
  last = std::min(last, p.batch * p.kv_heads * rows);
  for (std::int64_t at = first; at < last; ++at) {
    const std::int64_t head = at / rows, row = at % rows;
    const std::int64_t batch = head / p.kv_heads, kv_head = head % p.kv_heads;
    const float* d_k = zeros;
    const float* d_v = zeros;
    if (any && row < keys) {
      const kernels::KeyGradients sums = key_gradients(schedule::kHomeGradient, plan_.rank, batch, kv_head);
      d_k = sums.d_k + row * p.head_dim_qk;
      d_v = sums.d_v + row * p.head_dim_v;
    }
    store_floats(d_k, p.head_dim_qk, tensors_.d_k.at(batch, row, kv_head), p.dtype_grad);
    store_floats(d_v, p.head_dim_v, tensors_.d_v.at(batch, row, kv_head), p.dtype_grad);
  }
  return (last - first) * (p.head_dim_qk + p.head_dim_v) * size_of(p.dtype_grad);
}

}  // namespace ringattn::ring
