#include "comm/transports.h"

#include <algorithm>
#include <mutex>

#include "base/env.h"
#include "comm/plugins.h"

extern "C" const ringattn_transport_v1* ringattn_transport_local_v1(void);
extern "C" const ringattn_transport_v1* ringattn_transport_tcp_v1(void);

namespace ringattn::comm {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<const ringattn_transport_v1*> tables{ringattn_transport_local_v1(),
                                                   ringattn_transport_tcp_v1()};
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

// The rule for every struct (ringattn.h section 3).
Status check_size(const ringattn_transport_v1& table) {
  constexpr std::uint32_t own = sizeof(ringattn_transport_v1), most = 4096;
  if (table.struct_size < own || table.struct_size > most) {
    return {RINGATTN_ERR_STRUCT_SIZE, "transport.struct_size: " + std::to_string(table.struct_size) +
                                          ", expected sizeof = " + std::to_string(own) + " (at most " +
                                          std::to_string(most) + ")"};
  }
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&table);
  if (std::any_of(bytes + own, bytes + table.struct_size, [](unsigned char byte) { return byte != 0; })) {
    return {RINGATTN_ERR_STRUCT_SIZE,
            "transport: a byte of a newer header is not zero, expected only what this version knows"};
  }
  return {};
}

Status check_name(const std::string& name) {
  const bool legal = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
  if (!legal) {
    std::string shown = name.substr(0, 64);
    for (char& c : shown) c = c < ' ' || c > '~' ? '?' : c;
    return invalid("transport.name: \"" + shown + "\", expected one or more of a-z, 0-9 and _");
  }
  // Whether its plugin is there or not: a program must mean the same by it on every machine.
  if (name != kUcxName) return {};
  return invalid("transport.name: \"" + name +
                 "\" is reserved for the transport of this library, expected a new name");
}

}  // namespace

std::vector<TransportState> transports(Plugins plugins) {
  std::vector<const ringattn_transport_v1*> tables;
  {
    const std::lock_guard lock(registry().mutex);
    tables = registry().tables;
  }
  if (plugins == Plugins::load) tables.push_back(ucx_table());
  std::vector<TransportState> states;
  for (const ringattn_transport_v1* table : tables) {
    const char* why = nullptr;
    const std::int32_t score = table->score(&why);
    states.push_back({table, score, score > 0 || why == nullptr ? std::string() : std::string(why)});
  }
  return states;
}

Status choose_transport(const std::string& wished, const ringattn_transport_v1** out) {
  const std::string forced = env_value(kEnvTransport);
  const bool from_environment = wished.empty() && !forced.empty();
  const std::string& name = wished.empty() ? forced : wished;
  // Any that is built in serves ranks of one process at least as well.
  std::vector<TransportState> states = transports(Plugins::leave);
  const bool known =
      name.empty() || std::any_of(states.begin(), states.end(),
                                  [&](const TransportState& state) { return name == state.table->name; });
  if (!known) states = transports(Plugins::load);
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
  RINGATTN_TRY(check_size(*table));
  if (table->abi != RINGATTN_TRANSPORT_ABI) {
    return invalid("transport.abi: " + std::to_string(table->abi) + ", expected " +
                   std::to_string(RINGATTN_TRANSPORT_ABI));
  }
  if (!complete(*table))
    return invalid("transport: a function or the name is NULL, expected all of the table to be set");
  RINGATTN_TRY(check_name(table->name));
  constexpr std::uint64_t kBoth = RINGATTN_TRANSPORT_LENDS | RINGATTN_TRANSPORT_PROCESSES;
  if ((table->caps & ~kBoth) != 0 || table->caps == kBoth) {
    return invalid("transport.caps: " + std::to_string(table->caps) +
                   ", expected 0, TRANSPORT_LENDS (1) or TRANSPORT_PROCESSES (2)");
  }
  const bool connects = (table->caps & RINGATTN_TRANSPORT_PROCESSES) != 0;
  if (connects != (table->address != nullptr) || connects != (table->connect != nullptr))
    return invalid("transport: address and connect, expected both with TRANSPORT_PROCESSES, else NULL");
  const std::lock_guard lock(registry().mutex);
  for (const ringattn_transport_v1* other : registry().tables) {
    if (std::string(other->name) == table->name)
      return invalid("transport.name: \"" + std::string(table->name) +
                     "\" exists already, expected a new name");
  }
  registry().tables.push_back(table);
  return {};
}

}  // namespace ringattn::comm
