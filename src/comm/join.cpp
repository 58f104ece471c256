// 1. Who is there, and which transports do all have.  2. Each opens its link and tells its address.  3. Each
// connects, and hears that all others have. A rank that fails in a round takes part in it all the same: so everybody
// ends in the same round, with its reason.
#include "comm/join.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/env.h"
#include "comm/join_words.h"
#include "comm/rendezvous_crypto.h"
#include "comm/transports.h"

namespace ringattn::comm {
namespace {

template <typename Word>
Status gather_words(const Gather& gather, const Word& own, std::int32_t world, std::vector<Word>& all) {
  std::vector<std::string> texts;
  RINGATTN_TRY(gather(encode(own), texts));
  if (texts.size() != static_cast<std::size_t>(world)) {
    return {RINGATTN_ERR_TRANSPORT, "all-gather: it gave " + std::to_string(texts.size()) +
                                        " entries, expected " + std::to_string(world)};
  }
  all.resize(texts.size());
  for (std::size_t r = 0; r < texts.size(); ++r) {
    if (decode(texts[r], all[r])) continue;
    return {RINGATTN_ERR_TRANSPORT, "all-gather: what came from rank " + std::to_string(r) +
                                        " is not of this library, expected the same version on every rank"};
  }
  return {};
}

std::string random_text(std::size_t bytes) {
  std::string text(bytes, '\0');
  fill_random({reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
  return text;
}

std::string this_process() {
  char host[65] = "?";
  if (::gethostname(host, sizeof host - 1) != 0) std::strcpy(host, "?");
  return std::string("host ").append(host).append(", pid ").append(std::to_string(::getpid()));
}

std::uint64_t word_of(const std::string& bytes, std::size_t first) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < 8 && first + i < bytes.size(); ++i) {
    word |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[first + i])) << (8 * i);
  }
  return word;
}

// Of one rank alone any transport will do; else those that connect processes.
Introduction introduce(const JoinRequest& request) {
  Introduction own;
  own.rank = request.rank;
  own.world = request.world;
  own.who = this_process();
  own.wish = request.transport.empty() ? env_value(kEnvTransport) : request.transport;
  own.group = random_text(16);
  own.secret = random_text(32);
  // A ring of one rank needs none that has to be loaded.
  const bool load = request.world > 1 || own.wish == "ucx";
  for (const TransportState& state : transports(load ? Plugins::load : Plugins::leave)) {
    const bool fits = request.world == 1 || (state.table->caps & RINGATTN_TRANSPORT_PROCESSES) != 0;
    own.offers.push_back({state.table->name, fits ? state.score : 0,
                          fits ? state.why_not : "it connects ranks of one process only"});
  }
  return own;
}

const ringattn_transport_v1* table_of(const std::string& name) {
  for (const TransportState& state : transports(Plugins::load)) {
    if (name == state.table->name) return state.table;
  }
  return nullptr;
}

}  // namespace

Status Comm::join(const Log& log, const JoinRequest& request, const Gather& gather,
                  std::unique_ptr<Comm>& out) {
  RINGATTN_TRY(start_crypto());
  std::vector<Introduction> ranks;
  RINGATTN_TRY(gather_words(gather, introduce(request), request.world, ranks));
  std::string name;
  RINGATTN_TRY(agree_on_transport(ranks, name));

  std::unique_ptr<Comm> comm(new Comm());
  for (const Introduction& rank : ranks) comm->who_.push_back(rank.who);
  Outcome opened;
  const LinkGroup group{{word_of(ranks[0].group, 0), word_of(ranks[0].group, 8)}, ranks[0].secret};
  opened.status = comm->open_link(log, table_of(name), request.rank, request.world, request.options, group);
  if (opened.status.ok()) opened.status = comm->tell_address(opened.data);
  std::vector<Outcome> outcomes;
  RINGATTN_TRY(gather_words(gather, opened, request.world, outcomes));
  RINGATTN_TRY(judge(outcomes, request.rank, "open its link"));

  std::vector<std::string> addresses;
  for (const Outcome& outcome : outcomes) addresses.push_back(outcome.data);
  Outcome connected;
  connected.status = comm->connect_link(addresses);
  RINGATTN_TRY(gather_words(gather, connected, request.world, outcomes));
  RINGATTN_TRY(judge(outcomes, request.rank, "reach its peers"));
  out = std::move(comm);
  return {};
}

Status Comm::tell_address(std::string& out) {
  out.clear();
  if (table_->address == nullptr) return {};
  out.resize(kMostAddressBytes);
  std::uint64_t bytes = 0;
  const ringattn_status status = table_->address(link_, out.data(), out.size(), &bytes);
  if (status != RINGATTN_OK || bytes > out.size())
    return {status == RINGATTN_OK ? RINGATTN_ERR_TRANSPORT : status,
            std::string("transport ") + table_->name + ": cannot tell its address"};
  out.resize(bytes);
  return {};
}

Status Comm::connect_link(const std::vector<std::string>& addresses) {
  if (table_->connect == nullptr) return {};
  std::vector<ringattn_address_v1> list;
  for (std::size_t r = 0; r < addresses.size(); ++r) {
    list.push_back({sizeof(ringattn_address_v1), static_cast<std::int32_t>(r), addresses[r].data(),
                    addresses[r].size()});
  }
  const char* error = nullptr;
  const ringattn_status status =
      table_->connect(link_, list.data(), static_cast<std::int32_t>(list.size()), &error);
  if (status == RINGATTN_OK) return {};
  return {status, std::string("transport ") + table_->name + ": " +
                      (error == nullptr ? "cannot reach its peers" : error)};
}

}  // namespace ringattn::comm
