// How functions inside report failure: a status of the public set and one line that names field, value and
// what was expected.
#pragma once
#include <string>
#include <utility>

#include "ringattn.h"

namespace ringattn {

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK; holds no memory
  Status(ringattn_status code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == RINGATTN_OK; }
  ringattn_status code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  ringattn_status code_ = RINGATTN_OK;
  std::string message_;
};

inline Status invalid(std::string message) { return {RINGATTN_ERR_INVALID_ARGUMENT, std::move(message)}; }
inline Status unsupported(std::string message) { return {RINGATTN_ERR_UNSUPPORTED, std::move(message)}; }

enum class StatusRange { ok, call, request, comm, context };
inline StatusRange range_of(ringattn_status code) {
  if (code >= 0) return StatusRange::ok;
  if (code > -100) return StatusRange::call;
  if (code > -200) return StatusRange::request;
  return code > -300 ? StatusRange::comm : StatusRange::context;
}

}  // namespace ringattn

// Returns a failed status to the caller.
#define RINGATTN_TRY(expression)                                                  \
  do {                                                                            \
    if (::ringattn::Status status_ = (expression); !status_.ok()) return status_; \
  } while (0)
