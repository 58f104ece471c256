#include "api/comm_desc.h"
#include "api/guard.h"
#include "api/handles.h"
#include "api/read_struct.h"
#include "comm/transports.h"

namespace {

using namespace ringattn;

Status create_local(ringattn_context* context, const ringattn_comm_desc* given, ringattn_comm** out) {
  RINGATTN_TRY(api::check_handle(context, "context"));
  ringattn_comm_desc desc{};
  RINGATTN_TRY(api::read_comm_world(given, 1, desc));
  if (out == nullptr) return invalid("out: NULL, expected room for world_size handles");
  for (std::int32_t rank = 0; rank < desc.world_size; ++rank) out[rank] = nullptr;
  comm::CommOptions options;
  RINGATTN_TRY(api::read_comm_timeouts(desc, options));
  std::vector<std::unique_ptr<comm::Comm>> comms;
  RINGATTN_TRY(comm::Comm::create_local(context->log, desc.world_size,
                                        desc.transport == nullptr ? "" : desc.transport, options, comms));
  std::vector<std::unique_ptr<ringattn_comm>> handles;
  for (auto& comm : comms) handles.push_back(api::make_comm_handle(context, std::move(comm)));
  api::hand_out(std::move(handles), out);
  return {};
}

}  // namespace

extern "C" {

ringattn_status ringattn_comm_create_local(ringattn_context* context, const ringattn_comm_desc* desc,
                                           ringattn_comm** out) {
  return api::guarded([&] { return create_local(context, desc, out); });
}

ringattn_status ringattn_comm_rank(const ringattn_comm* comm, int32_t* rank, int32_t* world_size) {
  return api::guarded([&]() -> Status {
    RINGATTN_TRY(api::check_handle(comm, "comm"));
    if (rank != nullptr) *rank = comm->comm->rank();
    if (world_size != nullptr) *world_size = comm->comm->world();
    return {};
  });
}

ringattn_status ringattn_comm_abort(ringattn_comm* comm, const char* reason) {
  return api::guarded([&]() -> Status {
    RINGATTN_TRY(api::check_handle(comm, "comm"));
    std::string why = reason == nullptr || *reason == 0 ? "no reason given" : reason;
    for (char& c : why) {
      if (static_cast<unsigned char>(c) < ' ')
        c = ' ';  // one line, also for peers and in a request's message
    }
    comm->comm->abort(RINGATTN_ERR_ABORTED,
                      "aborted by rank " + std::to_string(comm->comm->rank()) + ": " + why);
    return {};
  });
}

ringattn_status ringattn_comm_status(const ringattn_comm* comm) {
  return api::guarded([&]() -> Status {
    RINGATTN_TRY(api::check_handle(comm, "comm"));
    return comm->comm->state();
  });
}

void ringattn_comm_destroy(ringattn_comm* comm) {
  if (comm == nullptr || comm->generation != process_generation()) return;
  if (comm->children.load() != 0 || comm->comm->busy.load()) {
    comm->context->log.write(RINGATTN_LOG_ERROR,
                             "comm_destroy: " + std::to_string(comm->children.load()) +
                                 " plans are still alive" +
                                 (comm->comm->busy.load() ? " and a collective call is under way" : "") +
                                 "; nothing was destroyed");
    return;
  }
  comm->context->children.fetch_sub(1);
  delete comm;
}

ringattn_status ringattn_transport_register(const ringattn_transport_v1* transport) {
  return api::guarded([&] { return comm::register_transport(transport); });
}

}  // extern "C"
