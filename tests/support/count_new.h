// Counts every operator new of the test program, thread by thread.
#pragma once

#include <cstdint>

namespace ringattn::support {

// False under AddressSanitizer, whose own operator new must stay: then nothing is counted.
bool counts_new();

// Calls of operator new by this thread since it began.
std::uint64_t news_of_this_thread();

}  // namespace ringattn::support
