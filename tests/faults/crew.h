// Some rank processes under one driver, with what rings need: all are asked at once, all must answer in time.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "tests/faults/board.h"
#include "tests/faults/holdings.h"
#include "tests/faults/process.h"

namespace ringattn::faults {

using Members = std::vector<int>;  // numbers of processes; a member's rank is its place in the list

// How a ring is made.
struct RingOrder {
  std::string name = "ring";
  std::string transport = {};
  bool environment = false;  // else by unique id
  std::string place = {};    // with environment: host:port; "" = a free port of 127.0.0.1
  std::string secret = "the secret of this ring";
  std::int64_t timeout_ms = 30'000, arrival_ms = 30'000;
};

class Crew {
 public:
  // Where process i runs: where[i % where.size()].
  explicit Crew(int size, const std::vector<Whereabouts>& where = {Whereabouts()});

  int size() const { return static_cast<int>(processes_.size()); }
  Members everybody() const;
  RankProcess& operator[](int process) { return processes_[static_cast<std::size_t>(process)]; }
  Progress& progress(int process) { return board_.of(process); }

  // From now on: everything together takes at most `limit`, and where nobody answers and no rank begins or ends an
  // execution for `silence`, that is a hang.
  void within(std::chrono::milliseconds limit, std::chrono::milliseconds silence = std::chrono::seconds(60));
  Clock::time_point deadline() const { return deadline_; }
  Message answer(int member);

  // The same order to each, then all answers in the members' order.
  std::vector<Message> ask(const Members& members, const Message& order);
  std::vector<Message> ask(const Members& members, const std::function<Message(int rank)>& order);
  // The same, and all must say OK.
  void must(const Members& members, const Message& order);
  std::vector<Message> answers(const Members& members);

  // Contexts, values, and one ring of one rank over the transport, so that what is loaded once is there before anything is
  // counted. Throws Failure with the library's reason where the transport cannot run.
  void prepare(const Message& context, const std::string& problem, const std::string& transport);

  // The orders to join: of ranks that know where to meet.
  std::function<Message(int rank)> join_orders(const Members& members, const RingOrder& ring);
  // A whole ring, with its plan; throws where a member fails.
  void make_ring(const Members& members, const RingOrder& ring);
  // Runs executions first..first+count-1 and throws where a member fails or has a wrong result.
  void run(const Members& members, const RingOrder& ring, int first, int count);
  void leave(const Members& members, const RingOrder& ring);

  std::vector<Holdings> holdings(const Members& members, const std::vector<Holdings>& before = {});
  // All end by themselves, with exit status 0.
  void dismiss(const Members& members);

 private:
  Board board_;
  std::vector<RankProcess> processes_;
  std::uint64_t all_progress();

  Clock::time_point deadline_;
  std::chrono::milliseconds silence_{0};
};

// "rank 1: RINGATTN_ERR_PEER_LOST: lost rank 2 ..."
std::string text_of(int rank, const Message& answer);
int free_port();

}  // namespace ringattn::faults
