#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "plan/plan.h"
#include "plan/problem_check.h"

namespace ringattn::plan {
namespace {

using Json = nlohmann::ordered_json;

std::string lengths(const Call& call, bool queries) {
  if (call.sequences.empty()) return "none";
  std::string out;
  for (const Sequence& s : call.sequences) {
    out += (out.empty() ? "" : ",") + std::to_string(queries ? s.q_length : s.k_length);
  }
  return out;
}

// Is the call just the plan's full lengths with the offset that the mask has by default?
bool is_full(const Plan& plan, const Call& call) {
  return call.rows == 1 && call.sequences.size() == 1 && call.sequences[0].q_length == plan.problem.seq_q &&
         call.sequences[0].k_length == plan.problem.seq_k;
}

Json operation_json(const schedule::Schedule& schedule, std::size_t index, double pairs) {
  const schedule::Operation& operation = schedule.operations[index];
  Json json = {{"id", index},
               {"kind", schedule::name_of(operation.kind)},
               {"peer", operation.peer},
               {"block", operation.block},
               {"buffer", operation.buffer},
               {"gradient", operation.gradient},
               {"target", operation.target},
               {"source", operation.source},
               {"bytes", operation.bytes},
               {"step", operation.step},
               {"after", Json::array()}};
  if (operation.kind == schedule::Kind::attend) json["pairs"] = pairs;
  for (const std::int32_t before : schedule.after_of(operation)) json["after"].push_back(before);
  return json;
}

Json rank_json(const Plan& plan, const schedule::Layout& layout, const schedule::Schedule& schedule,
               const Pairs& pairs) {
  std::uint64_t sent = 0, received = 0;
  Json operations = Json::array();
  for (std::size_t i = 0; i < schedule.operations.size(); ++i) {
    const schedule::Operation& operation = schedule.operations[i];
    if (operation.kind == schedule::Kind::send) sent += operation.bytes;
    if (operation.kind == schedule::Kind::receive) received += operation.bytes;
    const std::int32_t block = std::max(operation.block, 0);
    operations.push_back(
        operation_json(schedule, i, pairs.of[static_cast<std::size_t>(schedule.rank * plan.world + block)]));
  }
  return {{"rank", schedule.rank},
          {"local_q", layout.local_queries(schedule.rank)},
          {"local_k", layout.local_keys(schedule.rank)},
          {"pairs", pairs.rank_total(schedule.rank)},
          {"bytes_sent", sent},
          {"bytes_received", received},
          {"receive_buffers", schedule.receive_buffers},
          {"operations", std::move(operations)}};
}

}  // namespace

std::string describe_text(const Plan& plan, const Call& call) {
  const Problem& p = plan.problem;
  std::string out =
      p.seq_q == p.seq_k ? fmt::format("n={}", p.seq_q) : fmt::format("q={} k={}", p.seq_q, p.seq_k);
  out += fmt::format(" batch={} heads={} kv_heads={} dim={} dim_v={} dtype={}", p.batch, p.heads, p.kv_heads,
                     p.head_dim_qk, p.head_dim_v, dtype_name(p.dtype));
  if (p.dtype_out != p.dtype) out += fmt::format(" dtype_out={}", dtype_name(p.dtype_out));
  out +=
      fmt::format(" mask={} partition={} query_cut={} scope={} scale={}", mask_words(p), partition_words(p),
                  p.query_like_keys ? "like_keys" : "by_index", scope_name(p.scope), p.scale);
  if (p.accuracy == RINGATTN_ACCURACY_EXACT) out += " accuracy=exact";
  if (p.backward()) out += " pass=backward";
  if (p.backward() && p.dtype_grad != p.dtype) out += fmt::format(" dtype_grad={}", dtype_name(p.dtype_grad));
  if (p.max_sequences > 1) out += fmt::format(" max_docs={}", p.max_sequences);
  if (!is_full(plan, call)) {
    out += " docs=" + lengths(call, true);
    if (lengths(call, true) != lengths(call, false)) out += " docs_k=" + lengths(call, false);
  }
  // An offset is one for all sequences; without one each has its own.
  for (const Sequence& s : call.sequences) {
    if (s.offset == s.k_length - s.q_length) continue;
    out += fmt::format(" offset={}", s.offset);
    break;
  }
  return out + fmt::format(" ranks={}", plan.world);
}

Status describe_json(const Plan& plan, const Call& call, std::string& out) {
  schedule::Layout layout;
  layout.reserve(plan.problem, plan.world);
  RINGATTN_TRY(layout.build(plan.problem, plan.world, call));
  ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
  RINGATTN_TRY(make_info(plan, call, info));
  const Pairs pairs = count_pairs(plan, layout);
  std::vector<schedule::Schedule> schedules;
  make_schedules(plan, layout, false, schedules);
  Json json = {{"problem", describe_text(plan, call)},
               {"rank", plan.rank},
               {"world_size", plan.world},
               {"schedule", "ring"},
               {"kernel", plan.kernel->name},
               {"lends", plan.lends},
               {"workers", plan.workers},
               {"workspace_bytes", plan.workspace_bytes},
               {"steps", info.steps},
               {"flops", info.flops},
               {"pairs_max", info.pairs_max},
               {"pairs_mean", info.pairs_mean},
               {"balance", info.pairs_mean > 0 ? info.pairs_max / info.pairs_mean : 1.0}};
  json["overlap_flops_per_byte"] =
      std::isfinite(info.overlap_flops_per_byte) ? Json(info.overlap_flops_per_byte) : Json(nullptr);
  json["ranks"] = Json::array();
  for (const schedule::Schedule& schedule : schedules)
    json["ranks"].push_back(rank_json(plan, layout, schedule, pairs));
  if (plan.problem.backward()) {
    make_schedules(plan, layout, true, schedules);
    json["backward_ranks"] = Json::array();
    for (const schedule::Schedule& schedule : schedules)
      json["backward_ranks"].push_back(rank_json(plan, layout, schedule, pairs));
  }
  out = json.dump();
  return {};
}

}  // namespace ringattn::plan
