#include "base/env.h"

#include <cstdlib>

namespace ringattn {
namespace {
constexpr EnvVariable kVariables[] = {
    {kEnvLog, "log to standard error: error, warn, info or debug (only for contexts without a log function)"},
    {kEnvForceKernel, "the one kernel that plans may use, by name; a plan that it refuses fails"},
    {kEnvTransport, "the one transport that comms may use where the description names none"},
    {kEnvPluginPath, "the folder of libringattn_ucx.so, where it is not beside the library"},
    {kEnvRank, "this process's rank, for ringattn_comm_create_from_environment"},
    {kEnvWorldSize, "how many ranks there are"},
    {kEnvLocalRank, "this process's number among the ranks of its host"},
    {kEnvRendezvous, "host:port or [v6]:port where the ranks meet; rank 0 listens there"},
    {kEnvSecret, "what only the ranks of a ring know; needed to meet beyond one machine. Never shown"},
    {kEnvInsecure, "1 = ranks may meet beyond one machine without a secret"},
    {kEnvInterface, "the interface or address that ranks listen on and connect from"},
    // Read by transports/tcp, which sees nothing of src/.
    {"RINGATTN_TCP_INTERFACE", "the interface whose first address the transport tcp listens on"},
    {"RINGATTN_TCP_ADDRESS", "the numeric address that the transport tcp listens on"},
};
}  // namespace

std::span<const EnvVariable> env_variables() { return kVariables; }

std::string env_value(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace ringattn
