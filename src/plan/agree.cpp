#include "plan/agree.h"

#include <memory>

#include "base/digest.h"
#include "comm/exchange.h"

namespace ringattn::plan {
namespace {

constexpr std::uint64_t kRestNs = 1'000'000;

// One rank's exchange: a digest that says only which call this is, then the records.
class Exchange {
 public:
  Exchange(Agreement& agreement, bool first)
      : agreement_(agreement),
        comm_(*agreement.comm),
        sequence_(comm_.enter("plan_create")),
        digests_(comm_),
        digests_open_(first) {
    if (first) {
      digests_.start(sequence_, Digest().add(2 /* plan_create */).value());
    } else {
      start_records();
    }
  }

  bool step() {
    comm_.poll();
    if (leaving_ || comm_.dead()) return leave();
    std::int32_t rank = 0;
    if (comm_.newly_canceled(sequence_, &rank)) {
      why_ = {RINGATTN_ERR_RANK_MISMATCH,
              "collective call: rank " + std::to_string(rank) +
                  " canceled its forward, this rank makes plan_create; expected the same call"};
      comm_.withdraw(sequence_);
      return leave();
    }
    if (digests_open_) {
      if (!digests_.step()) return false;
      if (comm_.dead()) return leave();
      digests_open_ = false;
      start_records();
    }
    if (!records_->step()) return false;
    if (comm_.dead()) return leave();
    if (comm_.pending() != 0) return false;
    decode_all();
    return true;
  }

  void idle() {
    if (leaving_) return;
    const std::int32_t peer = digests_open_ ? digests_.waits_for() : records_->waits_for();
    comm_.tell(peer, true);
    if (peer >= 0) comm_.watch(peer);
  }

  comm::Comm& comm() { return comm_; }

 private:
  void start_records() {
    records_ = std::make_unique<comm::RecordExchange>(comm_, sequence_, encode(agreement_.own));
  }

  // Ends early. Posted transfers point into this object: it stays until they have ended, which they soon do.
  bool leave() {
    if (!leaving_ && why_.ok()) why_ = comm_.end_dead();
    leaving_ = true;
    digests_.release_loans();
    if (records_ != nullptr) records_->release_loans();
    if (comm_.pending() != 0) return false;
    agreement_.status =
        agreement_.own.verdict != RINGATTN_OK ? Status(agreement_.own.verdict, agreement_.own.reason) : why_;
    return true;
  }

  void decode_all() {
    agreement_.records.resize(static_cast<std::size_t>(comm_.world()));
    for (std::size_t rank = 0; rank < agreement_.records.size(); ++rank) {
      if (decode(records_->records()[rank], agreement_.records[rank])) continue;
      comm_.abort(RINGATTN_ERR_TRANSPORT,
                  "rank " + std::to_string(rank) + " sent a record that cannot be read");
      agreement_.status = comm_.state();
      return;
    }
    agreement_.status = judge(agreement_.records, comm_.rank());
  }

  Agreement& agreement_;
  comm::Comm& comm_;
  std::uint64_t sequence_;
  comm::DigestExchange digests_;
  bool digests_open_;
  std::unique_ptr<comm::RecordExchange> records_;
  bool leaving_ = false;
  Status why_;  // it leaves
};

void agree_in_memory(std::span<Agreement> agreements) {
  std::vector<Record> records(agreements.size());
  for (const Agreement& agreement : agreements) {
    records[static_cast<std::size_t>(agreement.comm->rank())] = agreement.own;
  }
  for (Agreement& agreement : agreements) {
    agreement.comm->enter("plan_create");
    agreement.records = records;
    agreement.status = judge(records, agreement.comm->rank());
    agreement.comm->leave_call();
  }
}

}  // namespace

bool RingSet::add(const comm::Comm& comm) {
  const std::size_t rank = static_cast<std::size_t>(comm.rank());
  if (count_ == 0) first_ = &comm;
  ++count_;
  fits_ = fits_ && comm.ring_id() == first_->ring_id() && !seen_[rank];
  seen_[rank] = true;
  return fits_;
}

bool RingSet::whole() const { return fits_ && count_ > 0 && count_ == first_->world(); }

void agree(std::span<Agreement> agreements, bool first) {
  RingSet ring;
  for (const Agreement& agreement : agreements) ring.add(*agreement.comm);
  if (ring.whole()) {
    agree_in_memory(agreements);
    return;
  }
  std::vector<std::unique_ptr<Exchange>> open;
  for (Agreement& agreement : agreements) open.push_back(std::make_unique<Exchange>(agreement, first));
  while (!open.empty()) {
    std::erase_if(open, [](const std::unique_ptr<Exchange>& exchange) {
      if (!exchange->step()) return false;
      exchange->comm().leave_call();
      return true;
    });
    if (open.empty()) return;
    for (const auto& exchange : open) exchange->idle();
    open.front()->comm().wait(kRestNs);
  }
}

}  // namespace ringattn::plan
