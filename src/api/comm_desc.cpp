#include "api/comm_desc.h"

#include "api/handles.h"
#include "api/read_struct.h"

namespace ringattn::api {
namespace {

Status read_timeout(const char* field, std::int32_t value, std::int64_t& out) {
  if (value < -1)
    return invalid(std::string(field) + ": " + std::to_string(value) +
                   ", expected -1 (never), 0 (default) or milliseconds");
  if (value != 0) out = value;
  return {};
}

}  // namespace

Status read_comm_world(const ringattn_comm_desc* given, std::int32_t least_world, ringattn_comm_desc& desc) {
  RINGATTN_TRY(read_struct(given, "comm_desc", desc));
  if (desc.world_size < least_world || desc.world_size > kMaxWorldSize) {
    return invalid("world_size: " + std::to_string(desc.world_size) + ", expected " +
                   std::to_string(least_world) + ".." + std::to_string(kMaxWorldSize));
  }
  return {};
}

Status read_comm_timeouts(const ringattn_comm_desc& desc, comm::CommOptions& options) {
  RINGATTN_TRY(read_timeout("timeout_ms", desc.timeout_ms, options.timeout_ms));
  return read_timeout("arrival_timeout_ms", desc.arrival_timeout_ms, options.arrival_timeout_ms);
}

Status read_comm_desc(const ringattn_comm_desc* given, std::int32_t least_world, ringattn_comm_desc& desc,
                      comm::CommOptions& options) {
  RINGATTN_TRY(read_comm_world(given, least_world, desc));
  return read_comm_timeouts(desc, options);
}

std::unique_ptr<ringattn_comm> make_comm_handle(ringattn_context* context, std::unique_ptr<comm::Comm> comm) {
  auto handle = std::make_unique<ringattn_comm>();
  handle->context = context;
  handle->comm = std::move(comm);
  return handle;
}

void hand_out(std::vector<std::unique_ptr<ringattn_comm>> handles, ringattn_comm** out) {
  for (std::size_t rank = 0; rank < handles.size(); ++rank) {
    handles[rank]->context->children.fetch_add(1);
    out[rank] = handles[rank].release();
  }
}

}  // namespace ringattn::api
