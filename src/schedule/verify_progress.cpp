// The set of schedules runs to its end, with transfers that need both sides at once (rendezvous). Whether an
// operation can end depends only on which others have ended, and nothing that has ended ever comes back: so
// one run to a standstill decides for every timing.
#include <utility>

#include "schedule/verify_parts.h"

namespace ringattn::schedule {
namespace {

// A graph with a node for every operation, which ends when all that lead to it have ended, and two for every
// transfer: the meeting, when both sides have started, and the return, when what was lent has been released.
class Rehearsal {
 public:
  explicit Rehearsal(const Subject& subject) : world_(static_cast<std::size_t>(subject.layout.world())) {
    for (const Schedule& schedule : subject.schedules) {
      first_.push_back(operations_);
      operations_ += schedule.operations.size();
    }
    const bool backward = subject.schedules[0].backward;
    waits_.resize(operations_ + 2 * world_ * world_ * (backward ? 2 : 1));
    for (const Schedule& schedule : subject.schedules) {
      for (std::size_t i = 0; i < schedule.operations.size(); ++i) add_edges(schedule, i);
    }
    sort_edges();
  }

  // The first operation that never ends, as a number over all ranks; operations() if all end.
  std::size_t first_stuck() {
    std::vector<std::size_t> ready;
    for (std::size_t node = 0; node < waits_.size(); ++node) {
      if (waits_[node] == 0) ready.push_back(node);
    }
    while (!ready.empty()) {
      const std::size_t node = ready.back();
      ready.pop_back();
      for (std::size_t i = first_edge_[node]; i < first_edge_[node + 1]; ++i) {
        if (--waits_[target_[i]] == 0) ready.push_back(target_[i]);
      }
    }
    std::size_t operation = 0;
    while (operation < operations_ && waits_[operation] == 0) ++operation;
    return operation;
  }
  std::size_t operations() const { return operations_; }

 private:
  void add_edge(std::size_t from, std::size_t to) {
    edges_.emplace_back(from, to);
    ++waits_[to];
  }

  // A rank gets a block at most once (verify_memory), so the receiver and the block name the transfer. It
  // hands on a sum of gradients at most once (verify_sums): there the sender and the block do, and an owner
  // never sends its own.
  std::size_t meeting(const Schedule& schedule, const Operation& op) const {
    const bool named_by_peer = (op.kind == Kind::send) != op.gradient;
    const std::int32_t rank = named_by_peer ? op.peer : schedule.rank;
    const auto place = static_cast<std::size_t>(rank) * world_ + static_cast<std::size_t>(op.block);
    return operations_ + 2 * (place + (op.gradient ? world_ * world_ : 0));
  }

  // What a transfer waits for leads to the meeting, and the meeting to the end of both sides. A lending send
  // ends only with the borrower's release.
  void add_edges(const Schedule& schedule, std::size_t i) {
    const Operation& op = schedule.operations[i];
    const std::size_t first = first_[static_cast<std::size_t>(schedule.rank)], self = first + i;
    std::size_t start = self;
    if (op.kind == Kind::send || op.kind == Kind::receive) {
      start = meeting(schedule, op);
      const bool lent = op.kind == Kind::send && schedule.lends;
      add_edge(lent ? start + 1 : start, self);
    }
    // A tile takes the blocks in order.
    if (op.kind == Kind::attend) {
      for (std::size_t before = i; before-- > 0;) {
        if (schedule.operations[before].kind != Kind::attend) continue;
        add_edge(first + before, self);
        break;
      }
    }
    for (const std::int32_t before : schedule.after_of(op)) {
      add_edge(first + static_cast<std::size_t>(before), start);
    }
    if (op.kind == Kind::release && schedule.lends) {
      Operation receive = op;
      receive.kind = Kind::receive;
      add_edge(self, meeting(schedule, receive) + 1);
    }
  }

  // Targets of each node one after the other.
  void sort_edges() {
    first_edge_.assign(waits_.size() + 1, 0);
    for (const auto& edge : edges_) ++first_edge_[edge.first + 1];
    for (std::size_t node = 0; node < waits_.size(); ++node) first_edge_[node + 1] += first_edge_[node];
    std::vector<std::size_t> next(first_edge_.begin(), first_edge_.end() - 1);
    target_.resize(edges_.size());
    for (const auto& edge : edges_) target_[next[edge.first]++] = edge.second;
  }

  std::size_t world_, operations_ = 0;
  std::vector<std::size_t> first_;   // [rank]: its first operation
  std::vector<std::int32_t> waits_;  // [node]: that have not ended
  std::vector<std::pair<std::size_t, std::size_t>> edges_;
  std::vector<std::size_t> first_edge_, target_;
};

}  // namespace

Status verify_progress(const Subject& subject) {
  Rehearsal rehearsal(subject);
  std::size_t stuck = rehearsal.first_stuck();
  if (stuck == rehearsal.operations()) return {};
  std::size_t rank = 0;
  while (stuck >= subject.schedules[rank].operations.size())
    stuck -= subject.schedules[rank++].operations.size();
  return violation(subject.schedules[rank], stuck, "never ends: the ranks wait for each other");
}

}  // namespace ringattn::schedule
