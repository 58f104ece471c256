// Where tokens live: local lengths, positions, and copies between a global tensor and a shard.
#include <cstring>

#include "api/guard.h"
#include "api/handles.h"
#include "api/overlap.h"
#include "api/read_struct.h"
#include "api/tensor_check.h"
#include "plan/call_check.h"

namespace {

using namespace ringattn;

// One rank's tokens of one axis for the values of a call.
struct Place {
  Call call;
  schedule::Layout layout;
  std::int32_t axis = 0, rank = 0;

  schedule::Shard shard(std::int64_t batch_row) const {
    const std::int64_t row = layout.rows() == 1 ? 0 : batch_row;
    return axis == RINGATTN_AXIS_QUERY ? layout.queries(rank, row) : layout.keys(rank, row);
  }
  // Index in the row of a run's first token; the index grows by the run's stride as the position does.
  std::int64_t index_of(const schedule::Run& run) const {
    const Sequence& s = call.sequences[static_cast<std::size_t>(run.sequence)];
    return axis == RINGATTN_AXIS_QUERY ? s.q_start + run.position - s.offset : s.k_start + run.position;
  }
  std::int64_t total(std::int64_t batch_row) const {
    const std::int64_t row = call.row_of(batch_row);
    return axis == RINGATTN_AXIS_QUERY ? call.total_q(row) : call.total_k(row);
  }
};

Status find_place(const ringattn_plan* plan, std::int32_t axis, std::int32_t rank, const ringattn_call* given,
                  Place& out) {
  RINGATTN_TRY(api::check_handle(plan, "plan"));
  if (axis != RINGATTN_AXIS_QUERY && axis != RINGATTN_AXIS_KEY) {
    return invalid("axis: " + std::to_string(axis) + ", expected AXIS_QUERY (0) or AXIS_KEY (1)");
  }
  if (rank < 0 || rank >= plan->plan.world) {
    return invalid("rank: " + std::to_string(rank) + ", expected 0.." + std::to_string(plan->plan.world - 1));
  }
  ringattn_call call{};
  if (given != nullptr) RINGATTN_TRY(api::read_struct(given, "call", call));
  RINGATTN_TRY(plan::check_call(plan->plan.problem, given == nullptr ? nullptr : &call, out.call));
  out.layout.reserve(plan->plan.problem, plan->plan.world);
  RINGATTN_TRY(out.layout.build(plan->plan.problem, plan->plan.world, out.call));
  out.axis = axis;
  out.rank = rank;
  return {};
}

Status check_row(const ringattn_plan& plan, std::int64_t batch_row) {
  if (batch_row >= 0 && batch_row < plan.plan.problem.batch) return {};
  return invalid("batch_row: " + std::to_string(batch_row) + ", expected 0.." +
                 std::to_string(plan.plan.problem.batch - 1));
}

Status positions(const ringattn_plan* plan, std::int32_t axis, std::int32_t rank, std::int64_t batch_row,
                 const ringattn_call* call, std::int64_t* index, std::int64_t* position,
                 std::uint64_t capacity, std::uint64_t* count) {
  Place place;
  RINGATTN_TRY(find_place(plan, axis, rank, call, place));
  RINGATTN_TRY(check_row(*plan, batch_row));
  if (count == nullptr) return invalid("count: NULL, expected an address");
  const schedule::Shard shard = place.shard(batch_row);
  *count = static_cast<std::uint64_t>(shard.length);
  if (index == nullptr && position == nullptr) return {};
  if (capacity < *count)
    return invalid("capacity: " + std::to_string(capacity) + ", expected at least the local length (" +
                   std::to_string(*count) + ")");
  for (const schedule::Run& run : shard.runs) {
    const std::int64_t first = place.index_of(run);
    for (std::int64_t i = 0; i < run.length; ++i) {
      if (index != nullptr) index[run.local + i] = first + i * run.stride;
      if (position != nullptr) position[run.local + i] = run.position + i * run.stride;
    }
  }
  return {};
}

void copy_rows(const Place& place, std::int64_t batch_row, const TensorView& global, const TensorView& local,
               bool to_local) {
  const std::size_t bytes = static_cast<std::size_t>(local.shape[3] * local.element);
  for (const schedule::Run& run : place.shard(batch_row).runs) {
    const std::int64_t first = place.index_of(run);
    for (std::int64_t i = 0; i < run.length; ++i) {
      for (std::int64_t head = 0; head < local.shape[2]; ++head) {
        std::byte* there = global.at(batch_row, first + i * run.stride, head);
        std::byte* here = local.at(batch_row, run.local + i, head);
        std::memcpy(to_local ? here : there, to_local ? there : here, bytes);
      }
    }
  }
}

Status copy(const ringattn_plan* plan, std::int32_t axis, std::int32_t rank, const ringattn_call* call,
            const ringattn_tensor* global_given, const ringattn_tensor* local_given, bool to_local) {
  Place place;
  RINGATTN_TRY(find_place(plan, axis, rank, call, place));
  const std::int64_t batch = plan->plan.problem.batch;
  TensorView global, local;
  const api::TensorUse global_use = to_local ? api::TensorUse::input : api::TensorUse::output;
  const api::TensorUse local_use = to_local ? api::TensorUse::output : api::TensorUse::input;
  RINGATTN_TRY(api::read_tensor(global_given, "global", global_use, 0, {batch, -1, -1, -1}, global));
  RINGATTN_TRY(api::read_tensor(local_given, "local", local_use, global.dtype,
                                {batch, -1, global.shape[2], global.shape[3]}, local));
  for (std::int64_t row = 0; row < batch; ++row) {
    if (global.shape[1] < place.total(row)) {
      return invalid("global.shape[1] (seq): " + std::to_string(global.shape[1]) +
                     ", expected at least the row's tokens (" + std::to_string(place.total(row)) + ")");
    }
    const std::int64_t length = place.shard(row).length;
    if (local.shape[1] < length) {
      return invalid("local.shape[1] (seq): " + std::to_string(local.shape[1]) +
                     ", expected at least the local length (" + std::to_string(length) + ")");
    }
  }
  if (api::overlap(global, local)) return invalid("local.data: overlaps global, expected memory of its own");
  if (global.empty() || local.empty()) return {};
  for (std::int64_t row = 0; row < batch; ++row) copy_rows(place, row, global, local, to_local);
  return {};
}

}  // namespace

extern "C" {

ringattn_status ringattn_plan_local_length(const ringattn_plan* plan, int32_t axis, int32_t rank,
                                           int64_t batch_row, const ringattn_call* call, int64_t* length) {
  return api::guarded([&]() -> Status {
    Place place;
    RINGATTN_TRY(find_place(plan, axis, rank, call, place));
    RINGATTN_TRY(check_row(*plan, batch_row));
    if (length == nullptr) return invalid("length: NULL, expected an address");
    *length = place.shard(batch_row).length;
    return {};
  });
}

ringattn_status ringattn_plan_positions(const ringattn_plan* plan, int32_t axis, int32_t rank,
                                        int64_t batch_row, const ringattn_call* call, int64_t* index,
                                        int64_t* position, uint64_t capacity, uint64_t* count) {
  return api::guarded(
      [&] { return positions(plan, axis, rank, batch_row, call, index, position, capacity, count); });
}

ringattn_status ringattn_shard(const ringattn_plan* plan, int32_t axis, int32_t rank,
                               const ringattn_call* call, const ringattn_tensor* global,
                               const ringattn_tensor* local) {
  return api::guarded([&] { return copy(plan, axis, rank, call, global, local, true); });
}

ringattn_status ringattn_unshard(const ringattn_plan* plan, int32_t axis, int32_t rank,
                                 const ringattn_call* call, const ringattn_tensor* local,
                                 const ringattn_tensor* global) {
  return api::guarded([&] { return copy(plan, axis, rank, call, global, local, false); });
}

}  // extern "C"
