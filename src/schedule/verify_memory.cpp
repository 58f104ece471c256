// Blocks of K/V are held while they are used, and nothing is overwritten or given back while it may still be read.
// "Before" means: on every possible timing, because a chain of waits leads from one operation to the other.
#include <algorithm>

#include "schedule/verify_parts.h"

namespace ringattn::schedule {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

class MemoryProof {
 public:
  MemoryProof(const Schedule& schedule, const Ancestors& ancestors)
      : schedule_(schedule),
        ancestors_(ancestors),
        received_(static_cast<std::size_t>(schedule.world), kNone),
        released_(received_) {}

  Status prove() {
    RINGATTN_TRY(find_single_operations());
    RINGATTN_TRY(prove_blocks());
    RINGATTN_TRY(prove_releases());
    RINGATTN_TRY(prove_buffers());
    return prove_end();
  }

 private:
  const Operation& at(std::size_t i) const { return schedule_.operations[i]; }
  std::size_t count() const { return schedule_.operations.size(); }
  std::size_t received(std::int32_t block) const { return received_[static_cast<std::size_t>(block)]; }
  std::size_t released(std::int32_t block) const { return released_[static_cast<std::size_t>(block)]; }
  Status wrong(std::size_t i, const std::string& what) const { return violation(schedule_, i, what); }

  // There may be one pack, one finalize, and per block one receive and one release.
  Status find_single_operations() {
    for (std::size_t i = 0; i < count(); ++i) {
      if (at(i).gradient) continue;
      std::size_t* place = nullptr;
      const auto block = static_cast<std::size_t>(at(i).block);
      if (at(i).kind == Kind::pack) place = &packed_;
      if (at(i).kind == Kind::finalize) place = &finalized_;
      if (at(i).kind == Kind::receive) place = &received_[block];
      if (at(i).kind == Kind::release) place = &released_[block];
      if (place == nullptr) continue;
      if (*place != kNone) return wrong(i, "is there twice");
      *place = i;
    }
    if (received(schedule_.rank) != kNone) return wrong(received(schedule_.rank), "receives its own block");
    return {};
  }

  Status prove_own(std::size_t i) const {
    if (at(i).buffer != -1) return wrong(i, "the own block is in no receive buffer");
    if (at(i).kind == Kind::send && !schedule_.lends &&
        (packed_ == kNone || !ancestors_.before(packed_, i))) {
      return wrong(i, "may start before the block is packed");
    }
    return {};
  }

  // Every use comes after the block's arrival, and looks where it arrived.
  Status prove_blocks() const {
    for (std::size_t i = 0; i < count(); ++i) {
      const Operation& op = at(i);
      if (op.gradient) continue;
      if (op.kind == Kind::pack) {
        if (schedule_.lends || op.block != schedule_.rank)
          return wrong(i, "only copying ranks pack, their own block");
      } else if (op.kind == Kind::send || op.kind == Kind::attend || op.kind == Kind::release) {
        if (op.block == schedule_.rank && op.kind != Kind::release) {
          RINGATTN_TRY(prove_own(i));
          continue;
        }
        const std::size_t receive = received(op.block);
        if (receive == kNone || !ancestors_.before(receive, i))
          return wrong(i, "may start before the block is here");
        if (at(receive).buffer != op.buffer) return wrong(i, "looks for the block in another buffer");
      }
    }
    return {};
  }

  // A block is released once, to where it came from, after its last use.
  Status prove_releases() const {
    for (std::size_t i = 0; i < count(); ++i) {
      const Operation& op = at(i);
      if (op.gradient || op.block < 0 || op.block == schedule_.rank) continue;
      const std::size_t release = released(op.block);
      if (release == kNone) return wrong(i, "the block is never released");
      if (release != i && !ancestors_.before(i, release))
        return wrong(i, "may still run when the block is released");
      if (op.kind == Kind::receive && schedule_.lends && at(release).peer != op.peer) {
        return wrong(release, "the block came from rank " + std::to_string(op.peer));
      }
    }
    return {};
  }

  // As many buffers as promised; each is written again only after its occupant has been released.
  Status prove_buffers() const {
    std::vector<std::size_t> occupant(static_cast<std::size_t>(std::max(schedule_.receive_buffers, 0)),
                                      kNone);
    for (std::size_t i = 0; i < count(); ++i) {
      const Operation& op = at(i);
      if (op.kind != Kind::receive || op.gradient) continue;
      if (schedule_.lends) {
        if (op.buffer != -1) return wrong(i, "a lent block needs no buffer");
        continue;
      }
      if (op.buffer < 0 || op.buffer >= schedule_.receive_buffers) return wrong(i, "no such buffer");
      std::size_t& before = occupant[static_cast<std::size_t>(op.buffer)];
      if (before != kNone && !ancestors_.before(released(at(before).block), i)) {
        return wrong(i,
                     "may overwrite block " + std::to_string(at(before).block) + ", which may still be read");
      }
      before = i;
    }
    if (std::find(occupant.begin(), occupant.end(), kNone) != occupant.end()) {
      return violation(schedule_.rank, "a receive buffer is never used");
    }
    if (schedule_.lends && schedule_.receive_buffers != 0)
      return violation(schedule_.rank, "lending needs no buffer");
    return {};
  }

  // The result is written once, after all blocks have been folded, in a written order.
  Status prove_end() const {
    if (finalized_ == kNone) return violation(schedule_.rank, "no operation finalizes");
    std::int32_t step = -1;
    for (std::size_t i = 0; i < count(); ++i) {
      if (at(i).kind != Kind::attend) continue;
      if (!ancestors_.before(i, finalized_)) return wrong(i, "the result may be written before it ends");
      if (at(i).step <= step) return wrong(i, "steps do not grow");
      step = at(i).step;
    }
    return {};
  }

  const Schedule& schedule_;
  const Ancestors& ancestors_;
  std::vector<std::size_t> received_, released_;  // [block]
  std::size_t packed_ = kNone, finalized_ = kNone;
};

}  // namespace

Status verify_memory(const Schedule& schedule, const Ancestors& ancestors) {
  return MemoryProof(schedule, ancestors).prove();
}

}  // namespace ringattn::schedule
