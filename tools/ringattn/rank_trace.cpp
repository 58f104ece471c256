#include "rank_trace.h"

#include <algorithm>
#include <map>

#include "error.h"

namespace ringattn::tool {
namespace {

void sort_by_start(std::vector<ringattn_event>& events) {
  std::sort(events.begin(), events.end(), [](const ringattn_event& a, const ringattn_event& b) {
    return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.end_ns > b.end_ns;
  });
}

// Each event goes to the first lane that is free at its start.
void add_lanes(std::vector<Lane>& lanes, int kind, int worker, std::vector<ringattn_event> events) {
  sort_by_start(events);
  const std::size_t first = lanes.size();
  for (const ringattn_event& event : events) {
    auto free = std::find_if(lanes.begin() + static_cast<std::ptrdiff_t>(first), lanes.end(),
                             [&](const Lane& lane) { return lane.events.back().end_ns <= event.start_ns; });
    if (free == lanes.end()) {
      Lane lane;
      lane.kind = kind;
      lane.worker = worker;
      lane.number = static_cast<int>(lanes.size() - first);
      free = lanes.insert(lanes.end(), std::move(lane));
    }
    free->events.push_back(event);
  }
}

}  // namespace

RankTrace read_trace(const ringattn_plan* plan, int rank) {
  RankTrace trace;
  trace.rank = rank;
  trace.times = RINGATTN_STRUCT(ringattn_times);
  check(ringattn_plan_get_times(plan, &trace.times));
  std::uint64_t count = 0;
  check(ringattn_plan_trace(plan, nullptr, 0, &count, &trace.dropped));
  trace.events.assign(count, RINGATTN_STRUCT(ringattn_event));
  if (count > 0) check(ringattn_plan_trace(plan, trace.events.data(), count, &count, &trace.dropped));
  return trace;
}

std::vector<Lane> lanes_of(const RankTrace& trace) {
  std::map<std::pair<int, int>, std::vector<ringattn_event>> groups;  // (kind, worker)
  for (const ringattn_event& event : trace.events) {
    groups[{event.kind, event.kind == RINGATTN_EVENT_TILE ? event.worker : -1}].push_back(event);
  }
  std::vector<Lane> lanes;
  for (auto& [group, events] : groups) add_lanes(lanes, group.first, group.second, std::move(events));
  return lanes;
}

Span span_of(const std::vector<RankTrace>& traces) {
  Span span;
  bool any = false;
  for (const RankTrace& trace : traces) {
    for (const ringattn_event& event : trace.events) {
      span.begin_ns = any ? std::min(span.begin_ns, event.start_ns) : event.start_ns;
      span.end_ns = any ? std::max(span.end_ns, event.end_ns) : event.end_ns;
      any = true;
    }
  }
  return span;
}

}  // namespace ringattn::tool
