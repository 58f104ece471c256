// A trace for ui.perfetto.dev and chrome://tracing: one process a rank, one thread a lane.
#pragma once
#include <string>
#include <vector>

#include "rank_trace.h"

namespace ringattn::tool {

std::string perfetto_json(const std::vector<RankTrace>& traces);

}  // namespace ringattn::tool
