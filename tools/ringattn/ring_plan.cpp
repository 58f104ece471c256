#include "ring_plan.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "error.h"
#include "handles.h"
#include "tests/support/problem_plan.h"

namespace ringattn::tool {
namespace {

using nlohmann::json;

// A number that may be absent or null.
template <typename Number>
Number number_or(const json& object, const char* key, Number otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<Number>() : otherwise;
}

PlannedOperation operation_of(const json& object) {
  PlannedOperation operation;
  operation.id = number_or<std::int64_t>(object, "id", 0);
  operation.kind = object.at("kind").get<std::string>();
  operation.peer = number_or(object, "peer", -1);
  operation.block = number_or(object, "block", -1);
  operation.bytes = number_or<std::uint64_t>(object, "bytes", 0);
  operation.pairs = number_or<double>(object, "pairs", 0);
  return operation;
}

// The kernel's name, however the description spells it: a text, or an object with a name.
std::string kernel_of(const std::string& description) {
  const json root = json::parse(description, nullptr, false);
  if (!root.is_object() || !root.contains("kernel")) return "";
  const json& kernel = root["kernel"];
  if (kernel.is_string()) return kernel.get<std::string>();
  return kernel.is_object() ? kernel.value("name", "") : "";
}

std::string describe(const ringattn_plan* plan, const ringattn_call* call) {
  std::uint64_t needed = 0;
  check(ringattn_plan_describe(plan, call, RINGATTN_DESCRIBE_JSON, nullptr, 0, &needed));
  std::string text(needed, '\0');
  check(ringattn_plan_describe(plan, call, RINGATTN_DESCRIBE_JSON, text.data(), needed, &needed));
  while (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

Context make_context(int threads) {
  auto desc = RINGATTN_STRUCT(ringattn_context_desc);
  desc.threads = threads;
  ringattn_context* context = nullptr;
  check(ringattn_context_create(&desc, &context));
  return Context(context);
}

}  // namespace

std::vector<std::vector<PlannedOperation>> operations_of(std::string_view description) {
  try {
    const json root = json::parse(description);
    std::vector<std::vector<PlannedOperation>> ranks;
    for (const json& rank : root.at("ranks")) {
      ranks.emplace_back();
      for (const json& object : rank.at("operations")) ranks.back().push_back(operation_of(object));
    }
    return ranks;
  } catch (const json::exception& error) {
    throw RunFailed(fmt::format("the library's description of the plan cannot be read: {}", error.what()));
  }
}

RingPlan preview_ranks(const support::ProblemLine& problem, const std::vector<int>& ranks, Detail detail) {
  const support::ProblemPlan structs(problem);
  const ringattn_facts facts = structs.facts(problem.transport == "local");
  const Context context = make_context(problem.threads);
  RingPlan result;
  for (const int rank : ranks) {
    ringattn_plan* raw_plan = nullptr;
    check(ringattn_plan_preview(context.get(), &structs.desc(rank), rank, problem.ranks, &facts, &raw_plan));
    const Plan plan(raw_plan);
    auto info = RINGATTN_STRUCT(ringattn_plan_info);
    check(ringattn_plan_get_info(plan.get(), structs.call(), &info));
    const bool first = result.infos.empty();
    result.infos.push_back(info);
    if (detail == Detail::operations && first) {
      result.description = describe(plan.get(), structs.call());
      result.operations = operations_of(result.description);
      result.kernel = kernel_of(result.description);
    }
  }
  return result;
}

}  // namespace ringattn::tool
