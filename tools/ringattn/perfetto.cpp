#include "perfetto.h"

#include <fmt/format.h>

#include <iterator>

namespace ringattn::tool {
namespace {

// Threads are shown in the order of their ids: workers first, then the transfers, then the waits. From 1, because
// thread 0 of process 0 is the idle task to a reader of Linux traces.
int thread_id(const Lane& lane) {
  constexpr int lanes_of_a_kind = 2000;
  return 1 + (lane.kind == RINGATTN_EVENT_TILE ? lane.worker : lane.kind * lanes_of_a_kind + lane.number);
}

// Begins the next element of the list that `out` ends in.
void next(std::string& out) { out += out.back() == '[' ? "\n" : ",\n"; }

std::string thread_name(const Lane& lane) {
  switch (lane.kind) {
    case RINGATTN_EVENT_TILE:
      return fmt::format("worker {}", lane.worker);
    case RINGATTN_EVENT_RECEIVE:
      return fmt::format("receive {}", lane.number);
    case RINGATTN_EVENT_SEND:
      return fmt::format("send {}", lane.number);
    case RINGATTN_EVENT_WAIT:
      return fmt::format("wait {}", lane.number);
    case RINGATTN_EVENT_AGREE:
      return fmt::format("agree {}", lane.number);
    case RINGATTN_EVENT_MOVE:
      return fmt::format("move {}", lane.number);
    default:
      return fmt::format("kind {}", lane.kind);
  }
}

std::string event_name(const ringattn_event& event) {
  switch (event.kind) {
    case RINGATTN_EVENT_TILE:
      return fmt::format("K/V {}", event.block);
    case RINGATTN_EVENT_RECEIVE:
      return fmt::format("K/V {} from {}", event.block, event.peer);
    case RINGATTN_EVENT_SEND:
      return fmt::format("K/V {} to {}", event.block, event.peer);
    case RINGATTN_EVENT_WAIT:
      return "wait";
    case RINGATTN_EVENT_AGREE:
      return "agree";
    case RINGATTN_EVENT_MOVE:
      return fmt::format("move {}", event.block);
    default:
      return fmt::format("kind {}", event.kind);
  }
}

// Every name here is ours: no character of it needs an escape.
void append_metadata(std::string& out, const char* what, int process, int thread, const std::string& name) {
  next(out);
  fmt::format_to(std::back_inserter(out),
                 "{{\"ph\":\"M\",\"name\":\"{}\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":\"{}\"}}}}", what,
                 process, thread, name);
}

void append_event(std::string& out, int process, int thread, const ringattn_event& event,
                  std::uint64_t begin_ns) {
  const bool transfer = event.kind == RINGATTN_EVENT_RECEIVE || event.kind == RINGATTN_EVENT_SEND;
  const char* category = event.kind == RINGATTN_EVENT_TILE   ? "compute"
                         : event.kind == RINGATTN_EVENT_MOVE ? "move"
                         : transfer                          ? "transfer"
                                                             : "wait";
  const std::uint64_t start = event.start_ns - begin_ns;
  const std::uint64_t length = event.end_ns - event.start_ns;
  next(out);
  // Times in microseconds with all three decimals, as integers: a double would round long traces.
  fmt::format_to(std::back_inserter(out),
                 "{{\"ph\":\"X\",\"name\":\"{}\",\"cat\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{}.{:03},"
                 "\"dur\":{}.{:03},\"args\":{{\"block\":{},\"peer\":{},\"item\":{},\"bytes\":{}}}}}",
                 event_name(event), category, process, thread, start / 1000, start % 1000, length / 1000,
                 length % 1000, event.block, event.peer, event.item, event.bytes);
}

}  // namespace

std::string perfetto_json(const std::vector<RankTrace>& traces) {
  const Span span = span_of(traces);
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  for (const RankTrace& trace : traces) {
    append_metadata(out, "process_name", trace.rank, 0, fmt::format("rank {}", trace.rank));
    next(out);
    fmt::format_to(std::back_inserter(out),
                   "{{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":{0},\"tid\":0,"
                   "\"args\":{{\"sort_index\":{0}}}}}",
                   trace.rank);
    for (const Lane& lane : lanes_of(trace)) {
      append_metadata(out, "thread_name", trace.rank, thread_id(lane), thread_name(lane));
      for (const ringattn_event& event : lane.events) {
        append_event(out, trace.rank, thread_id(lane), event, span.begin_ns);
      }
    }
  }
  out += "\n]}\n";
  return out;
}

}  // namespace ringattn::tool
