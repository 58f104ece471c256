// Sends match receives: for each transfer there is one of both, with the same block. Their bytes are the
// block's (verify_form).
#include <algorithm>
#include <tuple>

#include "schedule/verify_parts.h"

namespace ringattn::schedule {
namespace {

struct Transfer {
  std::int32_t from, to, block;
  bool gradient;
  std::size_t operation;

  auto key() const { return std::tuple(from, to, block, gradient); }
};

std::vector<Transfer> transfers_of(const Subject& subject, Kind kind) {
  std::vector<Transfer> transfers;
  for (const Schedule& schedule : subject.schedules) {
    for (std::size_t i = 0; i < schedule.operations.size(); ++i) {
      const Operation& op = schedule.operations[i];
      if (op.kind != kind) continue;
      const bool sends = kind == Kind::send;
      transfers.push_back(
          {sends ? schedule.rank : op.peer, sends ? op.peer : schedule.rank, op.block, op.gradient, i});
    }
  }
  std::sort(transfers.begin(), transfers.end(),
            [](const Transfer& a, const Transfer& b) { return a.key() < b.key(); });
  return transfers;
}

}  // namespace

Status verify_transfers(const Subject& subject) {
  const std::vector<Transfer> sends = transfers_of(subject, Kind::send);
  const std::vector<Transfer> receives = transfers_of(subject, Kind::receive);
  for (std::size_t i = 0; i < std::max(sends.size(), receives.size()); ++i) {
    const bool only_send = i >= receives.size() || (i < sends.size() && sends[i].key() < receives[i].key());
    const bool only_receive = !only_send && (i >= sends.size() || receives[i].key() < sends[i].key());
    if (only_send) {
      const Transfer& send = sends[i];
      return violation(subject.schedules[static_cast<std::size_t>(send.from)], send.operation,
                       "nobody receives it, or it is sent twice");
    }
    if (only_receive) {
      const Transfer& receive = receives[i];
      return violation(subject.schedules[static_cast<std::size_t>(receive.to)], receive.operation,
                       "nobody sends it, or it is received twice");
    }
    if (i > 0 && sends[i].key() == sends[i - 1].key()) {
      return violation(subject.schedules[static_cast<std::size_t>(sends[i].from)], sends[i].operation,
                       "the same transfer is there twice");
    }
  }
  return {};
}

}  // namespace ringattn::schedule
