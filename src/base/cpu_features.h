// What this machine's CPU can do, in words, for build info and reports. Kernels ask their own questions.
#pragma once

#include <string>

namespace ringattn {

// The features that matter to the kernels, separated by blanks: "sse4 avx2 fma f16c"; "" where none is
// known.
std::string cpu_features();

}  // namespace ringattn
