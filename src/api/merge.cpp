#include <algorithm>
#include <cstring>

#include "api/guard.h"
#include "api/handles.h"
#include "api/overlap.h"
#include "api/tensor_check.h"
#include "kernels/kernel.h"

namespace {

using namespace ringattn;

struct Merge {
  TensorView o_a, lse_a, o_b, lse_b, o, lse;
  std::int64_t rows_per_body = 1;
};

Status check_float(const char* name, const TensorView& t) {
  if (t.dtype <= RINGATTN_DTYPE_BF16) return {};
  return invalid(std::string(name) + ".dtype: " + api::dtype_text(t.dtype) +
                 ", expected F32 (1), F16 (2) or BF16 (3)");
}

bool same_place(const TensorView& a, const TensorView& b) {
  return a.data == b.data && a.dtype == b.dtype && std::equal(a.stride, a.stride + 4, b.stride);
}

Status check_outputs(const Merge& m) {
  const bool in_place = same_place(m.o, m.o_a), lse_in_place = same_place(m.lse, m.lse_a);
  const struct {
    const char* name;
    const TensorView& view;
    bool allowed;
  } pairs[] = {
      {"o_a", m.o_a, in_place}, {"lse_a", m.lse_a, false}, {"o_b", m.o_b, false}, {"lse_b", m.lse_b, false}};
  for (const auto& pair : pairs) {
    if (!pair.allowed && api::overlap(m.o, pair.view)) {
      return invalid(std::string("o.data: overlaps ") + pair.name +
                     ", expected memory of its own, or exactly o_a");
    }
    const bool lse_allowed = lse_in_place && std::strcmp(pair.name, "lse_a") == 0;
    if (!lse_allowed && api::overlap(m.lse, pair.view)) {
      return invalid(std::string("lse.data: overlaps ") + pair.name +
                     ", expected memory of its own, or exactly lse_a");
    }
  }
  if (api::overlap(m.o, m.lse)) return invalid("lse.data: overlaps o, expected memory of its own");
  return {};
}

Status check(const ringattn_tensor* o_a, const ringattn_tensor* lse_a, const ringattn_tensor* o_b,
             const ringattn_tensor* lse_b, const ringattn_tensor* o, const ringattn_tensor* lse, Merge& m) {
  using api::TensorUse;
  RINGATTN_TRY(api::read_tensor(o_a, "o_a", TensorUse::input, 0, {-1, -1, -1, -1}, m.o_a));
  const std::int64_t shape[4] = {m.o_a.shape[0], m.o_a.shape[1], m.o_a.shape[2], m.o_a.shape[3]};
  const std::int64_t lse_shape[4] = {shape[0], shape[2], shape[1], 1};
  RINGATTN_TRY(api::read_tensor(o_b, "o_b", TensorUse::input, 0, shape, m.o_b));
  RINGATTN_TRY(api::read_tensor(o, "o", TensorUse::output, 0, shape, m.o));
  RINGATTN_TRY(api::read_tensor(lse_a, "lse_a", TensorUse::input, RINGATTN_DTYPE_F32, lse_shape, m.lse_a));
  RINGATTN_TRY(api::read_tensor(lse_b, "lse_b", TensorUse::input, RINGATTN_DTYPE_F32, lse_shape, m.lse_b));
  RINGATTN_TRY(api::read_tensor(lse, "lse", TensorUse::output, RINGATTN_DTYPE_F32, lse_shape, m.lse));
  RINGATTN_TRY(check_float("o_a", m.o_a));
  RINGATTN_TRY(check_float("o_b", m.o_b));
  RINGATTN_TRY(check_float("o", m.o));
  return check_outputs(m);
}

float read_float(const std::byte* at) {
  float value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

void merge_rows(void* arg, std::int32_t i, std::int32_t) {
  const Merge& m = *static_cast<const Merge*>(arg);
  const std::int64_t rows = m.o.shape[0] * m.o.shape[1];
  const std::int64_t first = i * m.rows_per_body, last = std::min(rows, first + m.rows_per_body);
  for (std::int64_t row = first; row < last; ++row) {
    const std::int64_t batch = row / m.o.shape[1], seq = row % m.o.shape[1];
    for (std::int64_t head = 0; head < m.o.shape[2]; ++head) {
      // lse is [batch, head, seq, 1].
      const kernels::MergeRow merge{m.o_a.at(batch, seq, head),
                                    static_cast<DType>(m.o_a.dtype),
                                    m.o_b.at(batch, seq, head),
                                    static_cast<DType>(m.o_b.dtype),
                                    m.o.at(batch, seq, head),
                                    static_cast<DType>(m.o.dtype),
                                    m.o.shape[3]};
      const float lse = kernels::merge_row(merge, read_float(m.lse_a.at(batch, head, seq)),
                                           read_float(m.lse_b.at(batch, head, seq)));
      std::memcpy(m.lse.at(batch, head, seq), &lse, sizeof lse);
    }
  }
}

}  // namespace

extern "C" ringattn_status ringattn_merge(ringattn_context* context, const ringattn_tensor* o_a,
                                          const ringattn_tensor* lse_a, const ringattn_tensor* o_b,
                                          const ringattn_tensor* lse_b, const ringattn_tensor* o,
                                          const ringattn_tensor* lse) {
  return api::guarded([&]() -> Status {
    RINGATTN_TRY(api::check_handle(context, "context"));
    Merge merge;
    RINGATTN_TRY(check(o_a, lse_a, o_b, lse_b, o, lse, merge));
    const std::int64_t rows = merge.o.shape[0] * merge.o.shape[1];
    if (rows == 0 || merge.o.shape[2] == 0) return {};
    const std::int64_t elements = rows * merge.o.shape[2] * std::max<std::int64_t>(1, merge.o.shape[3]);
    constexpr std::int64_t kWorthAWorker = 1 << 16;  // elements: some ten microseconds
    const std::int64_t bodies = std::clamp<std::int64_t>(
        elements / kWorthAWorker, 1, std::min<std::int64_t>(rows, context->pool->max_workers()));
    merge.rows_per_body = (rows + bodies - 1) / bodies;
    if (bodies == 1) {
      merge_rows(&merge, 0, 0);
    } else {
      context->pool->run(static_cast<std::int32_t>(bodies), merge_rows, &merge);
    }
    return {};
  });
}
