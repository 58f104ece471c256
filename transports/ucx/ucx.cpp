// The ucx transport, a plugin: a link whose large messages UCX carries, over shared memory between ranks of one host and over
// the network between hosts.
#include <new>

#include "transports/tcp/structs.h"
#include "transports/tcp/table.h"
#include "transports/ucx/carrier.h"

namespace ringattn::ucx {
namespace {

constexpr unsigned kOldestMajor = 1, kOldestMinor = 12;

const char* missing() {
  unsigned major = 0, minor = 0, patch = 0;
  ucp_get_version(&major, &minor, &patch);
  if (major < kOldestMajor || (major == kOldestMajor && minor < kOldestMinor))
    return "UCX is older than 1.12";
  ucp_lib_attr_t library{};
  library.field_mask = UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL;
  if (ucp_lib_query(&library) != UCS_OK || library.max_thread_level < UCS_THREAD_MODE_MULTI)
    return "UCX was built without --enable-mt";
  return tcp::missing_of_link();
}

std::int32_t score(const char** why) {
  const char* const lacks = missing();
  if (why != nullptr) *why = lacks;
  return lacks == nullptr ? 20 : 0;  // over tcp, which it beats on one host and equals on Ethernet
}

ringattn_status open(const ringattn_link_desc_v1* desc, void** link, const char** error) {
  try {
    return tcp::open_link("ucx", desc, std::make_unique<Carrier>(tcp::read_struct(desc).world_size), link,
                          error);
  } catch (const std::bad_alloc&) {
    if (error != nullptr) *error = "ucx: out of memory";
    return RINGATTN_ERR_OUT_OF_MEMORY;
  }
}

}  // namespace
}  // namespace ringattn::ucx

// `quiet`: UCX was loaded for us alone, so its log is ours.
extern "C" __attribute__((visibility("default"))) const ringattn_transport_v1* ringattn_transport_ucx_v1(
    int quiet) {
  static const ringattn_transport_v1 table =
      ringattn::tcp::link_table("ucx", ringattn::ucx::score, ringattn::ucx::open);
  static const bool kept = [quiet] {
    if (quiet != 0) ringattn::ucx::keep_log();
    return true;
  }();
  static_cast<void>(kept);
  return &table;
}
