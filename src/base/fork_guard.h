// Handles do not survive fork(): each remembers the process generation in which it was made.
#pragma once
#include <cstdint>

namespace ringattn {

// Grows by one in every forked child; costs one load.
std::uint32_t process_generation();

}  // namespace ringattn
