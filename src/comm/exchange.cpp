#include "comm/exchange.h"

#include <algorithm>
#include <cstring>

namespace ringattn::comm {
namespace {

// What arrived, wherever it lies, goes to `out`; a loan is given back at once.
void take(Comm& comm, Transfer& transfer, void* out) {
  if (transfer.status != RINGATTN_OK) return;
  if (transfer.loan != 0 && transfer.bytes != 0) std::memcpy(out, transfer.data, transfer.bytes);
  comm.give_back(transfer);
}

void release(Comm& comm, std::vector<Transfer>& transfers) {
  for (Transfer& transfer : transfers) comm.give_back(transfer);
}

std::int32_t first_missing(const Comm& comm, const std::vector<Transfer>& transfers, std::size_t count) {
  std::int32_t first = -1;
  for (std::size_t i = 0; i < count; ++i) {
    if (!transfers[i].pending) continue;
    if (!comm.entered(transfers[i].peer, comm.sequence())) return transfers[i].peer;
    if (first < 0) first = transfers[i].peer;
  }
  return first;
}

}  // namespace

DigestExchange::DigestExchange(Comm& comm) : comm_(comm) {
  std::int32_t rounds = 0;
  for (std::int64_t reach = 1; reach < comm.world(); reach *= kRadix) ++rounds;
  const std::size_t partners = static_cast<std::size_t>(std::min(kRadix - 1, comm.world() - 1));
  sent_.resize(static_cast<std::size_t>(rounds));
  sends_.resize(static_cast<std::size_t>(rounds) * partners);
  received_.resize(partners);
  receives_.resize(partners);
}

void DigestExchange::start(std::uint64_t sequence, std::uint64_t digest) {
  sequence_ = sequence;
  known_ = {digest, digest};
  distance_ = 1;
  round_ = 0;
  sends_used_ = 0;
  partners_ = 0;
  if (comm_.world() > 1) post_round();
}

void DigestExchange::post_round() {
  const std::int64_t world = comm_.world();
  sent_[static_cast<std::size_t>(round_)] = known_;
  // Beyond (world - 1) / distance partners the distances would come round to ranks heard already.
  partners_ = static_cast<std::int32_t>(std::min<std::int64_t>(kRadix - 1, (world - 1) / distance_));
  for (std::int32_t i = 1; i <= partners_; ++i) {
    const std::int64_t step = distance_ * i;
    const std::int32_t ahead = static_cast<std::int32_t>((comm_.rank() + step) % world);
    const std::int32_t behind = static_cast<std::int32_t>((comm_.rank() - step % world + world) % world);
    const std::uint64_t tag =
        tag_of(sequence_, TagKind::digest, static_cast<std::uint64_t>(round_ * kRadix + i));
    comm_.post(RINGATTN_TRANSFER_RECEIVE, behind, tag, &received_[static_cast<std::size_t>(i - 1)],
               sizeof(Range), receives_[static_cast<std::size_t>(i - 1)]);
    comm_.post(RINGATTN_TRANSFER_SEND, ahead, tag, &sent_[static_cast<std::size_t>(round_)], sizeof(Range),
               sends_[static_cast<std::size_t>(sends_used_++)]);
  }
}

bool DigestExchange::step() {
  while (partners_ > 0) {
    for (std::int32_t i = 0; i < partners_; ++i) {
      if (receives_[static_cast<std::size_t>(i)].pending) return false;
    }
    for (std::int32_t i = 0; i < partners_; ++i) {
      Transfer& receive = receives_[static_cast<std::size_t>(i)];
      if (receive.status != RINGATTN_OK)
        continue;  // the comm is dead or the call canceled: its owner sees to that
      Range range = received_[static_cast<std::size_t>(i)];
      take(comm_, receive, &range);
      known_.least = std::min(known_.least, range.least);
      known_.greatest = std::max(known_.greatest, range.greatest);
    }
    distance_ *= kRadix;
    ++round_;
    partners_ = 0;
    if (distance_ < comm_.world()) post_round();
  }
  return true;
}

std::int32_t DigestExchange::waits_for() const {
  return first_missing(comm_, receives_, static_cast<std::size_t>(partners_));
}

std::int32_t DigestExchange::not_taken_by() const {
  return first_missing(comm_, sends_, static_cast<std::size_t>(sends_used_));
}

void DigestExchange::release_loans() { release(comm_, receives_); }

RecordExchange::RecordExchange(Comm& comm, std::uint64_t sequence, std::string own)
    : comm_(comm), sequence_(sequence), own_size_(own.size()), own_(std::move(own)) {
  const std::size_t world = static_cast<std::size_t>(comm.world());
  sizes_.resize(world);
  records_.resize(world);
  size_sends_.resize(world);
  size_receives_.resize(world);
  sends_.resize(world);
  receives_.resize(world);
  records_[static_cast<std::size_t>(comm.rank())] = own_;
  const std::uint64_t tag = tag_of(sequence, TagKind::record_size, 0);
  for (std::int32_t peer = 0; peer < comm.world(); ++peer) {
    if (peer == comm.rank()) continue;
    const std::size_t p = static_cast<std::size_t>(peer);
    comm.post(RINGATTN_TRANSFER_RECEIVE, peer, tag, &sizes_[p], sizeof(std::uint64_t), size_receives_[p]);
    comm.post(RINGATTN_TRANSFER_SEND, peer, tag, &own_size_, sizeof(std::uint64_t), size_sends_[p]);
  }
}

bool RecordExchange::all_done(const std::vector<Transfer>& transfers) const {
  return std::none_of(transfers.begin(), transfers.end(), [](const Transfer& t) { return t.pending; });
}

void RecordExchange::post_records() {
  const std::uint64_t tag = tag_of(sequence_, TagKind::record, 0);
  for (std::int32_t peer = 0; peer < comm_.world(); ++peer) {
    if (peer == comm_.rank()) continue;
    const std::size_t p = static_cast<std::size_t>(peer);
    if (size_receives_[p].status != RINGATTN_OK) continue;
    take(comm_, size_receives_[p], &sizes_[p]);
    records_[p].resize(sizes_[p]);
    comm_.post(RINGATTN_TRANSFER_RECEIVE, peer, tag, records_[p].data(), sizes_[p], receives_[p]);
    comm_.post(RINGATTN_TRANSFER_SEND, peer, tag, own_.data(), own_.size(), sends_[p]);
  }
}

bool RecordExchange::step() {
  if (!sizes_known_) {
    if (!all_done(size_receives_)) return false;
    sizes_known_ = true;
    post_records();
  }
  if (!all_done(receives_)) return false;
  for (std::size_t p = 0; p < receives_.size(); ++p) take(comm_, receives_[p], records_[p].data());
  // Own memory was lent: it must not go before everybody has read it.
  return all_done(size_sends_) && all_done(sends_);
}

void RecordExchange::release_loans() {
  release(comm_, size_receives_);
  release(comm_, receives_);
}

std::int32_t RecordExchange::waits_for() const {
  const std::int32_t size = first_missing(comm_, size_receives_, size_receives_.size());
  if (size >= 0) return size;
  const std::int32_t record = first_missing(comm_, receives_, receives_.size());
  if (record >= 0) return record;
  const std::int32_t send = first_missing(comm_, size_sends_, size_sends_.size());
  return send >= 0 ? send : first_missing(comm_, sends_, sends_.size());
}

}  // namespace ringattn::comm
