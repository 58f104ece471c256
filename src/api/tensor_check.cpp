#include "api/tensor_check.h"

#include <algorithm>
#include <string>

#include "api/read_struct.h"

namespace ringattn::api {
namespace {

constexpr const char* kAxes[4] = {"batch", "seq", "head", "dim"};
constexpr const char* kLseAxes[4] = {"batch", "head", "seq", "dim"};

std::string shown(std::int64_t value) { return std::to_string(value); }

std::string list_of(const std::int64_t (&values)[4]) {
  return shown(values[0]) + ", " + shown(values[1]) + ", " + shown(values[2]) + ", " + shown(values[3]);
}

std::int64_t element_size(std::int32_t dtype) {
  switch (dtype) {
    case RINGATTN_DTYPE_F32:
    case RINGATTN_DTYPE_I32:
      return 4;
    case RINGATTN_DTYPE_F16:
    case RINGATTN_DTYPE_BF16:
      return 2;
    case RINGATTN_DTYPE_I64:
      return 8;
    default:
      return 0;
  }
}

Status check_shape(const std::string& name, const ringattn_tensor& t, const std::int64_t (&wanted)[4]) {
  const auto& axes = name.ends_with("lse") ? kLseAxes : kAxes;
  for (int axis = 0; axis < 4; ++axis) {
    if (t.shape[axis] >= 0 && (wanted[axis] < 0 || t.shape[axis] == wanted[axis])) continue;
    return invalid(name + ".shape[" + shown(axis) + "] (" + axes[axis] + "): " + shown(t.shape[axis]) +
                   ", expected " + (wanted[axis] < 0 ? "at least 0" : shown(wanted[axis])));
  }
  return {};
}

// Elements from the first to the last, both included. Does it all fit into 62 bits of bytes?
bool span_of(const TensorView& t, __int128* span) {
  __int128 last = 0;
  for (int axis = 0; axis < 4; ++axis) last += static_cast<__int128>(t.shape[axis] - 1) * t.stride[axis];
  *span = last + 1;
  return (last + 1) * t.element < (static_cast<__int128>(1) << 62);
}

// Every index has an element of its own when, from the smallest stride up, each stride steps over all below
// it.
bool overlaps_itself(const TensorView& t) {
  int order[4] = {0, 1, 2, 3};
  std::sort(order, order + 4, [&](int a, int b) { return t.stride[a] < t.stride[b]; });
  __int128 below = 1;
  for (const int axis : order) {
    if (t.shape[axis] <= 1) continue;
    if (t.stride[axis] < below) return true;
    below = static_cast<__int128>(t.stride[axis]) * (t.shape[axis] - 1) + below;
  }
  return false;
}

Status check_strides(const std::string& name, const TensorView& t, TensorUse use) {
  if (t.empty()) return {};
  for (int axis = 0; axis < 4; ++axis) {
    if (t.stride[axis] < 0) {
      return invalid(name + ".stride[" + shown(axis) + "]: " + shown(t.stride[axis]) +
                     ", expected at least 0");
    }
  }
  if (t.shape[3] > 1 && t.stride[3] != 1)
    return invalid(name + ".stride[3] (dim): " + shown(t.stride[3]) + ", expected 1");
  __int128 span = 0;
  if (!span_of(t, &span)) {
    return invalid(name + ".shape, .stride: " + list_of(t.shape) + " and " + list_of(t.stride) +
                   ", expected less than 2^62 bytes from the first element to the last");
  }
  if (use == TensorUse::output && overlaps_itself(t)) {
    return invalid(name + ".stride: " + list_of(t.stride) +
                   ", expected an output without elements that share memory");
  }
  if (t.data == nullptr)
    return invalid(name + ".data: NULL, expected memory for " + shown(t.shape[1]) + " rows");
  return {};
}

Status in_capacity(const char* name, std::int64_t rows, std::int64_t least, std::int64_t most) {
  if (rows >= least && rows <= most) return {};
  return invalid(std::string(name) + ".shape[1] (seq): " + std::to_string(rows) +
                 ", expected this rank's local length (" + std::to_string(least) +
                 ") up to its local capacity (" + std::to_string(most) + "): tensors are shards");
}

}  // namespace

const char* dtype_text(std::int32_t dtype) {
  switch (dtype) {
    case RINGATTN_DTYPE_F32:
      return "F32 (1)";
    case RINGATTN_DTYPE_F16:
      return "F16 (2)";
    case RINGATTN_DTYPE_BF16:
      return "BF16 (3)";
    case RINGATTN_DTYPE_I32:
      return "I32 (4)";
    case RINGATTN_DTYPE_I64:
      return "I64 (5)";
    default:
      return "F32 (1), F16 (2), BF16 (3), I32 (4) or I64 (5)";
  }
}

Status read_tensor(const ringattn_tensor* given, const char* name, TensorUse use, std::int32_t dtype,
                   const std::int64_t (&wanted)[4], TensorView& out) {
  ringattn_tensor t{};
  RINGATTN_TRY(read_struct(given, name, t));
  const std::string who = name;
  if (t.device_type != RINGATTN_DEVICE_CPU || t.device_id != 0) {
    return invalid(who + ".device_type, .device_id: " + shown(t.device_type) + ", " + shown(t.device_id) +
                   ", expected CPU (0), 0");
  }
  if ((t.flags & ~std::uint64_t{RINGATTN_TENSOR_STRIDES}) != 0) {
    return invalid(who + ".flags: " + std::to_string(t.flags) + ", expected 0 or TENSOR_STRIDES (1)");
  }
  if (element_size(t.dtype) == 0 || (dtype != 0 && t.dtype != dtype)) {
    return invalid(who + ".dtype: " + shown(t.dtype) + ", expected " + dtype_text(dtype));
  }
  RINGATTN_TRY(check_shape(who, t, wanted));
  out.data = static_cast<std::byte*>(t.data);
  out.dtype = t.dtype;
  out.element = element_size(t.dtype);
  __int128 dense = 1;
  for (int axis = 3; axis >= 0; --axis) {
    out.shape[axis] = t.shape[axis];
    out.stride[axis] =
        (t.flags & RINGATTN_TENSOR_STRIDES) != 0 ? t.stride[axis] : static_cast<std::int64_t>(dense);
    dense *= t.shape[axis] == 0 ? 1 : t.shape[axis];
    if (dense > (static_cast<__int128>(1) << 60)) {
      return invalid(who + ".shape: " + list_of(t.shape) + ", expected less than 2^60 elements");
    }
  }
  RINGATTN_TRY(check_strides(who, out, use));
  for (int axis = 0; axis < 4; ++axis) {
    if (out.shape[axis] <= 1)
      out.stride[axis] = 0;  // never stepped over: whatever it says, it cannot overflow
  }
  return {};
}

Status read_shards(const plan::Plan& plan, const schedule::Layout& layout, const ringattn_tensor* q,
                   const ringattn_tensor* k, const ringattn_tensor* v, ring::Tensors& out) {
  const Problem& p = plan.problem;
  const std::int32_t in = static_cast<std::int32_t>(p.dtype);
  RINGATTN_TRY(read_tensor(q, "q", TensorUse::input, in, {p.batch, -1, p.heads, p.head_dim_qk}, out.q));
  RINGATTN_TRY(read_tensor(k, "k", TensorUse::input, in, {p.batch, -1, p.kv_heads, p.head_dim_qk}, out.k));
  const std::int64_t rows_k = out.k.shape[1];
  RINGATTN_TRY(in_capacity("q", out.q.shape[1], layout.local_queries(plan.rank), plan.capacity_q));
  RINGATTN_TRY(in_capacity("k", rows_k, layout.local_keys(plan.rank), plan.capacity_k));
  return read_tensor(v, "v", TensorUse::input, in, {p.batch, rows_k, p.kv_heads, p.head_dim_v}, out.v);
}

}  // namespace ringattn::api
