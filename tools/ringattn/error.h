// What the tool throws; main turns each into one line on standard error and an exit status.
#pragma once
#include <stdexcept>
#include <string>

#include "ringattn.h"

namespace ringattn::tool {

enum ExitStatus : int {
  kExitOk = 0,
  kExitWrongAnswer = 1,  // computed, but beyond the tolerance
  kExitBadInput = 2,     // the command line, a problem or a file
  kExitRunFailed = 3     // the library, the machine or the file system failed
};

class BadInput : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class RunFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws where a call of the library failed: its message when the caller's values are at fault, otherwise the
// status as well. `message` NULL stands for the thread's last error.
inline void check(ringattn_status status, const char* message = nullptr) {
  if (status >= 0) return;
  const std::string text = message && *message ? message : ringattn_last_error();
  if (status == RINGATTN_ERR_INVALID_ARGUMENT || status == RINGATTN_ERR_UNSUPPORTED ||
      status == RINGATTN_ERR_NOT_FOUND) {
    throw BadInput(text);
  }
  throw RunFailed(std::string(ringattn_status_name(status)) + ": " + text);
}

}  // namespace ringattn::tool
