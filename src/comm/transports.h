// Which transports there are, and which one to take.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "ringattn/transport.h"

namespace ringattn::comm {

struct TransportState {
  const ringattn_transport_v1* table;
  std::int32_t score;  // 0 = cannot run here
  std::string why_not;
};

// The built-in ones, then those the application registered, then, where wanted, those that have to be loaded. What is
// loaded stays in the process.
enum class Plugins : std::uint8_t { leave, load };
std::vector<TransportState> transports(Plugins plugins);

// For ranks of one process. `wished` empty: what RINGATTN_TRANSPORT names, else the highest score of those that need not be
// loaded.
Status choose_transport(const std::string& wished, const ringattn_transport_v1** out);

Status register_transport(const ringattn_transport_v1* table);

}  // namespace ringattn::comm
