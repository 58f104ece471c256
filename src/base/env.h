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
inline constexpr const char* kEnvPluginPath = "RINGATTN_PLUGIN_PATH";
// Where a rank finds its ring (comm/launcher.h, which also reads launchers' own variables).
inline constexpr const char* kEnvRank = "RINGATTN_RANK";
inline constexpr const char* kEnvWorldSize = "RINGATTN_WORLD_SIZE";
inline constexpr const char* kEnvLocalRank = "RINGATTN_LOCAL_RANK";
inline constexpr const char* kEnvRendezvous = "RINGATTN_RENDEZVOUS";
inline constexpr const char* kEnvSecret = "RINGATTN_SECRET";
inline constexpr const char* kEnvInsecure = "RINGATTN_INSECURE";
inline constexpr const char* kEnvInterface = "RINGATTN_INTERFACE";

std::span<const EnvVariable> env_variables();

// Its value, or "" where it is not set.
std::string env_value(const char* name);

}  // namespace ringattn
