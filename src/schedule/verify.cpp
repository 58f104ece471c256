#include <string>

#include "schedule/verify_parts.h"

namespace ringattn::schedule {

Status violation(std::int32_t rank, const std::string& what) {
  return {RINGATTN_ERR_INTERNAL, "schedule: rank " + std::to_string(rank) + ": " + what};
}

Status violation(const Schedule& schedule, std::size_t operation, const std::string& what) {
  const Operation& op = schedule.operations[operation];
  std::string text = "schedule: rank " + std::to_string(schedule.rank) + ", operation " +
                     std::to_string(operation) + " (" + name_of(op.kind);
  if (op.block >= 0) text += " of block " + std::to_string(op.block);
  if (op.peer >= 0)
    text += (op.kind == Kind::receive ? " from rank " : " to rank ") + std::to_string(op.peer);
  if (op.gradient) text += ", gradients";
  return {RINGATTN_ERR_INTERNAL, text + "): " + what};
}

namespace {

bool moves_bytes(Kind kind) {
  return kind != Kind::attend && kind != Kind::release && kind != Kind::finalize;
}

Status verify_operation(const Subject& subject, const Schedule& schedule, std::size_t at) {
  const Operation& op = schedule.operations[at];
  const std::int32_t world = subject.layout.world();
  if (op.after_first < 0 || op.after_count < 0 ||
      static_cast<std::size_t>(op.after_first) + static_cast<std::size_t>(op.after_count) >
          schedule.after.size()) {
    return violation(schedule, at, "its list of waits lies outside the schedule's");
  }
  for (const std::int32_t before : schedule.after_of(op)) {
    if (before < 0 || static_cast<std::size_t>(before) >= at) {
      return violation(schedule, at,
                       "waits for operation " + std::to_string(before) + ", which is not earlier");
    }
  }
  switch (op.kind) {
    case Kind::send:
    case Kind::receive:
      if (op.peer < 0 || op.peer >= world || op.peer == schedule.rank)
        return violation(schedule, at, "no such peer");
      break;
    case Kind::pack:
    case Kind::attend:
    case Kind::release:
    case Kind::finalize:
      break;
    case Kind::accumulate:
    case Kind::copy:
      if (schedule.backward && op.gradient) break;
      [[fallthrough]];
    default:
      return violation(schedule, at, "no schedule of this kind has this operation");
  }
  if (op.gradient && !schedule.backward) return violation(schedule, at, "forward has no gradients");
  if (op.kind == Kind::finalize && !op.gradient) return {};
  if (op.block < 0 || op.block >= world) return violation(schedule, at, "no such block");
  const std::int64_t keys = subject.layout.local_keys(op.block);
  const std::uint64_t bytes =
      op.gradient ? gradient_bytes(subject.problem, keys) : block_bytes(subject.problem, keys);
  if (moves_bytes(op.kind) && op.bytes != bytes) {
    return violation(schedule, at,
                     std::to_string(op.bytes) + " bytes, but the block has " + std::to_string(bytes));
  }
  return {};
}

}  // namespace

Status verify_form(const Subject& subject) {
  const std::int32_t world = subject.layout.world();
  if (subject.schedules.size() != static_cast<std::size_t>(world)) {
    return {RINGATTN_ERR_INTERNAL, "schedule: " + std::to_string(subject.schedules.size()) +
                                       " schedules for " + std::to_string(world) + " ranks"};
  }
  for (std::int32_t rank = 0; rank < world; ++rank) {
    const Schedule& schedule = subject.schedules[static_cast<std::size_t>(rank)];
    const Schedule& first = subject.schedules[0];
    if (schedule.rank != rank || schedule.world != world || schedule.lends != first.lends ||
        schedule.backward != first.backward) {
      return violation(rank, "its schedule is for rank " + std::to_string(schedule.rank) + " of " +
                                 std::to_string(schedule.world) +
                                 (schedule.lends ? ", lending" : ", copying") +
                                 (schedule.backward ? ", backward" : ", forward"));
    }
    for (std::size_t i = 0; i < schedule.operations.size(); ++i) {
      RINGATTN_TRY(verify_operation(subject, schedule, i));
    }
  }
  return {};
}

Status verify(const Problem& problem, const Call& call, const Layout& layout,
              std::span<const Schedule> schedules) {
  const Subject subject{problem, call, layout, schedules};
  RINGATTN_TRY(verify_shards(subject));
  RINGATTN_TRY(verify_form(subject));
  RINGATTN_TRY(verify_work(subject));
  RINGATTN_TRY(verify_transfers(subject));
  for (const Schedule& schedule : schedules) {
    const Ancestors ancestors(schedule);
    RINGATTN_TRY(verify_memory(schedule, ancestors));
    if (schedule.backward) RINGATTN_TRY(verify_sums(schedule, ancestors));
  }
  if (schedules[0].backward) RINGATTN_TRY(verify_gradients(subject));
  return verify_progress(subject);
}

}  // namespace ringattn::schedule
