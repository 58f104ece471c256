#include "comm/transports.h"

#include <algorithm>
#include <mutex>

#include "base/env.h"

extern "C" const ringattn_transport_v1* ringattn_transport_local_v1(void);

namespace ringattn::comm {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<const ringattn_transport_v1*> tables{ringattn_transport_local_v1()};
};
Registry& registry() {
  static Registry* instance = new Registry();  // never destroyed: links may outlive static destructors
  return *instance;
}

std::string names_of(const std::vector<TransportState>& states) {
  std::string names;
  for (const TransportState& state : states)
    names += (names.empty() ? "" : ", ") + std::string(state.table->name);
  return names;
}

bool complete(const ringattn_transport_v1& t) {
  return t.name != nullptr && t.score != nullptr && t.open != nullptr && t.close != nullptr &&
         t.post != nullptr && t.test != nullptr && t.release != nullptr && t.withdraw != nullptr &&
         t.wait != nullptr && t.wake != nullptr && t.tell != nullptr && t.ask != nullptr &&
         t.abort != nullptr && t.state != nullptr;
}

}  // namespace

std::vector<TransportState> transports() {
  std::vector<const ringattn_transport_v1*> tables;
  {
    const std::lock_guard lock(registry().mutex);
    tables = registry().tables;
  }
  std::vector<TransportState> states;
  for (const ringattn_transport_v1* table : tables) {
    const char* why = nullptr;
    const std::int32_t score = table->score(&why);
    states.push_back({table, score, score > 0 || why == nullptr ? std::string() : std::string(why)});
  }
  return states;
}

Status choose_transport(const std::string& wished, const ringattn_transport_v1** out) {
  const std::vector<TransportState> states = transports();
  const std::string forced = env_value(kEnvTransport);
  const bool from_environment = wished.empty() && !forced.empty();
  const std::string& name = wished.empty() ? forced : wished;
  const std::string field = from_environment ? kEnvTransport : "transport";
  const TransportState* best = nullptr;
  for (const TransportState& state : states) {
    if (!name.empty() && name != state.table->name) continue;
    if (best == nullptr || state.score > best->score) best = &state;
  }
  if (best == nullptr) {
    return {RINGATTN_ERR_NOT_FOUND,
            field + ": \"" + name + "\" does not exist, expected one of " + names_of(states)};
  }
  if (best->score <= 0) {
    return unsupported(field + ": \"" + std::string(best->table->name) +
                       "\" cannot run here: " + best->why_not);
  }
  *out = best->table;
  return {};
}

Status register_transport(const ringattn_transport_v1* table) {
  if (table == nullptr) return invalid("transport: NULL, expected a table");
  if (table->struct_size < sizeof(ringattn_transport_v1)) {
    return {RINGATTN_ERR_STRUCT_SIZE, "transport.struct_size: " + std::to_string(table->struct_size) +
                                          ", expected at least " +
                                          std::to_string(sizeof(ringattn_transport_v1))};
  }
  if (table->abi != RINGATTN_TRANSPORT_ABI) {
    return invalid("transport.abi: " + std::to_string(table->abi) + ", expected " +
                   std::to_string(RINGATTN_TRANSPORT_ABI));
  }
  if (!complete(*table))
    return invalid("transport: a function or the name is NULL, expected all of the table to be set");
  const std::lock_guard lock(registry().mutex);
  for (const ringattn_transport_v1* known : registry().tables) {
    if (std::string(known->name) == table->name) {
      return invalid("transport.name: \"" + std::string(table->name) +
                     "\" exists already, expected a new name");
    }
  }
  registry().tables.push_back(table);
  return {};
}

}  // namespace ringattn::comm
