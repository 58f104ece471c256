#include "base/env.h"

#include <cstdlib>

namespace ringattn {
namespace {
constexpr EnvVariable kVariables[] = {
    {kEnvLog, "log to standard error: error, warn, info or debug (only for contexts without a log function)"},
    {kEnvForceKernel, "the one kernel that plans may use, by name; a plan that it refuses fails"},
    {kEnvTransport, "the one transport that comms may use where the description names none"},
};
}  // namespace

std::span<const EnvVariable> env_variables() { return kVariables; }

std::string env_value(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace ringattn
