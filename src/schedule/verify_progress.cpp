// The set of schedules runs to its end, with transfers that need both sides at once (rendezvous). Whether an operation can end depends only on which
// others have ended, and nothing that has ended ever comes back: so one run to a standstill decides for every timing.
#include <map>
#include <tuple>

#include "schedule/verify_parts.h"

namespace ringattn::schedule {
namespace {

class Rehearsal {
 public:
  explicit Rehearsal(const Subject& subject) {
    for (std::size_t rank = 0; rank < subject.schedules.size(); ++rank) {
      const Schedule& schedule = subject.schedules[rank];
      for (std::size_t i = 0; i < schedule.operations.size(); ++i) {
        nodes_.push_back({&schedule, i, schedule.operations[i].after_count, {}});
      }
    }
    std::size_t first = 0;  // of the rank
    for (const Schedule& schedule : subject.schedules) {
      for (std::size_t i = 0; i < schedule.operations.size(); ++i) add_edges(schedule, first, i);
      first += schedule.operations.size();
    }
  }

  Status run() {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].waits == 0) ready.push_back(i);
    }
    std::size_t ended = 0;
    while (!ready.empty()) {
      const std::size_t node = ready.back();
      ready.pop_back();
      ++ended;
      for (const std::size_t next : nodes_[node].next) {
        if (--nodes_[next].waits == 0) ready.push_back(next);
      }
    }
    if (ended == nodes_.size()) return {};
    for (const Node& node : nodes_) {
      if (node.waits > 0 && node.schedule != nullptr) {
        return violation(*node.schedule, node.operation, "never ends: the ranks wait for each other");
      }
    }
    return {RINGATTN_ERR_INTERNAL, "schedule: a transfer never starts"};
  }

 private:
  // An operation ends when `waits` others have. A transfer has a meeting besides: a node without schedule at which both sides have arrived.
  struct Node {
    const Schedule* schedule;
    std::size_t operation;
    std::int32_t waits;
    std::vector<std::size_t> next;
  };

  void add_edge(std::size_t from, std::size_t to) {
    nodes_[from].next.push_back(to);
    ++nodes_[to].waits;
  }

  // What an operation waits for is the start of a transfer, so it leads to the meeting instead, which leads to the end of both sides. A
  // lending send ends only with the borrower's release.
  void add_edges(const Schedule& schedule, std::size_t first, std::size_t i) {
    const Operation& op = schedule.operations[i];
    const std::size_t self = first + i;
    const bool sends = op.kind == Kind::send;
    const bool transfers = sends || op.kind == Kind::receive;
    std::size_t start = self;
    if (transfers) {
      const std::size_t both =
          meeting(sends ? schedule.rank : op.peer, sends ? op.peer : schedule.rank, op.block);
      nodes_[both].waits += op.after_count;
      nodes_[self].waits = 0;
      if (!(sends && schedule.lends)) add_edge(both, self);
      start = both;
    }
    for (const std::int32_t before : schedule.after_of(op)) {
      nodes_[first + static_cast<std::size_t>(before)].next.push_back(start);
    }
    if (!schedule.lends) return;
    if (sends) add_edge(returned(schedule.rank, op.peer, op.block), self);
    if (op.kind == Kind::release) add_edge(self, returned(op.peer, schedule.rank, op.block));
  }

  std::size_t meeting(std::int32_t from, std::int32_t to, std::int32_t block) {
    return extra_node({false, from, to, block});
  }
  std::size_t returned(std::int32_t from, std::int32_t to, std::int32_t block) {
    return extra_node({true, from, to, block});
  }
  std::size_t extra_node(const std::tuple<bool, std::int32_t, std::int32_t, std::int32_t>& key) {
    const auto [place, is_new] = extra_.try_emplace(key, nodes_.size());
    if (is_new) nodes_.push_back({nullptr, 0, 0, {}});
    return place->second;
  }

  std::vector<Node> nodes_;
  std::map<std::tuple<bool, std::int32_t, std::int32_t, std::int32_t>, std::size_t> extra_;
};

}  // namespace

Status verify_progress(const Subject& subject) { return Rehearsal(subject).run(); }

}  // namespace ringattn::schedule
