// Up to how many ranks a call keeps its lists on the stack.
#pragma once
#include <cstdint>

namespace ringattn::api {

inline constexpr std::int32_t kFewRanks = 16;  // a warm call of so many ranks allocates nothing

}  // namespace ringattn::api
