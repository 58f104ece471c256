// The picture of a plan: a row for each rank, a column for each step, in it the block that is computed, how much
// work it is, and what travels meanwhile.
#pragma once
#include <string>
#include <string_view>

#include "ring_plan.h"

namespace ringattn::tool {

inline constexpr int kMostPicturedRanks = 128;

// `plan` has the figures and operations of all ranks, in order.
std::string plan_svg(const RingPlan& plan, std::string_view problem);

}  // namespace ringattn::tool
