#include "tests/faults/outcome.h"

#include <signal.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "ringattn.h"
#include "tests/faults/crew.h"
#include "tests/faults/hosts.h"
#include "tests/support/random_data.h"

namespace ringattn::faults {
namespace {

using std::chrono::milliseconds;

constexpr int kEndless = 1 << 28;
// Executions of a stream that nobody may break, after the fault.
int afterwards(const Fault& fault) { return fault.kind == Kind::pause ? 40 : 6; }

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void append(std::vector<std::string>& to, const std::string& text) {
  if (!text.empty()) to.push_back(text);
}

// A call that the end of its ring has ended says besides the reason how far it was.
std::string place_in(const Message& answer, int rank) {
  const std::string message = answer.text("message"), start = "; rank " + std::to_string(rank) + " was ";
  const std::size_t at = message.rfind(start);
  if (at == std::string::npos) return "";
  const std::string place = message.substr(at + start.size());
  const bool told = place.rfind("in step ", 0) == 0 || place.rfind("agreeing on ", 0) == 0;
  return told ? message.substr(at) : "";
}

// What the survivors of a fault must say.
struct Expected {
  std::vector<ringattn_status> statuses;
  std::vector<std::string> parts;  // of every message
};

class Run {
 public:
  Run(const Fault& fault, const Limits& limits)
      : fault_(fault),
        limits_(limits),
        network_(fault.kind == Kind::cut ? std::make_unique<Network>(fault.ranks) : nullptr),
        crew_(fault.ranks, network_ ? network_->where() : std::vector<Whereabouts>{{}}),
        all_(crew_.everybody()) {
    outcome_.fault = fault;
    crew_.within(limits.whole, limits.silence);
  }

  Outcome run();

 private:
  void prepare();
  void start_stream();
  void inject();
  void wait_for_moment();
  void hear_survivors();
  void wake();
  void judge(int rank, const Message& answer);
  void judge_victim();
  void judge_living(const std::vector<Message>& answers);
  Expected expected(int rank) const;
  void detected(std::int64_t at_ns);
  void leave_and_count();
  void new_ring();
  void meet_and_die();
  void hear_after_meeting(int rank);

  bool victim_dies() const {
    return fault_.kind == Kind::kill || fault_.kind == Kind::zombie || fault_.kind == Kind::exit ||
           fault_.kind == Kind::meeting;
  }
  std::string victim_text() const { return "rank " + std::to_string(fault_.victim); }

  const Fault& fault_;
  const Limits& limits_;
  Outcome outcome_;
  std::unique_ptr<Network> network_;  // where every rank has a host of its own
  Crew crew_;
  Members all_, survivors_;
  RingOrder ring_;
  std::vector<Holdings> before_;
  std::int64_t injected_ns_ = 0;
};

void Run::prepare() {
  crew_.prepare(
      Message("context").with("threads", fault_.threads).with("progress_thread", fault_.progress_thread),
      to_line(fault_.problem), fault_.transport);
  before_ = crew_.holdings(all_);
  ring_.transport = fault_.transport;
  ring_.environment = fault_.environment;
  if (network_) ring_.place = Network::address(0) + ":7000";
  ring_.timeout_ms = ring_.arrival_ms = fault_.timeout_ms;
  if (fault_.kind == Kind::slow) ring_.arrival_ms = 30'000;  // a rank is late where its step before was slow
  // Between two calls the ranks compare with fp64, which on a busy machine may take longer than the timeout of a call.
  if (fault_.kind == Kind::stop) ring_.arrival_ms = 3 * fault_.timeout_ms;
  survivors_ = all_;
  if (victim_dies()) std::erase(survivors_, fault_.victim);
}

// ---- the fault ------------------------------------------------------------------------------------------

void Run::start_stream() {
  const bool endless = kills_ring(fault_.kind);
  Message order = Message("run").with("ring", ring_.name).with("first", 0).with("drive", fault_.drive);
  order.with("count", endless ? kEndless : fault_.at + afterwards(fault_));
  // What breaks one execution and not the ring ends the stream of everybody there.
  for (const int rank : all_) {
    Message own = order;
    const bool acts = fault_.kind == Kind::abort || fault_.kind == Kind::exit || fault_.kind == Kind::slow ||
                      fault_.kind == Kind::refuse || fault_.kind == Kind::mismatch;
    if (rank == fault_.victim && acts) {
      own.with("act", name_of(fault_.kind)).with("at", fault_.at).with("in_us", fault_.after_us);
      own.with("slow_ms", 10 * fault_.timeout_ms).with("pause_ms", fault_.timeout_ms / 3);
    }
    if (rank == fault_.victim && fault_.kind == Kind::leave) own.with("count", fault_.at);
    crew_[rank].order(own);
  }
}

void Run::wait_for_moment() {
  const auto wanted = static_cast<std::uint64_t>(fault_.at) + 3;  // two of the ring of one rank before
  while (crew_.progress(fault_.victim).begun.load() < wanted) {
    if (Clock::now() > crew_.deadline())
      throw Failure("execution " + std::to_string(fault_.at) + " never begins", true);
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  std::this_thread::sleep_for(std::chrono::microseconds(fault_.after_us));
}

void Run::inject() {
  RankProcess& victim = crew_[fault_.victim];
  switch (fault_.kind) {
    case Kind::kill:
    case Kind::zombie:
      wait_for_moment();
      injected_ns_ = now_ns();
      victim.signal(SIGKILL);
      if (fault_.kind == Kind::kill) victim.reap(crew_.deadline());
      break;
    case Kind::stop:
      wait_for_moment();
      injected_ns_ = now_ns();
      victim.signal(SIGSTOP);
      break;
    case Kind::cut:
      wait_for_moment();
      injected_ns_ = now_ns();
      network_->cut(fault_.victim);
      break;
    case Kind::pause:
      wait_for_moment();
      victim.signal(SIGSTOP);
      std::this_thread::sleep_for(milliseconds(200));
      victim.signal(SIGCONT);
      break;
    case Kind::leave:
      crew_.answer(fault_.victim);
      injected_ns_ = now_ns();
      crew_.ask({fault_.victim}, Message("leave").with("ring", ring_.name));
      break;
    case Kind::exit:
      if (victim.reap(crew_.deadline()) != 7)
        throw Failure("exit(7) of a rank without leaving: another status");
      injected_ns_ = crew_.progress(fault_.victim).acted_ns.load();
      break;
    default:
      break;  // the victim does it to itself
  }
}

// ---- what they say --------------------------------------------------------------------------------------

Expected Run::expected(int rank) const {
  const std::string lost = victim_text() + " (host ";
  switch (fault_.kind) {
    case Kind::cut:  // who is cut off loses all others
      return {{RINGATTN_ERR_PEER_LOST}, {rank == fault_.victim ? " (host host-" : lost}};
    case Kind::stop:
      return {{RINGATTN_ERR_TIMEOUT}, {victim_text() + " "}};
    case Kind::meeting:  // it may never have come, or have taken the place of the meeting with it
      return {{RINGATTN_ERR_PEER_LOST, RINGATTN_ERR_TIMEOUT}, {}};
    case Kind::abort:
      return {{RINGATTN_ERR_ABORTED}, {"aborted by " + victim_text(), "enough of it"}};
    default:
      return {{RINGATTN_ERR_PEER_LOST}, {lost}};
  }
}

void Run::judge(int rank, const Message& answer) {
  if (answer.has("wrong")) outcome_.wrong.push_back(text_of(rank, answer));
  const Expected wanted = expected(rank);
  const auto status = static_cast<ringattn_status>(answer.number("status", RINGATTN_OK));
  bool named = std::find(wanted.statuses.begin(), wanted.statuses.end(), status) != wanted.statuses.end();
  for (const std::string& part : wanted.parts) named = named && contains(answer.text("message"), part);
  if (fault_.kind == Kind::meeting)
    named = named && (contains(answer.text("message"), victim_text() + " ") ||
                      contains(answer.text("message"), "the host was lost") ||
                      contains(answer.text("message"), "found no host within"));
  // When the deadline is over, whoever has waited for it is inside a call.
  if (fault_.kind == Kind::stop && rank != fault_.victim) named = named && !place_in(answer, rank).empty();
  if (!named) outcome_.unnamed.push_back(text_of(rank, answer));
  if (!answer.has("comm_status")) return;
  const bool repeats = answer.text("comm_status") == answer.text("status") &&
                       answer.text("message") == answer.text("comm_message") + place_in(answer, rank) &&
                       answer.text("again_status") == answer.text("status") &&
                       answer.text("again_message") == answer.text("comm_message");
  if (!repeats)
    outcome_.broken.push_back(text_of(rank, answer) + ", but then the comm says " +
                              answer.text("comm_status") + " " + answer.text("comm_message") +
                              " and a call " + answer.text("again_status") + " " +
                              answer.text("again_message"));
}

void Run::detected(std::int64_t at_ns) {
  outcome_.detect_ms = std::max(outcome_.detect_ms, static_cast<double>(at_ns - injected_ns_) / 1e6);
}

void Run::hear_survivors() {
  bool between = false;  // the victim was stopped between two calls
  for (const int rank : survivors_) {
    const bool victim = rank == fault_.victim;
    if (victim && fault_.kind == Kind::leave) continue;
    if (victim && fault_.kind == Kind::stop) continue;
    const Message answer = crew_.answer(rank);
    if (fault_.kind == Kind::abort) injected_ns_ = crew_.progress(fault_.victim).acted_ns.load();
    judge(rank, answer);
    detected(answer.number("at_ns"));
    between = between || contains(answer.text("message"), "(arrival_timeout_ms)");
    if (outcome_.example.empty()) outcome_.example = answer.text("name") + " " + answer.text("message");
  }
  const std::int64_t limit = limits_.detect_ms + (fault_.kind != Kind::stop ? 0
                                                  : between                 ? ring_.arrival_ms
                                                                            : fault_.timeout_ms);
  if (outcome_.detect_ms > static_cast<double>(limit))
    outcome_.broken.push_back("seen after " + std::to_string(outcome_.detect_ms) + " ms");
  if (fault_.kind == Kind::stop && outcome_.detect_ms < 0.8 * static_cast<double>(fault_.timeout_ms))
    outcome_.broken.push_back("deadline of " + std::to_string(fault_.timeout_ms) + " ms after " +
                              std::to_string(outcome_.detect_ms) + " ms");
}

// A process that was stopped finds its ring dead, for a reason that names itself.
void Run::wake() {
  crew_[fault_.victim].signal(SIGCONT);
  judge(fault_.victim, crew_.answer(fault_.victim));
}

// Nobody fails, or only the one execution does.
void Run::judge_living(const std::vector<Message>& answers) {
  const bool breaks = fault_.kind == Kind::refuse || fault_.kind == Kind::mismatch;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const int rank = static_cast<int>(i);
    const auto status = static_cast<ringattn_status>(answers[i].number("status", -1));
    if (answers[i].has("wrong")) outcome_.wrong.push_back(text_of(rank, answers[i]));
    ringattn_status wanted = RINGATTN_OK;
    std::string part;
    if (fault_.kind == Kind::mismatch) {
      wanted = RINGATTN_ERR_RANK_MISMATCH;
      part = "collective call: rank 0 has ";
    } else if (fault_.kind == Kind::refuse) {
      wanted = rank == fault_.victim ? RINGATTN_ERR_INVALID_ARGUMENT : RINGATTN_ERR_PEER_REFUSED;
      part = rank == fault_.victim ? "expected" : victim_text() + " refused: ";
    }
    if (status != wanted || !contains(answers[i].text("message"), part))
      outcome_.unnamed.push_back(text_of(rank, answers[i]));
    if (breaks && outcome_.example.empty())
      outcome_.example = answers[i].text("name") + " " + answers[i].text("message");
  }
  if (fault_.kind == Kind::slow) {
    const std::int64_t took = answers[static_cast<std::size_t>(fault_.victim)].number("slowest_ms");
    if (took < 9 * fault_.timeout_ms)
      outcome_.broken.push_back("the slow step took " + std::to_string(took) + " ms only: nothing is shown");
  }
  if (breaks) crew_.run(all_, ring_, fault_.at + 1, afterwards(fault_));
}

// ---- a rank that dies while they meet -------------------------------------------------------------------

// The ring may have been made just before: then it fails at its first use.
void Run::hear_after_meeting(int rank) {
  Message answer = crew_.answer(rank);
  std::int64_t at_ns = answer.number("at_ns");
  for (const char* verb : {"plan", "run"}) {
    if (answer.number("status", -1) != RINGATTN_OK) break;
    answer = crew_.ask({rank}, Message(verb).with("ring", ring_.name).with("count", kEndless))[0];
    at_ns = answer.number("at_ns");
  }
  judge(rank, answer);
  detected(at_ns);
  if (outcome_.example.empty()) outcome_.example = answer.text("name") + " " + answer.text("message");
}

void Run::meet_and_die() {
  const auto orders = crew_.join_orders(all_, ring_);
  for (const int rank : all_) crew_[rank].order(orders(rank));
  std::this_thread::sleep_for(std::chrono::microseconds(fault_.after_us));
  injected_ns_ = now_ns();
  crew_[fault_.victim].signal(SIGKILL);
  for (const int rank : survivors_) hear_after_meeting(rank);
}

// ---- afterwards -----------------------------------------------------------------------------------------

void Run::leave_and_count() {
  for (const Message& left : crew_.ask(survivors_, Message("leave").with("ring", ring_.name)))
    outcome_.leave_ms = std::max(outcome_.leave_ms, static_cast<double>(left.number("took_us")) / 1e3);
  std::vector<Holdings> before;
  for (const int rank : survivors_) before.push_back(before_[static_cast<std::size_t>(rank)]);
  const std::vector<Holdings> now = crew_.holdings(survivors_, before);
  for (std::size_t i = 0; i < now.size(); ++i) {
    const std::string more = now[i].more_than(before[i]);
    if (!more.empty())
      outcome_.left.push_back("rank " + std::to_string(survivors_[i]) + " still holds " + more);
  }
}

// In the same processes, in another order: what is late from the old ring must not be taken for the new one's.
void Run::new_ring() {
  support::Random random(fault_.shuffle);
  for (std::size_t i = survivors_.size(); i > 1; --i)
    std::swap(survivors_[i - 1],
              survivors_[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
  RingOrder next;
  next.transport = fault_.transport;
  next.environment = !fault_.environment;
  if (network_) {
    network_->heal(fault_.victim);
    next.place = Network::address(survivors_[0]) + ":7001";
  }
  crew_.make_ring(survivors_, next);
  crew_.run(survivors_, next, 1 + static_cast<int>(random.below(20)), 4);
  crew_.leave(survivors_, next);
}

Outcome Run::run() {
  try {
    prepare();
    if (fault_.kind == Kind::meeting) {
      meet_and_die();
    } else {
      crew_.make_ring(all_, ring_);
      start_stream();
      inject();
      if (kills_ring(fault_.kind)) {
        hear_survivors();
      } else {
        judge_living(crew_.answers(all_));
      }
    }
    if (fault_.kind == Kind::stop) wake();
    leave_and_count();
    new_ring();
    crew_.dismiss(survivors_);
  } catch (const Failure& failure) {
    outcome_.hang = failure.hang;
    append(outcome_.broken, failure.what());
    for (const int rank : all_)
      outcome_.broken.back() += "; process " + std::to_string(rank) + " began " +
                                std::to_string(crew_.progress(rank).begun.load()) + " executions and ended " +
                                std::to_string(crew_.progress(rank).ended.load()) + ", last order '" +
                                crew_[rank].last_order() + "'";
  }
  return outcome_;
}

}  // namespace

Outcome run_fault(const Fault& fault, const Limits& limits) { return Run(fault, limits).run(); }

std::string Outcome::text() const {
  if (ok()) return "";
  std::string text = std::string(hang ? "HANG: " : "") + fault.text() + "\n  repeat: " + fault.command();
  const auto add = [&](const char* what, const std::vector<std::string>& list) {
    for (const std::string& line : list) text += std::string("\n  ") + what + ": " + line;
  };
  add("WRONG RESULT", wrong);
  add("not as named", unnamed);
  add("left behind", left);
  add("broken", broken);
  return text;
}

}  // namespace ringattn::faults
