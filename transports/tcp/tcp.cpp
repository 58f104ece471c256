// The tcp transport: a link whose large messages go as pieces over its data connections.
#include "transports/tcp/tcp.h"

#include "transports/tcp/table.h"

namespace ringattn::tcp {
namespace {

// Below what lends or shares memory: this runs everywhere, and copies.
std::int32_t score(const char** why) {
  const char* const missing = missing_of_link();
  if (why != nullptr) *why = missing;
  return missing == nullptr ? 10 : 0;
}

ringattn_status open(const ringattn_link_desc_v1* desc, void** link, const char** error) {
  return open_link("tcp", desc, nullptr, link, error);
}

}  // namespace
}  // namespace ringattn::tcp

extern "C" const ringattn_transport_v1* ringattn_transport_tcp_v1(void) {
  static const ringattn_transport_v1 table =
      ringattn::tcp::link_table("tcp", ringattn::tcp::score, ringattn::tcp::open);
  return &table;
}
