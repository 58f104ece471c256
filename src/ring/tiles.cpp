// The work: one tile of queries folds one block of keys and values into its state, or writes its result.
#include <algorithm>

#include "base/clock.h"
#include "ring/execution.h"
#include "schedule/visible.h"

namespace ringattn::ring {

Execution::TilePlace Execution::place_of(std::int64_t tile) const {
  const Problem& p = plan_.problem;
  const std::int64_t lanes = plan_.lanes(backward_);
  const std::int64_t first = tile % tiles_per_row_ * lanes;
  const std::int64_t head = tile / tiles_per_row_, batch = head / p.kv_heads;
  const std::int64_t all = tensors_.o.shape[1] * p.group();
  const std::int64_t real = layout_.queries(plan_.rank, layout_.rows() == 1 ? 0 : batch).length * p.group();
  return {batch, head % p.kv_heads, first, static_cast<int>(std::min(lanes, all - first)),
          static_cast<int>(std::clamp<std::int64_t>(real - first, 0, lanes))};
}

const schedule::Operation& Execution::operation_of(const Task& task) const {
  const Position& position = positions_[static_cast<std::size_t>(task.position)];
  return schedule_.operations[static_cast<std::size_t>(position.operation)];
}

std::byte* Execution::state_of(std::int64_t tile) const {
  const plan::Workspace& w = layout_of_workspace();
  return workspace_ + w.states + static_cast<std::uint64_t>(tile) * w.state_bytes;
}

bool Execution::run(Task& task, std::int32_t worker_number) {
  Worker& worker = workers_[static_cast<std::size_t>(worker_number)];
  const plan::Workspace& w = layout_of_workspace();
  std::byte* scratch = workspace_ + w.scratch + static_cast<std::uint64_t>(worker_number) * w.scratch_bytes;
  comm_.progressed();
  if (task.move >= 0) {
    run_move(task, worker_number);
    moves_.finish(task);
    return false;
  }
  if (backward_) {
    run_gradient(task, worker, scratch);
  } else if (operation_of(task).kind == schedule::Kind::finalize) {
    run_finalize(task);
  } else if (run_attend(task, worker, scratch)) {
    return true;
  }
  Progress& progress = progress_[static_cast<std::size_t>(task.tile)];
  progress.segment = progress.key = 0;
  return queue_.finish(task);
}

void Execution::put_back(const Task& task) { queue_.put_back(task); }

bool Execution::intervals(const TilePlace& place, const schedule::Shard& keys, std::int64_t segment,
                          Worker& worker, kernels::KeyRange& range) const {
  const std::int64_t group = plan_.shape.group;
  const std::int64_t row = layout_.rows() == 1 ? 0 : place.batch;
  const schedule::Shard queries = layout_.queries(plan_.rank, row);
  const std::int64_t first_row = place.first / group, last_row = (place.first + place.lanes - 1) / group;
  // Rows beyond the shard are padding: they see nothing.
  const std::int64_t real = std::clamp<std::int64_t>(queries.length - first_row, 0, last_row - first_row + 1);
  std::fill_n(worker.row_lo, last_row - first_row + 1, 0);
  std::fill_n(worker.row_hi, last_row - first_row + 1, 0);
  if (real > 0) {
    schedule::visible_keys(queries, first_row, real, keys, segment, plan_.problem.mask, worker.row_lo,
                           worker.row_hi);
  }
  range.begin = kUnbounded;
  range.end = 0;
  for (std::int64_t r = 0; r <= last_row - first_row; ++r) {
    if (worker.row_lo[r] >= worker.row_hi[r]) continue;
    range.begin = std::min(range.begin, worker.row_lo[r]);
    range.end = std::max(range.end, worker.row_hi[r]);
  }
  return range.begin < range.end;
}

bool Execution::run_attend(Task& task, Worker& worker, std::byte* scratch) {
  const std::int32_t block = operation_of(task).block;
  const TilePlace place = place_of(task.tile);
  const schedule::Shard keys = layout_.keys(block, layout_.rows() == 1 ? 0 : place.batch);
  Progress& progress = progress_[static_cast<std::size_t>(task.tile)];
  kernels::KeyRange range{};
  // The next range of keys that this tile sees, from where it stopped.
  for (;; ++progress.segment, progress.key = 0) {
    if (progress.segment >= static_cast<std::int64_t>(keys.segments.size())) return false;
    if (!intervals(place, keys, progress.segment, worker, range) || progress.key >= range.end) continue;
    break;
  }
  const std::int64_t end = range.end;
  range.begin = std::max(range.begin, progress.key);
  range.end = std::min(end, (range.begin / plan_.kernel->keys_per_task + 1) * plan_.kernel->keys_per_task);
  progress.key = range.end;

  see_range(place, worker, range);
  point_to_block(place, block, range);
  const std::int64_t group = plan_.shape.group;
  const kernels::QueryTile tile{tensors_.q.at(place.batch, 0, place.kv_head * group),
                                tensors_.q.stride[1],
                                tensors_.q.stride[2],
                                place.first,
                                place.lanes,
                                worker.packed_tile == task.tile};
  const std::uint64_t start = now_ns();
  if (!progress.begun) plan_.kernel->begin(plan_.shape, state_of(task.tile));
  progress.begun = true;
  plan_.kernel->attend(plan_.shape, tile, range, state_of(task.tile), scratch);
  const std::uint64_t finish = now_ns();
  worker.packed_tile = task.tile;
  worker.compute_ns += finish - start;
  ++worker.tiles;
  trace_.add(RINGATTN_EVENT_TILE, static_cast<std::int32_t>(&worker - workers_.data()), -1, block, task.tile,
             start, finish, 0);
  return range.end < end || progress.segment + 1 < static_cast<std::int64_t>(keys.segments.size());
}

// From what rows see of a segment to what lanes see of [range.begin, range.end).
void Execution::see_range(const TilePlace& place, Worker& worker, kernels::KeyRange& range) const {
  const std::int64_t group = plan_.shape.group, first_row = place.first / group;
  range.full = true;
  for (int lane = 0; lane < place.lanes; ++lane) {
    const std::int64_t r = (place.first + lane) / group - first_row;
    worker.lo[lane] = std::clamp(worker.row_lo[r], range.begin, range.end);
    worker.hi[lane] = std::clamp(worker.row_hi[r], worker.lo[lane], range.end);
    range.full = range.full && worker.lo[lane] == range.begin && worker.hi[lane] == range.end;
  }
  range.lo = worker.lo;
  range.hi = worker.hi;
}

void Execution::point_to_block(const TilePlace& place, std::int32_t block, kernels::KeyRange& range) const {
  const BlockView& view = blocks_[static_cast<std::size_t>(block)];
  const std::int64_t element = size_of(plan_.problem.dtype);
  range.k = view.k + (place.batch * view.k_stride[0] + place.kv_head * view.k_stride[2]) * element;
  range.v = view.v + (place.batch * view.v_stride[0] + place.kv_head * view.v_stride[2]) * element;
  range.k_stride = view.k_stride[1];
  range.v_stride = view.v_stride[1];
}

void Execution::run_finalize(const Task& task) {
  const TilePlace place = place_of(task.tile);
  Progress& progress = progress_[static_cast<std::size_t>(task.tile)];
  if (!progress.begun) plan_.kernel->begin(plan_.shape, state_of(task.tile));
  const std::int64_t head = place.kv_head * plan_.shape.group;
  const TensorView& o = tensors_.o;
  const TensorView& lse = tensors_.lse;
  kernels::OutputTile out{
      o.at(place.batch, 0, head), o.stride[1], o.stride[2], nullptr, 0, 0, place.first, place.lanes};
  if (tensors_.has_lse) {
    // lse is [batch, head, seq, 1].
    out.lse = reinterpret_cast<float*>(lse.at(place.batch, head, 0));
    out.lse_row_stride = lse.stride[2];
    out.lse_head_stride = lse.stride[1];
  }
  plan_.kernel->finalize(plan_.shape, out, state_of(task.tile));
}

}  // namespace ringattn::ring
