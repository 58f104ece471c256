// Every environment variable that the library reads, declared in this one place and listed by `ringattn
// info`.
#pragma once
#include <span>
#include <string>

namespace ringattn {

struct EnvVariable {
  const char* name;
  const char* meaning;
};

inline constexpr const char* kEnvLog = "RINGATTN_LOG";
inline constexpr const char* kEnvForceKernel = "RINGATTN_FORCE_KERNEL";
inline constexpr const char* kEnvTransport = "RINGATTN_TRANSPORT";

std::span<const EnvVariable> env_variables();

// Its value, or "" where it is not set.
std::string env_value(const char* name);

}  // namespace ringattn
