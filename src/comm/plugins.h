// Transports that live in shared libraries of their own and are loaded at their first use.
#pragma once
#include "ringattn/transport.h"

namespace ringattn::comm {

inline constexpr const char* kUcxName = "ucx";

// The table of the ucx transport. Loads libringattn_ucx.so, and UCX with it, at the first call; where that fails, a table
// that can do nothing but tell its score, 0, and why.
const ringattn_transport_v1* ucx_table();

}  // namespace ringattn::comm
