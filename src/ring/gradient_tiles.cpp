// The work of backward: one tile of queries against a range of keys, which adds to the tile's dQ and to the range's dK and
// dV; and the end of a tile, dQ. Tiles of one kv head pass a range one after the other (TileQueue: chains).
#include <algorithm>

#include "base/clock.h"
#include "ring/execution.h"

namespace ringattn::ring {

void Execution::run_gradient(const Task& task, Worker& worker, std::byte* scratch) {
  const schedule::Operation& operation = operation_of(task);
  TilePlace place = place_of(task.tile);
  Progress& progress = progress_[static_cast<std::size_t>(task.tile)];
  if (!progress.begun && place.real_lanes > 0) {
    plan_.kernel->backward.begin(plan_.shape, gradient_tile(place), state_of(task.tile));
    progress.begun = true;
  }
  if (operation.kind == schedule::Kind::finalize) {
    finalize_gradient(task);
    return;
  }
  place.lanes = place.real_lanes;
  const std::int64_t begin = positions_[static_cast<std::size_t>(task.position)].first_key;
  const std::int64_t end =
      std::min(begin + plan_.kernel->backward.keys_per_task, layout_.local_keys(operation.block));
  if (place.first == 0) {  // the first of its chain: whoever comes later adds
    const kernels::KeyGradients sums =
        key_gradients(operation.target, operation.block, place.batch, place.kv_head);
    const Problem& p = plan_.problem;
    std::fill(sums.d_k + begin * p.head_dim_qk, sums.d_k + end * p.head_dim_qk, 0.0f);
    std::fill(sums.d_v + begin * p.head_dim_v, sums.d_v + end * p.head_dim_v, 0.0f);
  }
  if (place.lanes == 0) return;
  if (progress.block != operation.block) look_at_block(place, operation.block, worker, progress);
  if (progress.seen_begin < end && progress.seen_end > begin)
    attend_gradient(task, place, begin, end, worker, scratch);
}

// Most ranges of a block may be out of sight (windows, causal): found out once a block, not once a range.
void Execution::look_at_block(const TilePlace& place, std::int32_t block, Worker& worker,
                              Progress& progress) const {
  const schedule::Shard keys = layout_.keys(block, layout_.rows() == 1 ? 0 : place.batch);
  progress.block = block;
  progress.seen_begin = kUnbounded;
  progress.seen_end = 0;
  kernels::KeyRange range{};
  for (std::int64_t segment = 0; segment < static_cast<std::int64_t>(keys.segments.size()); ++segment) {
    if (!intervals(place, keys, segment, worker, range)) continue;
    progress.seen_begin = std::min(progress.seen_begin, range.begin);
    progress.seen_end = std::max(progress.seen_end, range.end);
  }
}

void Execution::attend_gradient(const Task& task, const TilePlace& place, std::int64_t begin,
                                std::int64_t end, Worker& worker, std::byte* scratch) {
  const schedule::Operation& operation = operation_of(task);
  const schedule::Shard keys = layout_.keys(operation.block, layout_.rows() == 1 ? 0 : place.batch);
  const kernels::KeyGradients sums =
      key_gradients(operation.target, operation.block, place.batch, place.kv_head);
  kernels::GradientTile tile = gradient_tile(place);
  for (std::size_t segment = 0; segment < keys.segments.size(); ++segment) {
    const std::int64_t first = keys.runs[static_cast<std::size_t>(keys.segments[segment])].local;
    if (first >= end) break;
    const bool has_next = segment + 1 < keys.segments.size();
    const std::int64_t next =
        has_next ? keys.runs[static_cast<std::size_t>(keys.segments[segment + 1])].local : keys.length;
    if (next <= begin) continue;
    kernels::KeyRange range{};
    if (!intervals(place, keys, static_cast<std::int64_t>(segment), worker, range)) continue;
    range.begin = std::max(range.begin, begin);
    range.end = std::min(range.end, end);
    if (range.begin >= range.end) continue;
    see_range(place, worker, range);
    point_to_block(place, operation.block, range);
    tile.packed = worker.packed_tile == task.tile;
    const std::uint64_t start = now_ns();
    plan_.kernel->backward.attend(plan_.shape, tile, range, sums, state_of(task.tile), scratch);
    const std::uint64_t finish = now_ns();
    worker.packed_tile = task.tile;
    worker.compute_ns += finish - start;
    ++worker.tiles;
    trace_.add(RINGATTN_EVENT_TILE, static_cast<std::int32_t>(&worker - workers_.data()), -1, operation.block,
               task.tile, start, finish, 0);
  }
}

kernels::GradientTile Execution::gradient_tile(const TilePlace& place) const {
  const std::int64_t head = place.kv_head * plan_.shape.group;
  const auto rows = [&](const TensorView& t) {
    return kernels::GradientTile::Rows{t.at(place.batch, 0, head), t.stride[1], t.stride[2]};
  };
  // lse and its gradient are [batch, head, seq, 1].
  const auto numbers = [&](const TensorView& t) {
    return kernels::GradientTile::Rows{t.at(place.batch, head, 0), t.stride[2], t.stride[1]};
  };
  return {rows(tensors_.q),
          rows(tensors_.o),
          rows(tensors_.d_o),
          numbers(tensors_.lse),
          tensors_.has_d_lse ? numbers(tensors_.d_lse) : kernels::GradientTile::Rows{nullptr, 0, 0},
          place.first,
          place.real_lanes,
          false};
}

kernels::KeyGradients Execution::key_gradients(std::int32_t target, std::int32_t block, std::int64_t batch,
                                               std::int64_t kv_head) const {
  const Problem& p = plan_.problem;
  const std::int64_t keys = layout_.local_keys(block), head = batch * p.kv_heads + kv_head;
  auto* const d_k = reinterpret_cast<float*>(workspace_ + plan_.backward.gradients[target]);
  float* const d_v = d_k + p.batch * p.kv_heads * keys * p.head_dim_qk;
  return {d_k + head * keys * p.head_dim_qk, d_v + head * keys * p.head_dim_v};
}

void Execution::finalize_gradient(const Task& task) {
  const TilePlace place = place_of(task.tile);
  const TensorView& d_q = tensors_.d_q;
  const kernels::QueryGradients out{d_q.at(place.batch, 0, place.kv_head * plan_.shape.group),
                                    d_q.stride[1],
                                    d_q.stride[2],
                                    place.first,
                                    place.lanes,
                                    place.real_lanes};
  plan_.kernel->backward.finalize(plan_.shape, out, state_of(task.tile));
}

}  // namespace ringattn::ring
