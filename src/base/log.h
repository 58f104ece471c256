// One line of log to the caller's function, or to standard error where it gave none.
#pragma once
#include <cstdint>
#include <string>

#include "base/status.h"

namespace ringattn {

class Log {
 public:
  Log() = default;
  Log(ringattn_log_fn function, void* user, std::int32_t level)
      : function_(function), user_(user), level_(level) {}
  // What RINGATTN_LOG asks for; refuses an unknown value.
  static Status from_environment(Log& out);

  bool wants(std::int32_t level) const { return level <= level_; }
  void write(std::int32_t level, const std::string& message) const;

 private:
  ringattn_log_fn function_ = nullptr;  // null = standard error
  void* user_ = nullptr;
  std::int32_t level_ = 0;
};

}  // namespace ringattn
