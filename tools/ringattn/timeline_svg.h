// The picture of one execution: for each rank what its workers computed, what was sent and received, and when it
// waited, over one axis in milliseconds.
#pragma once
#include <string>
#include <vector>

#include "rank_trace.h"

namespace ringattn::tool {

struct TimelineText {
  std::string title;
  std::string subtitle;
};

std::string timeline_svg(const std::vector<RankTrace>& traces, const TimelineText& text);

}  // namespace ringattn::tool
