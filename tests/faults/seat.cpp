#include "tests/faults/seat.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "tests/support/random_data.h"

namespace ringattn::faults {
namespace {

ringattn_comm_desc comm_desc(const Message& order) {
  ringattn_comm_desc desc = RINGATTN_STRUCT(ringattn_comm_desc);
  desc.world_size = static_cast<std::int32_t>(order.number("world"));
  desc.timeout_ms = static_cast<std::int32_t>(order.number("timeout_ms", 30'000));
  desc.arrival_timeout_ms = static_cast<std::int32_t>(order.number("arrival_ms", 30'000));
  desc.transport = order.text("transport").empty() ? nullptr : order.text("transport").c_str();
  return desc;
}

void set_environment(const Message& order) {
  ::setenv("RINGATTN_RANK", order.text("rank").c_str(), 1);
  ::setenv("RINGATTN_WORLD_SIZE", order.text("world").c_str(), 1);
  ::setenv("RINGATTN_RENDEZVOUS", order.text("place").c_str(), 1);
  ::setenv("RINGATTN_SECRET", order.text("secret").c_str(), 1);
}

std::vector<std::int64_t> owned_by(const ringattn_plan* plan, std::int32_t axis, std::int32_t rank,
                                   std::int64_t capacity) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(capacity) + 1);
  std::uint64_t count = 0;
  ringattn_plan_positions(plan, axis, rank, 0, nullptr, index.data(), nullptr, index.size(), &count);
  index.resize(count);
  return index;
}

void sleep_ns(std::int64_t duration) {
  if (duration > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(duration));
}

}  // namespace

Answer Answer::of(ringattn_status status) {
  return {status, status == RINGATTN_OK ? std::string() : ringattn_last_error()};
}

Message Answer::reply() const {
  return Message("answer")
      .with("status", status)
      .with("name", ringattn_status_name(status))
      .with("message", message)
      .with("at_ns", now_ns());
}

Answer Seat::join(const Message& order) {
  rank_ = static_cast<std::int32_t>(order.number("rank"));
  const ringattn_comm_desc desc = comm_desc(order);
  if (order.text("way") == "environment") {
    set_environment(order);
    return Answer::of(ringattn_comm_create_from_environment(context_, &desc, &comm_));
  }
  ringattn_unique_id id;
  const Answer read = Answer::of(ringattn_unique_id_from_text(order.text("id").c_str(), &id));
  if (read.status != RINGATTN_OK) return read;
  return Answer::of(ringattn_comm_create_from_id(context_, &desc, rank_, &id, &comm_));
}

Answer Seat::make_plan(const Values& values) {
  values_ = &values;
  support::ProblemLine problem = values.problem();
  ringattn_comm_rank(comm_, nullptr, &problem.ranks);
  const support::ProblemPlan structs(problem);
  const Answer made = Answer::of(ringattn_plan_create(comm_, &structs.desc(rank_), &plan_));
  if (made.status != RINGATTN_OK) return made;
  owned_.queries = owned_by(plan_, RINGATTN_AXIS_QUERY, rank_, problem.queries);
  owned_.keys = owned_by(plan_, RINGATTN_AXIS_KEY, rank_, problem.keys);
  tensors_ = std::make_unique<support::RankTensors>(problem, static_cast<std::int64_t>(owned_.queries.size()),
                                                    static_cast<std::int64_t>(owned_.keys.size()), nullptr);
  return made;
}

// ---- executions -----------------------------------------------------------------------------------------

Seat::Pass Seat::act(const Message& order, std::uint64_t number) {
  Pass pass;
  pass.backward = number % 2 == 1;
  if (!order.has("act") || number != static_cast<std::uint64_t>(order.number("at"))) return pass;
  const std::string& act = order.text("act");
  if (act == "abort") abort_later(order.number("in_us"), "enough of it");
  if (act == "exit") {  // without leaving: what a program that gives up does
    progress_.acted_ns.store(now_ns(), std::memory_order_relaxed);
    std::exit(7);
  }
  if (act == "refuse") pass.refuses = true;
  if (act == "mismatch") pass.backward = !pass.backward;
  if (act == "slow") {
    pass.pause_ns = order.number("pause_ms") * 1'000'000;
    pass.slow_ns = order.number("slow_ms") * 1'000'000;
  }
  return pass;
}

Answer Seat::start(const Pass& pass, ringattn_request** request) {
  if (!pass.backward) {
    ringattn_forward_args args = tensors_->args;
    if (pass.refuses) args.k = nullptr;
    return Answer::of(ringattn_forward(plan_, &args, request));
  }
  ringattn_backward_args args = tensors_->backward_args;
  if (pass.refuses) args.d_o = nullptr;
  return Answer::of(ringattn_backward(plan_, &args, request));
}

// One tile now, the next after a while: a rank with very much to compute.
Answer Seat::drive_slowly(const Pass& pass, ringattn_request* request) {
  const std::int64_t until = now_ns() + pass.slow_ns;
  ringattn_status status = RINGATTN_IN_PROGRESS;
  while (status == RINGATTN_IN_PROGRESS && now_ns() < until) {
    status = ringattn_request_test(request);
    if (status == RINGATTN_IN_PROGRESS) sleep_ns(pass.pause_ns);
  }
  return Answer::of(status == RINGATTN_IN_PROGRESS ? ringattn_request_wait(request, -1) : status);
}

Answer Seat::execute(const Pass& pass, const std::string& drive) {
  const bool slow = pass.slow_ns > 0;
  if (!slow && (drive.empty() || drive == "block")) return start(pass, nullptr);
  ringattn_request* request = nullptr;
  Answer answer = start(pass, &request);
  if (answer.status != RINGATTN_OK) return answer;
  if (slow) {
    answer = drive_slowly(pass, request);
  } else if (drive == "test") {
    ringattn_status status = RINGATTN_IN_PROGRESS;
    while ((status = ringattn_request_test(request)) == RINGATTN_IN_PROGRESS) std::this_thread::yield();
    answer = Answer::of(status);
  } else {
    answer = Answer::of(ringattn_request_wait(request, -1));
  }
  ringattn_request_destroy(request);
  return answer;
}

// A comm that is dead says so again and again, with the same words, and at once.
Message Seat::failed(const Answer& answer, const Pass& pass, std::uint64_t number) {
  const std::int64_t failed_ns = now_ns();
  progress_.failed_ns.store(failed_ns, std::memory_order_relaxed);
  Message reply = answer.reply();
  reply.with("at_ns", failed_ns)
      .with("execution", static_cast<std::int64_t>(number))
      .with("call", pass.backward ? "backward" : "forward");
  const Answer comm = Answer::of(ringattn_comm_status(comm_));
  reply.with("comm_status", comm.status).with("comm_message", comm.message);
  if (comm.status == RINGATTN_OK) return reply;
  const Answer again = start(pass, nullptr);
  return reply.with("again_status", again.status).with("again_message", again.message);
}

Message Seat::run(const Message& order) {
  const auto first = static_cast<std::uint64_t>(order.number("first"));
  const auto end = first + static_cast<std::uint64_t>(order.number("count"));
  support::Random random(first + static_cast<std::uint64_t>(rank_));
  std::int64_t slowest_ns = 0;
  for (std::uint64_t number = first; number < end; ++number) {
    const Pass pass = act(order, number);
    if (order.has("jitter_us")) sleep_ns(1000 * random.below(order.number("jitter_us")));
    values_->fill(*tensors_, owned_, number);
    if (pass.backward) values_->fill_results(*tensors_, owned_, number);
    Answer answer;
    for (std::int64_t i = 0; i < order.number("repeat", 1) && answer.status == RINGATTN_OK; ++i) {
      const std::int64_t start_ns = now_ns();
      progress_.begun.fetch_add(1, std::memory_order_relaxed);
      answer = execute(pass, order.text("drive"));
      progress_.ended.fetch_add(1, std::memory_order_relaxed);
      slowest_ns = std::max(slowest_ns, now_ns() - start_ns);
    }
    if (answer.status != RINGATTN_OK) return failed(answer, pass, number);
    const std::string wrong = pass.backward ? values_->check_backward(*tensors_, owned_, number)
                                            : values_->check_forward(*tensors_, owned_, number);
    if (!wrong.empty())
      return answer.reply().with("wrong", wrong).with("execution", static_cast<std::int64_t>(number));
  }
  return Answer()
      .reply()
      .with("execution", static_cast<std::int64_t>(end))
      .with("slowest_ms", slowest_ns / 1'000'000);
}

// ---- the end --------------------------------------------------------------------------------------------

void Seat::abort_later(std::int64_t microseconds, const std::string& reason) {
  aborter_ = std::thread([this, microseconds, reason] {
    sleep_ns(1000 * microseconds);
    progress_.acted_ns.store(now_ns(), std::memory_order_relaxed);
    ringattn_comm_abort(comm_, reason.c_str());
  });
}

Answer Seat::abort(const std::string& reason) const {
  return Answer::of(ringattn_comm_abort(comm_, reason.c_str()));
}

void Seat::leave() {
  if (aborter_.joinable()) aborter_.join();
  ringattn_plan_destroy(plan_);
  ringattn_comm_destroy(comm_);
  plan_ = nullptr;
  comm_ = nullptr;
}

}  // namespace ringattn::faults
