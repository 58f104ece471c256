#include "base/log.h"

#include <cstdio>

#include "base/env.h"

namespace ringattn {
namespace {
constexpr const char* kLevels[] = {"off", "error", "warn", "info", "debug"};
}

Status Log::from_environment(Log& out) {
  const std::string value = env_value(kEnvLog);
  out = Log();
  if (value.empty()) return {};
  for (std::int32_t level = 0; level < 5; ++level) {
    if (value == kLevels[level]) {
      out.level_ = level;
      return {};
    }
  }
  return invalid(std::string(kEnvLog) + ": \"" + value + "\", expected off, error, warn, info or debug");
}

void Log::write(std::int32_t level, const std::string& message) const {
  if (!wants(level)) return;
  if (function_ != nullptr) {
    function_(user_, level, message.c_str());
  } else {
    std::fprintf(stderr, "ringattn %s: %s\n", kLevels[level], message.c_str());
  }
}

}  // namespace ringattn
