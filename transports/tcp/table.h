// The C table of a transport whose ranks are connected by a Link, with a carrier or without.
#pragma once
#include <memory>

#include "ringattn/transport.h"
#include "transports/tcp/carrier.h"

namespace ringattn::tcp {

// Null = a link can be opened; else what is missing for it.
const char* missing_of_link();

// What a table's `open` does; `name` is static.
ringattn_status open_link(const char* name, const ringattn_link_desc_v1* desc,
                          std::unique_ptr<Carrier> carrier, void** link, const char** error);

ringattn_transport_v1 link_table(const char* name, decltype(ringattn_transport_v1::score) score,
                                 decltype(ringattn_transport_v1::open) open);

}  // namespace ringattn::tcp
