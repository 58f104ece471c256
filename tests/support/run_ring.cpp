#include "tests/support/run_ring.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "tests/support/run_ring_steps.h"
#include "tests/support/spawn.h"

namespace ringattn::support {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

const char* name_of(Pass pass) { return pass == Pass::kForward ? "ringattn_forward" : "ringattn_backward"; }

std::vector<std::uint64_t> hashes_of(const RankTensors& tensors, bool backward) {
  std::vector<std::uint64_t> hashes{tensors.o.hash(), tensors.lse.hash()};
  if (backward) hashes.insert(hashes.end(), {tensors.d_q.hash(), tensors.d_k.hash(), tensors.d_v.hash()});
  return hashes;
}

}  // namespace

RingRun::~RingRun() {
  for (RankState& rank : ranks_) ringattn_plan_destroy(rank.plan);
  for (RankState& rank : ranks_) ringattn_comm_destroy(rank.comm);
  ringattn_context_destroy(context_);
}

RunResult RingRun::run(const Inputs& inputs) {
  const bool done = create_comms() && create_plans() && shard(inputs) && execute() && gather();
  if (done) report();
  if (pool_) result_.distinct_threads = pool_->distinct_threads();
  return std::move(result_);
}

RingRun::Outcome RingRun::outcome_of(ringattn_status status) {
  return {status, status == RINGATTN_OK ? std::string() : std::string(ringattn_last_error())};
}

bool RingRun::good(const Outcome& outcome, const char* call, int rank) {
  if (outcome.status == RINGATTN_OK) return true;
  result_.status = outcome.status;
  result_.call = call;
  result_.message = outcome.message;
  result_.rank = rank;
  return false;
}

bool RingRun::broken(const std::string& what) {
  if (result_.broken.empty()) result_.broken = what;
  return false;
}

bool RingRun::create_comms() {
  ringattn_context_desc context_desc = RINGATTN_STRUCT(ringattn_context_desc);
  context_desc.threads = problem_.threads;
  if (options_.host_parallel_for || !kLibraryThreads) {
    pool_ = std::make_unique<HostPool>(std::max(1, problem_.threads));
    pool_->attach(context_desc);
  }
  if (!good(ringattn_context_create(&context_desc, &context_), "ringattn_context_create")) return false;
  ringattn_comm_desc comm_desc = RINGATTN_STRUCT(ringattn_comm_desc);
  comm_desc.world_size = problem_.ranks;
  comm_desc.transport = problem_.transport.empty() ? nullptr : problem_.transport.c_str();
  std::vector<ringattn_comm*> comms(ranks_.size(), nullptr);
  if (!good(ringattn_comm_create_local(context_, &comm_desc, comms.data()), "ringattn_comm_create_local")) {
    return false;
  }
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) ranks_[rank].comm = comms[rank];
  return true;
}

// Runs `body` for every rank, each on a thread of its own. A rank's own refusal is reported before the
// PEER_REFUSED that it causes on others.
bool RingRun::on_threads(const char* call, const std::function<Outcome(std::size_t)>& body) {
  std::vector<Outcome> outcomes(ranks_.size());
  const auto run_rank = [&](int rank) {
    outcomes[static_cast<std::size_t>(rank)] = body(static_cast<std::size_t>(rank));
  };
  run_threads(problem_.ranks, run_rank, options_.watchdog_seconds, call);
  const auto own = [](const Outcome& outcome) {
    return outcome.status != RINGATTN_OK && outcome.status != RINGATTN_ERR_PEER_REFUSED;
  };
  const auto failed = [](const Outcome& outcome) { return outcome.status != RINGATTN_OK; };
  auto first = std::find_if(outcomes.begin(), outcomes.end(), own);
  if (first == outcomes.end()) first = std::find_if(outcomes.begin(), outcomes.end(), failed);
  return first == outcomes.end() || good(*first, call, static_cast<int>(first - outcomes.begin()));
}

bool RingRun::create_plans() {
  const std::uint32_t flags = options_.trace ? RINGATTN_PLAN_TRACE : 0;
  for (ringattn_plan_desc& desc : plan_values_.descs()) desc.flags |= flags;
  if (options_.drive == Drive::kThreads) {
    return on_threads("ringattn_plan_create", [&](std::size_t rank) {
      return outcome_of(
          ringattn_plan_create(ranks_[rank].comm, &plan_values_.descs()[rank], &ranks_[rank].plan));
    });
  }
  std::vector<ringattn_comm*> comms;
  for (const RankState& rank : ranks_) comms.push_back(rank.comm);
  std::vector<ringattn_plan*> plans(ranks_.size(), nullptr);
  const Watchdog watchdog("ringattn_plan_create_array", options_.watchdog_seconds);
  if (!good(
          ringattn_plan_create_array(problem_.ranks, comms.data(), plan_values_.descs().data(), plans.data()),
          "ringattn_plan_create_array")) {
    return false;
  }
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) ranks_[rank].plan = plans[rank];
  return true;
}

// Every other rank gets tensors of its whole local capacity, so that local padding is met as well.
bool RingRun::shard(const Inputs& inputs) {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    RankState& rank = ranks_[r];
    const int number = static_cast<int>(r);
    ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
    if (!good(ringattn_plan_get_info(rank.plan, plan_values_.call(), &info), "ringattn_plan_get_info",
              number)) {
      return false;
    }
    result_.infos.push_back(info);
    const std::int64_t rows_q = r % 2 == 0 ? info.local_q : info.local_capacity_q;
    const std::int64_t rows_k = r % 2 == 0 ? info.local_k : info.local_capacity_k;
    rank.tensors = std::make_unique<RankTensors>(problem_, rows_q, rows_k, plan_values_.call());
    RankTensors& local = *rank.tensors;
    std::vector<Copy> copies{{"ringattn_shard of q", RINGATTN_AXIS_QUERY, inputs.q.view(), local.q_view},
                             {"ringattn_shard of k", RINGATTN_AXIS_KEY, inputs.k.view(), local.k_view},
                             {"ringattn_shard of v", RINGATTN_AXIS_KEY, inputs.v.view(), local.v_view}};
    if (problem_.backward) {
      copies.push_back({"ringattn_shard of d_o", RINGATTN_AXIS_QUERY, inputs.d_o.view(), local.d_o_view});
    }
    if (problem_.backward && options_.with_d_lse) {
      copies.push_back({"ringattn_shard of d_lse", RINGATTN_AXIS_QUERY, inputs.d_lse.token_view(),
                        local.d_lse.token_view()});
      local.backward_args.d_lse = &local.d_lse_view;
    }
    for (const Copy& copy : copies) {
      if (!good(ringattn_shard(rank.plan, copy.axis, number, plan_values_.call(), &copy.global, &copy.local),
                copy.name, number)) {
        return false;
      }
    }
  }
  return true;
}

bool RingRun::execute() {
  std::vector<std::uint64_t> hashes;
  for (int repetition = 0; repetition < options_.repeat; ++repetition) {
    for (RankState& rank : ranks_) rank.tensors->poison_outputs();
    if (!run_pass(Pass::kForward)) return false;
    if (problem_.backward && !(hide_padding() && run_pass(Pass::kBackward))) return false;
    std::vector<std::uint64_t> now;
    for (const RankState& rank : ranks_) {
      const std::vector<std::uint64_t> own = hashes_of(*rank.tensors, problem_.backward);
      now.insert(now.end(), own.begin(), own.end());
    }
    if (repetition > 0 && now != hashes) {
      return broken("execution " + std::to_string(repetition + 1) +
                    " of the plan gave other bits than the first");
    }
    hashes = std::move(now);
  }
  return true;
}

bool RingRun::run_pass(Pass pass) {
  for (RankState& rank : ranks_) rank.inputs_hash = hash_of_inputs(*rank.tensors, pass);
  if (pool_ && pass == Pass::kBackward)
    pool_->forget_threads();  // forward's would hide that backward had one
  const Clock::time_point start = Clock::now();
  if (!(options_.drive == Drive::kThreads ? pass_on_threads(pass) : pass_array(pass))) return false;
  (pass == Pass::kForward ? result_.seconds : result_.backward_seconds) =
      seconds_between(start, Clock::now());
  return check_outputs(pass);
}

// Waits for what was started, where it was started asynchronously.
RingRun::Outcome RingRun::finish(ringattn_status started, ringattn_request* request) const {
  if (started != RINGATTN_OK || !options_.asynchronous) return outcome_of(started);
  const Outcome outcome = outcome_of(ringattn_request_wait(request, -1));
  ringattn_request_destroy(request);
  return outcome;
}

bool RingRun::pass_on_threads(Pass pass) {
  result_.start_seconds.assign(ranks_.size(), 0);
  const Clock::time_point begin = Clock::now();
  return on_threads(name_of(pass), [&](std::size_t rank) {
    if (rank < options_.start_delay_ms.size()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(options_.start_delay_ms[rank]));
    }
    result_.start_seconds[rank] = seconds_between(begin, Clock::now());
    ringattn_request* request = nullptr;
    ringattn_request** out = options_.asynchronous ? &request : nullptr;
    const RankTensors& tensors = *ranks_[rank].tensors;
    const ringattn_status started = pass == Pass::kForward
                                        ? ringattn_forward(ranks_[rank].plan, &tensors.args, out)
                                        : ringattn_backward(ranks_[rank].plan, &tensors.backward_args, out);
    return finish(started, request);
  });
}

bool RingRun::pass_array(Pass pass) {
  std::vector<ringattn_plan*> plans;
  std::vector<ringattn_forward_args> forward;
  std::vector<ringattn_backward_args> backward;
  for (const RankState& rank : ranks_) {
    plans.push_back(rank.plan);
    forward.push_back(rank.tensors->args);
    backward.push_back(rank.tensors->backward_args);
  }
  const std::string call = std::string(name_of(pass)) + "_array";
  const Watchdog watchdog(call, options_.watchdog_seconds);
  ringattn_request* request = nullptr;
  ringattn_request** out = options_.asynchronous ? &request : nullptr;
  const ringattn_status started =
      pass == Pass::kForward ? ringattn_forward_array(problem_.ranks, plans.data(), forward.data(), out)
                             : ringattn_backward_array(problem_.ranks, plans.data(), backward.data(), out);
  return good(finish(started, request), call.c_str());
}

std::string RunResult::error() const {
  if (status == RINGATTN_OK) return broken;
  std::string text = call + (rank >= 0 ? " on rank " + std::to_string(rank) : "") + ": ";
  return text + ringattn_status_name(status) + ": " + message;
}

RunResult run_ring(const ProblemLine& problem, const Inputs& inputs, const RunOptions& options) {
  return RingRun(problem, options).run(inputs);
}

}  // namespace ringattn::support
