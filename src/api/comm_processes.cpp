// Comms whose ranks are processes: by unique id, by a launcher's environment, by the caller's all-gather.
#include <cstdlib>
#include <cstring>

#include "api/comm_desc.h"
#include "api/guard.h"
#include "api/handles.h"
#include "base/env.h"
#include "comm/join.h"
#include "comm/launcher_meet.h"

namespace {

using namespace ringattn;

constexpr std::size_t kIdBytes = sizeof(ringattn_unique_id);
static_assert(kIdBytes == comm::UniqueId::kBytes);

Status read_id(const ringattn_unique_id* given, comm::UniqueId& out) {
  if (given == nullptr) return invalid("id: NULL, expected a unique id");
  return comm::UniqueId::from_bytes({given->bytes, kIdBytes}, out);
}

Status check_rank(std::int32_t rank, std::int32_t world) {
  if (rank >= 0 && rank < world) return {};
  return invalid("rank: " + std::to_string(rank) + ", expected 0.." + std::to_string(world - 1));
}

comm::JoinRequest request_of(const ringattn_comm_desc& desc, std::int32_t rank,
                             const comm::CommOptions& options) {
  return {rank, desc.world_size, desc.transport == nullptr ? "" : desc.transport, options};
}

// A meeting's rounds as the all-gather that a ring is made with.
comm::Gather gather_of(comm::Meeting& meeting) {
  return [&meeting](const std::string& own, std::vector<std::string>& all) -> Status {
    std::vector<std::vector<std::uint8_t>> gathered;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(own.data());
    RINGATTN_TRY(meeting.gather({bytes, own.size()}, gathered));
    all.clear();
    for (const std::vector<std::uint8_t>& one : gathered) all.emplace_back(one.begin(), one.end());
    return {};
  };
}

Status join(ringattn_context* context, const comm::JoinRequest& request, const comm::Gather& gather,
            ringattn_comm** out) {
  std::unique_ptr<comm::Comm> comm;
  RINGATTN_TRY(comm::Comm::join(context->log, request, gather, comm));
  std::vector<std::unique_ptr<ringattn_comm>> handles;
  handles.push_back(api::make_comm_handle(context, std::move(comm)));
  api::hand_out(std::move(handles), out);
  return {};
}

Status create_id(ringattn_context* context, const ringattn_comm_desc* given, ringattn_unique_id* out) {
  RINGATTN_TRY(api::check_handle(context, "context"));
  if (out == nullptr) return invalid("out: NULL, expected room for a unique id");
  ringattn_comm_desc desc{};
  comm::CommOptions options;
  RINGATTN_TRY(api::read_comm_desc(given, 1, desc, options));
  RINGATTN_TRY(comm::start_crypto());
  comm::HostOptions host_options;
  host_options.world = desc.world_size;
  host_options.timeout_ms = options.arrival_timeout_ms;
  host_options.interface = env_value(kEnvInterface);
  std::unique_ptr<comm::MeetingHost> host;
  RINGATTN_TRY(comm::MeetingHost::start(host_options, host));
  std::memcpy(out->bytes, host->id().bytes().data(), kIdBytes);
  const std::lock_guard lock(context->hosts_mutex);
  // Those whose meeting is over have nothing left to do.
  std::erase_if(context->hosts, [](const std::unique_ptr<comm::MeetingHost>& old) {
    return old->wait(0).code() != RINGATTN_ERR_TIMEOUT;
  });
  context->hosts.push_back(std::move(host));
  return {};
}

Status create_from_id(ringattn_context* context, const ringattn_comm_desc* given, std::int32_t rank,
                      const ringattn_unique_id* id_bytes, ringattn_comm** out) {
  if (out == nullptr) return invalid("out: NULL, expected room for a handle");
  *out = nullptr;
  RINGATTN_TRY(api::check_handle(context, "context"));
  ringattn_comm_desc desc{};
  comm::CommOptions options;
  RINGATTN_TRY(api::read_comm_desc(given, 1, desc, options));
  RINGATTN_TRY(check_rank(rank, desc.world_size));
  comm::UniqueId id;
  RINGATTN_TRY(read_id(id_bytes, id));
  RINGATTN_TRY(comm::start_crypto());
  comm::JoinOptions join_options;
  join_options.timeout_ms = options.arrival_timeout_ms;
  join_options.interface = env_value(kEnvInterface);
  std::unique_ptr<comm::Meeting> meeting;
  RINGATTN_TRY(comm::Meeting::join(id, rank, desc.world_size, join_options, meeting));
  RINGATTN_TRY(join(context, request_of(desc, rank, options), gather_of(*meeting), out));
  static_cast<void>(meeting->leave());  // the ring stands; a host that is gone by now changes nothing
  return {};
}

Status create_from_environment(ringattn_context* context, const ringattn_comm_desc* given,
                               ringattn_comm** out) {
  if (out == nullptr) return invalid("out: NULL, expected room for a handle");
  *out = nullptr;
  RINGATTN_TRY(api::check_handle(context, "context"));
  ringattn_comm_desc desc{};
  comm::CommOptions options;
  RINGATTN_TRY(api::read_comm_desc(given, 0, desc, options));
  comm::Launch launch;
  RINGATTN_TRY(comm::read_launch([](const char* name) { return std::getenv(name); }, launch));
  if (desc.world_size != 0 && desc.world_size != launch.world) {
    return invalid("world_size: " + std::to_string(desc.world_size) + ", expected 0 or the launcher's " +
                   std::to_string(launch.world) + " (" + launch.source + ")");
  }
  desc.world_size = launch.world;
  if (context->log.wants(RINGATTN_LOG_INFO)) context->log.write(RINGATTN_LOG_INFO, launch.source);
  std::unique_ptr<comm::MeetingHost> host;
  std::unique_ptr<comm::Meeting> meeting;
  RINGATTN_TRY(comm::meet(launch, options.arrival_timeout_ms, host, meeting));
  const Status status = join(context, request_of(desc, launch.rank, options), gather_of(*meeting), out);
  static_cast<void>(meeting->leave());
  if (host != nullptr) static_cast<void>(host->wait(options.arrival_timeout_ms));
  return status;
}

// The caller's all-gather has one size for all: a length, the words, zeros.
comm::Gather gather_of(ringattn_allgather_fn allgather, void* user, std::int32_t world) {
  return [=](const std::string& own, std::vector<std::string>& all) -> Status {
    constexpr std::size_t kSize = comm::kMostGathered + sizeof(std::uint64_t);
    if (own.size() > comm::kMostGathered)
      return {RINGATTN_ERR_INTERNAL, "all-gather: " + std::to_string(own.size()) + " bytes at once"};
    std::vector<char> sent(kSize), received(kSize * static_cast<std::size_t>(world));
    const std::uint64_t length = own.size();
    std::memcpy(sent.data(), &length, sizeof length);
    std::memcpy(sent.data() + sizeof length, own.data(), own.size());
    const std::int32_t result = allgather(user, sent.data(), kSize, received.data());
    if (result != 0) {
      return {RINGATTN_ERR_TRANSPORT,
              "allgather: the caller's function returned " + std::to_string(result) + ", expected 0"};
    }
    all.clear();
    for (std::size_t r = 0; r < static_cast<std::size_t>(world); ++r) {
      const char* const from = received.data() + r * kSize;
      std::uint64_t bytes = 0;
      std::memcpy(&bytes, from, sizeof bytes);
      all.emplace_back(from + sizeof bytes, std::min<std::uint64_t>(bytes, comm::kMostGathered));
    }
    return {};
  };
}

Status create_from_allgather(ringattn_context* context, const ringattn_comm_desc* given, std::int32_t rank,
                             ringattn_allgather_fn allgather, void* user, ringattn_comm** out) {
  if (out == nullptr) return invalid("out: NULL, expected room for a handle");
  *out = nullptr;
  RINGATTN_TRY(api::check_handle(context, "context"));
  ringattn_comm_desc desc{};
  comm::CommOptions options;
  RINGATTN_TRY(api::read_comm_desc(given, 1, desc, options));
  RINGATTN_TRY(check_rank(rank, desc.world_size));
  if (allgather == nullptr) return invalid("allgather: NULL, expected a function");
  return join(context, request_of(desc, rank, options), gather_of(allgather, user, desc.world_size), out);
}

Status id_to_text(const ringattn_unique_id* given, char* text, std::uint64_t capacity) {
  comm::UniqueId id;
  RINGATTN_TRY(read_id(given, id));
  const std::string words = id.to_text();
  if (text == nullptr) return invalid("text: NULL, expected room for the text");
  if (capacity <= words.size()) {
    return invalid("capacity: " + std::to_string(capacity) + ", expected at least " +
                   std::to_string(words.size() + 1));
  }
  std::memcpy(text, words.c_str(), words.size() + 1);
  return {};
}

Status id_from_text(const char* text, ringattn_unique_id* out) {
  if (text == nullptr) return invalid("text: NULL, expected a unique id in text");
  if (out == nullptr) return invalid("out: NULL, expected room for a unique id");
  comm::UniqueId id;
  RINGATTN_TRY(comm::UniqueId::from_text(text, id));
  std::memcpy(out->bytes, id.bytes().data(), kIdBytes);
  return {};
}

}  // namespace

extern "C" {

ringattn_status ringattn_unique_id_create(ringattn_context* context, const ringattn_comm_desc* desc,
                                          ringattn_unique_id* out) {
  return api::guarded([&] { return create_id(context, desc, out); });
}

ringattn_status ringattn_unique_id_to_text(const ringattn_unique_id* id, char* text, uint64_t capacity) {
  return api::guarded([&] { return id_to_text(id, text, capacity); });
}

ringattn_status ringattn_unique_id_from_text(const char* text, ringattn_unique_id* out) {
  return api::guarded([&] { return id_from_text(text, out); });
}

ringattn_status ringattn_comm_create_from_id(ringattn_context* context, const ringattn_comm_desc* desc,
                                             int32_t rank, const ringattn_unique_id* id,
                                             ringattn_comm** out) {
  return api::guarded([&] { return create_from_id(context, desc, rank, id, out); });
}

ringattn_status ringattn_comm_create_from_environment(ringattn_context* context,
                                                      const ringattn_comm_desc* desc, ringattn_comm** out) {
  return api::guarded([&] { return create_from_environment(context, desc, out); });
}

ringattn_status ringattn_comm_create_from_allgather(ringattn_context* context, const ringattn_comm_desc* desc,
                                                    int32_t rank, ringattn_allgather_fn allgather, void* user,
                                                    ringattn_comm** out) {
  return api::guarded([&] { return create_from_allgather(context, desc, rank, allgather, user, out); });
}

}  // extern "C"
