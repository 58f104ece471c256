// The C table of the local transport, and the registry through which ranks of one ring find each other.
#include "transports/local/local.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "transports/local/group.h"
#include "transports/local/structs.h"

namespace ringattn::local {
namespace {

struct Entry {
  std::unique_ptr<Group> group;
  std::int32_t open_links = 0;
};

struct Registry {
  using Key = std::pair<std::uint64_t, std::uint64_t>;
  std::mutex mutex;
  std::map<Key, Entry> groups;
};

// Never destroyed: a thread may still close a link while the process ends.
Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

thread_local char open_error[640];

ringattn_status refuse(const char** error, ringattn_status status) {
  if (error != nullptr) *error = open_error;
  return status;
}

std::int32_t score(const char** why) {
  if (why != nullptr) *why = nullptr;
  return 100;
}

// Joins the group, which the first rank makes. Throws std::bad_alloc; a group without a rank is not left
// behind.
Link* join(const ringattn_link_desc_v1& desc, ringattn_status& status) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const Registry::Key key(desc.group[0], desc.group[1]);
  const auto entry = all.groups.try_emplace(key).first;
  Link* link = nullptr;
  try {
    if (entry->second.group == nullptr) entry->second.group = std::make_unique<Group>(desc.world_size);
    Group& group = *entry->second.group;
    if (group.world_size() != desc.world_size) {
      status = RINGATTN_ERR_INVALID_ARGUMENT;
      std::snprintf(open_error, sizeof open_error, "local: rank %d says world_size %d, this ring has %d",
                    desc.rank, desc.world_size, group.world_size());
    } else {
      link = group.enter(desc.rank, status, open_error, sizeof open_error);
    }
  } catch (...) {
    if (entry->second.open_links == 0) all.groups.erase(entry);
    throw;
  }
  if (link != nullptr) ++entry->second.open_links;
  return link;
}

ringattn_status open(const ringattn_link_desc_v1* given, void** link, const char** error) {
  *link = nullptr;
  const auto desc = read_struct(given);
  if (desc.world_size < 1 || desc.rank < 0 || desc.rank >= desc.world_size) {
    std::snprintf(open_error, sizeof open_error, "local: rank %d of world_size %d does not exist", desc.rank,
                  desc.world_size);
    return refuse(error, RINGATTN_ERR_INVALID_ARGUMENT);
  }
  try {
    ringattn_status status = RINGATTN_OK;
    *link = join(desc, status);
    return *link != nullptr ? RINGATTN_OK : refuse(error, status);
  } catch (const std::bad_alloc&) {
    std::snprintf(open_error, sizeof open_error, "local: out of memory");
    return refuse(error, RINGATTN_ERR_OUT_OF_MEMORY);
  }
}

Link& as_link(void* link) { return *static_cast<Link*>(link); }

void close(void* handle) {
  Link& link = as_link(handle);
  Group* const group = link.group;
  group->leave(link);
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (auto entry = all.groups.begin(); entry != all.groups.end(); ++entry) {
    if (entry->second.group.get() != group) continue;
    if (--entry->second.open_links == 0) all.groups.erase(entry);
    return;
  }
}

// The library never posts such a thing. The ring ends with a text that says what it was: a refused post alone
// is hard to trace.
bool is_legal(const Link& link, const ringattn_transfer_v1& transfer) {
  const bool known_kind =
      transfer.kind == RINGATTN_TRANSFER_SEND || transfer.kind == RINGATTN_TRANSFER_RECEIVE;
  if (known_kind && transfer.peer >= 0 && transfer.peer < link.group->world_size()) return true;
  char reason[160];
  std::snprintf(reason, sizeof reason, "rank %d posted a transfer of kind %d with rank %d of %d", link.rank,
                transfer.kind, transfer.peer, link.group->world_size());
  link.group->abort(RINGATTN_ERR_TRANSPORT, reason);
  return false;
}

ringattn_status post(void* handle, const ringattn_transfer_v1* transfers, std::int32_t count) {
  Link& link = as_link(handle);
  for (std::int32_t i = 0; i < count; ++i) {
    if (!is_legal(link, read_struct(transfers, i))) return RINGATTN_ERR_TRANSPORT;
  }
  try {
    return link.group->post(link, transfers, std::max(count, 0));
  } catch (const std::bad_alloc&) {
    link.group->abort(RINGATTN_ERR_TRANSPORT, "out of memory in post");
    return RINGATTN_ERR_TRANSPORT;
  }
}

ringattn_status test(void* handle, ringattn_completion_v1* out, std::int32_t capacity, std::int32_t* count) {
  Link& link = as_link(handle);
  return link.group->test(link, out, capacity, *count);
}

void release(void* handle, std::uint64_t loan) {
  Link& link = as_link(handle);
  link.group->release(link, loan);
}

void withdraw(void* handle, std::uint64_t mask, std::uint64_t value) {
  Link& link = as_link(handle);
  link.group->withdraw(link, mask, value);
}

void wait(void* handle, std::uint64_t timeout_ns) {
  Link& link = as_link(handle);
  link.group->wait(link, timeout_ns);
}

void wake(void* handle) {
  Link& link = as_link(handle);
  link.group->wake(link);
}

void tell(void* handle, const ringattn_beat_v1* beat) {
  Link& link = as_link(handle);
  link.group->tell(link, read_struct(beat));
}

ringattn_status ask(void* handle, std::int32_t rank, ringattn_beat_v1* out) {
  Link& link = as_link(handle);
  if (rank < 0 || rank >= link.group->world_size()) return RINGATTN_ERR_INVALID_ARGUMENT;
  write_struct(out, 0, link.group->ask(rank));
  return RINGATTN_OK;
}

void abort(void* handle, ringattn_status status, const char* reason) {
  const bool comm_range = status <= -200 && status > -300;
  as_link(handle).group->abort(comm_range ? status : RINGATTN_ERR_ABORTED, reason != nullptr ? reason : "");
}

ringattn_status state(void* handle, char* reason, std::uint64_t capacity) {
  Link& link = as_link(handle);
  return link.group->state(link, reason, capacity);
}

constexpr ringattn_transport_v1 kTable = {
    .struct_size = sizeof(ringattn_transport_v1),
    .abi = RINGATTN_TRANSPORT_ABI,
    .name = "local",
    .caps = RINGATTN_TRANSPORT_LENDS,
    .score = score,
    .open = open,
    .close = close,
    .post = post,
    .test = test,
    .release = release,
    .withdraw = withdraw,
    .wait = wait,
    .wake = wake,
    .tell = tell,
    .ask = ask,
    .abort = abort,
    .state = state,
    .address = nullptr,
    .connect = nullptr,
};

}  // namespace
}  // namespace ringattn::local

extern "C" const ringattn_transport_v1* ringattn_transport_local_v1(void) { return &ringattn::local::kTable; }
