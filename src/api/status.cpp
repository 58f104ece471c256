#include <string>

#include "api/guard.h"

namespace ringattn::api {
namespace {
thread_local std::string last_error;
}

ringattn_status report(const Status& status) noexcept {
  try {
    last_error = status.message();
    for (char& c : last_error) {
      if (static_cast<unsigned char>(c) < ' ') c = ' ';  // one line, whatever a caller's string held
    }
  } catch (...) {
    last_error.clear();  // keeps what room it has: without memory the code alone has to do
  }
  return status.code();
}

}  // namespace ringattn::api

extern "C" {

const char* ringattn_last_error(void) { return ringattn::api::last_error.c_str(); }

uint32_t ringattn_version(void) {
  return RINGATTN_VERSION_MAJOR << 16 | RINGATTN_VERSION_MINOR << 8 | RINGATTN_VERSION_PATCH;
}

const char* ringattn_status_name(ringattn_status status) {
#define RINGATTN_NAME(code) \
  case code:                \
    return #code
  switch (status) {
    RINGATTN_NAME(RINGATTN_OK);
    RINGATTN_NAME(RINGATTN_IN_PROGRESS);
    RINGATTN_NAME(RINGATTN_ERR_INVALID_ARGUMENT);
    RINGATTN_NAME(RINGATTN_ERR_UNSUPPORTED);
    RINGATTN_NAME(RINGATTN_ERR_OUT_OF_MEMORY);
    RINGATTN_NAME(RINGATTN_ERR_STRUCT_SIZE);
    RINGATTN_NAME(RINGATTN_ERR_NOT_FOUND);
    RINGATTN_NAME(RINGATTN_ERR_BUSY);
    RINGATTN_NAME(RINGATTN_ERR_FORKED);
    RINGATTN_NAME(RINGATTN_ERR_RANK_MISMATCH);
    RINGATTN_NAME(RINGATTN_ERR_PEER_REFUSED);
    RINGATTN_NAME(RINGATTN_ERR_CANCELED);
    RINGATTN_NAME(RINGATTN_ERR_TRANSPORT);
    RINGATTN_NAME(RINGATTN_ERR_PEER_LOST);
    RINGATTN_NAME(RINGATTN_ERR_TIMEOUT);
    RINGATTN_NAME(RINGATTN_ERR_ABORTED);
    RINGATTN_NAME(RINGATTN_ERR_DEVICE);
    RINGATTN_NAME(RINGATTN_ERR_INTERNAL);
    default:
      return "RINGATTN_UNKNOWN";
  }
#undef RINGATTN_NAME
}

}  // extern "C"
