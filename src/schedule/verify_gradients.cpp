// Backward: every rank's part of a block's dK, dV comes home to the owner exactly once, whole, and no sum is
// overwritten, added to or given back while it may still be read or written.
#include <algorithm>

#include "schedule/verify_parts.h"

namespace ringattn::schedule {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

class SumProof {
 public:
  SumProof(const Schedule& schedule, const Ancestors& ancestors)
      : schedule_(schedule),
        ancestors_(ancestors),
        written_(static_cast<std::size_t>(schedule.world), kNone),
        sent_(written_) {}

  Status prove() {
    for (std::size_t i = 0; i < schedule_.operations.size(); ++i) RINGATTN_TRY(prove_operation(i));
    for (std::size_t block = 0; block < written_.size(); ++block) {
      const bool own = static_cast<std::int32_t>(block) == schedule_.rank;
      if (!own && written_[block] != kNone && sent_[block] == kNone)
        return wrong(written_[block], "the sum is never handed on");
    }
    if (finalized_ == kNone) return violation(schedule_.rank, "no operation finalizes dK and dV");
    for (const std::size_t receive : open_receives_) {
      if (receive != kNone) return wrong(receive, "what it receives is never added and released");
    }
    return {};
  }

 private:
  const Operation& at(std::size_t i) const { return schedule_.operations[i]; }
  Status wrong(std::size_t i, const std::string& what) const { return violation(schedule_, i, what); }
  std::int32_t target_of(std::int32_t block, std::size_t i) const {
    return block == schedule_.rank ? kHomeGradient : at(i).target;
  }

  Status prove_operation(std::size_t i) {
    const Operation& op = at(i);
    if (op.kind == Kind::attend) return prove_attend(i);
    if (!op.gradient) return {};
    if (op.kind == Kind::receive) return prove_receive(i);
    if (op.kind == Kind::accumulate || op.kind == Kind::copy) return prove_addition(i);
    if (op.kind == Kind::release) return prove_release(i);
    if (op.kind == Kind::send) return prove_send(i);
    if (op.kind == Kind::finalize) return prove_finalize(i);
    return wrong(i, "gradients are not packed");
  }

  // The first part of a sum. Its buffer's occupant has been handed on before.
  Status prove_attend(std::size_t i) {
    const Operation& op = at(i);
    const bool own = op.block == schedule_.rank;
    if (own != (op.target == kHomeGradient) || op.target < 0 || op.target >= kFirstSum + kSums)
      return wrong(i, "no such gradient buffer");
    if (written_[static_cast<std::size_t>(op.block)] != kNone) return wrong(i, "the sum exists already");
    if (!own) {
      std::size_t& occupant = occupants_[static_cast<std::size_t>(op.target - kFirstSum)];
      if (occupant != kNone && !ancestors_.before(occupant, i))
        return wrong(i, "may overwrite a sum that is still being handed on");
      occupant = kNone;
    }
    written_[static_cast<std::size_t>(op.block)] = i;
    return {};
  }

  Status prove_receive(std::size_t i) {
    const Operation& op = at(i);
    if (op.buffer != (schedule_.lends ? -1 : kArrival)) return wrong(i, "no such arrival buffer");
    if (!schedule_.lends) {
      if (arrival_release_ == kNone ? arrived_ : !ancestors_.before(arrival_release_, i))
        return wrong(i, "may overwrite an arrived sum that has not been added");
      arrived_ = true;
      arrival_release_ = kNone;
    }
    open_receives_.push_back(i);
    return {};
  }

  // What arrived is added once, to the sum of its own block, after all that was added before.
  Status prove_addition(std::size_t i) {
    const Operation& op = at(i);
    const std::size_t source = static_cast<std::size_t>(op.source);
    if (op.source < 0 || source >= i || at(source).kind != Kind::receive || !at(source).gradient ||
        at(source).block != op.block || at(source).buffer != op.buffer) {
      return wrong(i, "adds something that did not arrive for it");
    }
    if (!ancestors_.before(source, i)) return wrong(i, "may start before the sum is here");
    if (std::find(added_.begin(), added_.end(), source) != added_.end()) return wrong(i, "is added twice");
    added_.push_back(source);
    std::size_t& before = written_[static_cast<std::size_t>(op.block)];
    if ((before == kNone) != (op.kind == Kind::copy)) return wrong(i, "adds to nothing, or forgets a part");
    if (before == kNone && op.block != schedule_.rank) return wrong(i, "adds to nothing");
    if (before != kNone && !ancestors_.before(before, i)) return wrong(i, "the order of the sum is open");
    if (op.target != (before == kNone ? kHomeGradient : target_of(op.block, before)))
      return wrong(i, "the sum is in another buffer");
    if (sent_[static_cast<std::size_t>(op.block)] != kNone) return wrong(i, "the sum has been handed on");
    before = i;
    return {};
  }

  Status prove_release(std::size_t i) {
    const Operation& op = at(i);
    const auto open =
        std::find(open_receives_.begin(), open_receives_.end(), static_cast<std::size_t>(op.source));
    if (op.source < 0 || open == open_receives_.end()) return wrong(i, "gives back what did not arrive");
    const Operation& receive = at(static_cast<std::size_t>(op.source));
    if (receive.block != op.block || receive.buffer != op.buffer)
      return wrong(i, "gives back another block than it received");
    if (schedule_.lends && receive.peer != op.peer)
      return wrong(i, "the sum came from rank " + std::to_string(receive.peer));
    std::size_t addition = kNone;
    for (std::size_t j = 0; j < i; ++j) {
      const bool adds = at(j).kind == Kind::accumulate || at(j).kind == Kind::copy;
      if (adds && at(j).source == op.source) addition = j;
    }
    if (addition == kNone || !ancestors_.before(addition, i)) return wrong(i, "may still be read");
    open_receives_.erase(open);
    arrival_release_ = i;
    return {};
  }

  Status prove_send(std::size_t i) {
    const Operation& op = at(i);
    const auto block = static_cast<std::size_t>(op.block);
    if (op.block == schedule_.rank || written_[block] == kNone) return wrong(i, "there is no such sum");
    if (sent_[block] != kNone) return wrong(i, "the sum has been handed on already");
    if (op.target != at(written_[block]).target || op.buffer != op.target)
      return wrong(i, "the sum is in another buffer");
    if (!ancestors_.before(written_[block], i)) return wrong(i, "the sum may not be whole");
    sent_[block] = i;
    occupants_[static_cast<std::size_t>(op.target - kFirstSum)] = i;
    return {};
  }

  Status prove_finalize(std::size_t i) {
    const std::size_t last = written_[static_cast<std::size_t>(schedule_.rank)];
    if (finalized_ != kNone) return wrong(i, "is there twice");
    if (at(i).block != schedule_.rank || at(i).target != (last == kNone ? -1 : kHomeGradient))
      return wrong(i, "looks for the gradients in another buffer");
    if (last != kNone && !ancestors_.before(last, i)) return wrong(i, "the sum may not be whole");
    finalized_ = i;
    return {};
  }

  const Schedule& schedule_;
  const Ancestors& ancestors_;
  std::vector<std::size_t> written_, sent_;        // [block]: the last that added to its sum; its send
  std::size_t occupants_[kSums] = {kNone, kNone};  // send of each buffer's occupant
  std::vector<std::size_t> open_receives_, added_;
  std::size_t arrival_release_ = kNone, finalized_ = kNone;
  bool arrived_ = false;
};

// To whom each rank hands the sum of each block.
class Ways {
 public:
  explicit Ways(const Subject& subject)
      : world_(static_cast<std::size_t>(subject.layout.world())), peer_(world_ * world_, -1) {
    for (const Schedule& schedule : subject.schedules) {
      for (const Operation& op : schedule.operations) {
        if (op.kind == Kind::send && op.gradient) peer_[place(schedule.rank, op.block)] = op.peer;
      }
    }
  }

  // Does a rank's part of a block end at the owner?
  bool comes_home(std::int32_t rank, std::int32_t block) const {
    for (std::size_t hop = 0; hop <= world_ && rank >= 0; ++hop) {
      if (rank == block) return true;
      rank = peer_[place(rank, block)];
    }
    return false;
  }

 private:
  std::size_t place(std::int32_t rank, std::int32_t block) const {
    return static_cast<std::size_t>(rank) * world_ + static_cast<std::size_t>(block);
  }
  std::size_t world_;
  std::vector<std::int32_t> peer_;
};

}  // namespace

Status verify_sums(const Schedule& schedule, const Ancestors& ancestors) {
  return SumProof(schedule, ancestors).prove();
}

// verify_sums has shown that a rank adds all that arrives for a block to its own part and hands that on once;
// verify_transfers that all that is sent arrives. So a part is counted once if its way ends at the owner.
Status verify_gradients(const Subject& subject) {
  const Ways ways(subject);
  for (const Schedule& schedule : subject.schedules) {
    for (std::size_t i = 0; i < schedule.operations.size(); ++i) {
      const Operation& op = schedule.operations[i];
      if (op.kind != Kind::attend || ways.comes_home(schedule.rank, op.block)) continue;
      return violation(schedule, i, "its part of the gradients never comes home");
    }
  }
  return {};
}

}  // namespace ringattn::schedule
