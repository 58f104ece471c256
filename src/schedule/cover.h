// Do progressions cover 0..length-1 exactly once? Without listing positions, so also for axes of 2^40.
#pragma once
#include <cstdint>
#include <vector>

#include "schedule/progression.h"

namespace ringattn::schedule {

struct CoverPart {
  Progression positions;
  std::int32_t rank;
  std::int64_t run;  // number among the rank's runs, for messages
};

struct CoverDefect {
  enum class Kind { none, outside, twice, missing };
  Kind kind = Kind::none;
  std::int64_t position = 0;
  CoverPart first{}, second{};  // outside: `first`; twice: both
};

// The strides must be at least 1. Reorders the parts.
CoverDefect find_defect(std::vector<CoverPart>& parts, std::int64_t length);

}  // namespace ringattn::schedule
