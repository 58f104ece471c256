// The events of one rank's last execution, and how they share lanes of a picture.
#pragma once
#include <cstdint>
#include <vector>

#include "ringattn.h"

namespace ringattn::tool {

struct RankTrace {
  int rank = 0;
  ringattn_times times{};
  std::vector<ringattn_event> events;
  std::uint64_t dropped = 0;  // events that the library had no room for
};

// Reads the events and times of a plan made with RINGATTN_PLAN_TRACE. Throws RunFailed.
RankTrace read_trace(const ringattn_plan* plan, int rank);

// A lane holds events that do not overlap in time.
struct Lane {
  int kind = 0;                        // RINGATTN_EVENT_...
  int worker = -1;                     // of a tile lane
  int number = 0;                      // among the lanes of one kind, from 0; not for tiles
  std::vector<ringattn_event> events;  // by start
};

// Tile lanes by worker, then receives, sends, waits, agreement; a kind whose events overlap gets several lanes.
std::vector<Lane> lanes_of(const RankTrace& trace);

// First start and last end over all ranks; both 0 where there is no event.
struct Span {
  std::uint64_t begin_ns = 0, end_ns = 0;
};
Span span_of(const std::vector<RankTrace>& traces);

}  // namespace ringattn::tool
