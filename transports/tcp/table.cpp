// The C table of a transport whose ranks are connected by a Link.
#include "transports/tcp/table.h"

#include <sodium.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "transports/tcp/link.h"
#include "transports/tcp/mesh.h"
#include "transports/tcp/structs.h"

namespace ringattn::tcp {
namespace {

// What open and connect know besides the link.
struct Handle {
  Link link;
  std::int32_t open_timeout_ms;
};

thread_local char last_error[1024];

ringattn_status refuse(const char* name, const char** error, ringattn_status status, const std::string& why) {
  std::snprintf(last_error, sizeof last_error, "%s: %s", name, why.c_str());
  if (error != nullptr) *error = last_error;
  return status;
}

Link& as_link(void* handle) { return static_cast<Handle*>(handle)->link; }

// What must not fail: a little memory may be needed to queue what a full socket does not take at once.
// Without it the link ends, and the peers find that out by themselves.
template <class Body>
void without_fail(Link& link, Body body) noexcept {
  try {
    body();
  } catch (const std::bad_alloc&) {
    link.give_up("out of memory");
  }
}

void close(void* handle) {
  Link& link = as_link(handle);
  without_fail(link, [&] { link.close(); });
  delete static_cast<Handle*>(handle);
}

ringattn_status address(void* handle, void* out, std::uint64_t capacity, std::uint64_t* bytes) {
  try {
    const std::string blob = write_address(as_link(handle).address());
    *bytes = blob.size();
    if (blob.size() > capacity) return RINGATTN_ERR_TRANSPORT;
    std::memcpy(out, blob.data(), blob.size());
    return RINGATTN_OK;
  } catch (const std::bad_alloc&) {
    return RINGATTN_ERR_OUT_OF_MEMORY;
  }
}

ringattn_status read_addresses(const Link& link, const ringattn_address_v1* given, std::int32_t count,
                               std::vector<LinkAddress>& out, const char** error) {
  if (count != link.world_size()) {
    return refuse(link.name(), error, RINGATTN_ERR_INVALID_ARGUMENT,
                  std::to_string(count) + " addresses for " + std::to_string(link.world_size()) + " ranks");
  }
  out.resize(static_cast<std::size_t>(count));
  for (std::int32_t rank = 0; rank < count; ++rank) {
    const auto each = read_struct(given, rank);
    if (each.rank == rank && read_address(each.data, each.bytes, out[static_cast<std::size_t>(rank)])) {
      if (rank >= link.rank() || !to_try(link.address(), out[static_cast<std::size_t>(rank)]).empty())
        continue;
      return refuse(link.name(), error, RINGATTN_ERR_TRANSPORT,
                    "rank " + std::to_string(rank) + " has no address that leads to it from another host");
    }
    return refuse(
        link.name(), error, RINGATTN_ERR_INVALID_ARGUMENT,
        "the address of rank " + std::to_string(rank) + " cannot be read: another version of the library?");
  }
  return RINGATTN_OK;
}

// A link that could not be connected is dead, and says so to the peers that it has reached.
ringattn_status connect(void* handle, const ringattn_address_v1* given, std::int32_t count,
                        const char** error) {
  Link& link = as_link(handle);
  const std::int32_t limit = static_cast<Handle*>(handle)->open_timeout_ms;
  const auto deadline =
      limit < 0 ? Clock::time_point::max() : Clock::now() + std::chrono::milliseconds(limit);
  try {
    std::vector<LinkAddress> addresses;
    ringattn_status status = read_addresses(link, given, count, addresses, error);
    if (status != RINGATTN_OK) return status;
    std::string why;
    status = Mesh(link, addresses).connect(deadline, why);
    if (status == RINGATTN_OK) return status;
    link.abort(status, ("rank " + std::to_string(link.rank()) + " could not connect: " + why).c_str());
    return refuse(link.name(), error, status, why);
  } catch (const std::bad_alloc&) {
    return refuse(link.name(), error, RINGATTN_ERR_OUT_OF_MEMORY, "out of memory");
  }
}

// The library never posts such a thing. The ring ends with a text that says what it was: a refused post alone
// is hard to trace.
bool is_legal(Link& link, const ringattn_transfer_v1& transfer) {
  const bool known_kind =
      transfer.kind == RINGATTN_TRANSFER_SEND || transfer.kind == RINGATTN_TRANSFER_RECEIVE;
  if (known_kind && transfer.peer >= 0 && transfer.peer < link.world_size()) return true;
  char reason[160];
  std::snprintf(reason, sizeof reason, "rank %d posted a transfer of kind %d with rank %d of %d", link.rank(),
                transfer.kind, transfer.peer, link.world_size());
  link.abort(RINGATTN_ERR_TRANSPORT, reason);
  return false;
}

ringattn_status post(void* handle, const ringattn_transfer_v1* transfers, std::int32_t count) {
  Link& link = as_link(handle);
  for (std::int32_t i = 0; i < count; ++i) {
    if (!is_legal(link, read_struct(transfers, i))) return RINGATTN_ERR_TRANSPORT;
  }
  try {
    return link.post(transfers, std::max(count, 0));
  } catch (const std::bad_alloc&) {
    link.give_up("out of memory in post");
    return RINGATTN_ERR_TRANSPORT;
  }
}

ringattn_status test(void* handle, ringattn_completion_v1* out, std::int32_t capacity, std::int32_t* count) {
  Link& link = as_link(handle);
  *count = 0;
  try {
    return link.test(out, capacity, *count);
  } catch (const std::bad_alloc&) {
    link.give_up("out of memory in test");
    return RINGATTN_OK;  // what has ended by that is handed out by the next call
  }
}

void release(void*, std::uint64_t) {}  // nothing is ever lent

void withdraw(void* handle, std::uint64_t mask, std::uint64_t value) {
  Link& link = as_link(handle);
  without_fail(link, [&] { link.withdraw(mask, value); });
}

void wait(void* handle, std::uint64_t timeout_ns) {
  Link& link = as_link(handle);
  without_fail(link, [&] { link.wait(timeout_ns); });
}

void wake(void* handle) { as_link(handle).wake(); }

void tell(void* handle, const ringattn_beat_v1* beat) {
  Link& link = as_link(handle);
  without_fail(link, [&] { link.tell(read_struct(beat)); });
}

ringattn_status ask(void* handle, std::int32_t rank, ringattn_beat_v1* out) {
  Link& link = as_link(handle);
  if (rank < 0 || rank >= link.world_size()) return RINGATTN_ERR_INVALID_ARGUMENT;
  write_struct(out, 0, link.ask(rank));
  return RINGATTN_OK;
}

void abort(void* handle, ringattn_status status, const char* reason) {
  const bool comm_range = status <= -200 && status > -300;
  Link& link = as_link(handle);
  without_fail(
      link, [&] { link.abort(comm_range ? status : RINGATTN_ERR_ABORTED, reason != nullptr ? reason : ""); });
}

ringattn_status state(void* handle, char* reason, std::uint64_t capacity) {
  Link& link = as_link(handle);
  ringattn_status status = RINGATTN_ERR_TRANSPORT;
  without_fail(link, [&] { status = link.state(reason, capacity); });
  return status;
}

}  // namespace

const char* missing_of_link() { return sodium_init() >= 0 ? nullptr : "libsodium cannot be initialised"; }

ringattn_status open_link(const char* name, const ringattn_link_desc_v1* given,
                          std::unique_ptr<Carrier> carrier, void** link, const char** error) {
  *link = nullptr;
  const auto desc = read_struct(given);
  if (desc.world_size < 1 || desc.rank < 0 || desc.rank >= desc.world_size) {
    return refuse(name, error, RINGATTN_ERR_INVALID_ARGUMENT,
                  "rank " + std::to_string(desc.rank) + " of world_size " + std::to_string(desc.world_size) +
                      " does not exist");
  }
  const char* const why_not = missing_of_link();
  if (why_not != nullptr) return refuse(name, error, RINGATTN_ERR_TRANSPORT, why_not);
  try {
    auto handle =
        std::unique_ptr<Handle>(new Handle{Link(name, desc, std::move(carrier)), desc.open_timeout_ms});
    std::string why;
    if (!handle->link.open(why)) return refuse(name, error, RINGATTN_ERR_TRANSPORT, why);
    *link = handle.release();
    return RINGATTN_OK;
  } catch (const std::bad_alloc&) {
    return refuse(name, error, RINGATTN_ERR_OUT_OF_MEMORY, "out of memory");
  }
}

ringattn_transport_v1 link_table(const char* name, decltype(ringattn_transport_v1::score) score,
                                 decltype(ringattn_transport_v1::open) open) {
  return {
      .struct_size = sizeof(ringattn_transport_v1),
      .abi = RINGATTN_TRANSPORT_ABI,
      .name = name,
      .caps = RINGATTN_TRANSPORT_PROCESSES,
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
      .address = address,
      .connect = connect,
  };
}

}  // namespace ringattn::tcp
