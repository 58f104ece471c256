#include "tests/support/run_ring.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <thread>

#include "tests/support/host_pool.h"
#include "tests/support/oracle.h"
#include "tests/support/problem_plan.h"
#include "tests/support/rank_tensors.h"
#include "tests/support/spawn.h"

namespace ringattn::support {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// What one rank's call came to; the message is taken before another call of the library can replace it.
struct Outcome {
  ringattn_status status = RINGATTN_OK;
  std::string message;
};

Outcome outcome_of(ringattn_status status) {
  return {status, status == RINGATTN_OK ? std::string() : std::string(ringattn_last_error())};
}

struct RankState {
  ringattn_comm* comm = nullptr;
  ringattn_plan* plan = nullptr;
  std::unique_ptr<RankTensors> tensors;
  std::uint64_t inputs_hash = 0;
};

std::uint64_t hash_of_inputs(const RankTensors& tensors) {
  return (tensors.q.hash() * 31 + tensors.k.hash()) * 31 + tensors.v.hash();
}

class RingRun {
 public:
  RingRun(const ProblemLine& problem, const RunOptions& options)
      : problem_(problem),
        options_(options),
        plan_values_(problem),
        ranks_(static_cast<std::size_t>(problem.ranks)) {}
  RingRun(const RingRun&) = delete;
  RingRun& operator=(const RingRun&) = delete;
  ~RingRun() {
    for (RankState& rank : ranks_) ringattn_plan_destroy(rank.plan);
    for (RankState& rank : ranks_) ringattn_comm_destroy(rank.comm);
    ringattn_context_destroy(context_);
  }

  RunResult run(const HostTensor& q, const HostTensor& k, const HostTensor& v) {
    const bool done =
        create_comms() && create_plans() && shard(q, k, v) && execute() && check_outputs() && gather(q);
    if (done) report();
    if (pool_) result_.distinct_threads = pool_->distinct_threads();
    return std::move(result_);
  }

 private:
  // Remembers the first failure.
  bool good(const Outcome& outcome, const char* call, int rank = -1) {
    if (outcome.status == RINGATTN_OK) return true;
    result_.status = outcome.status;
    result_.call = call;
    result_.message = outcome.message;
    result_.rank = rank;
    return false;
  }
  bool good(ringattn_status status, const char* call, int rank = -1) {
    return good(outcome_of(status), call, rank);
  }
  bool broken(const std::string& what) {
    if (result_.broken.empty()) result_.broken = what;
    return false;
  }

  bool create_comms() {
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

  // Runs `body` for every rank, each on a thread of its own. A rank's own refusal is reported before the PEER_REFUSED
  // that it causes on others.
  bool on_threads(const char* call, const std::function<Outcome(std::size_t)>& body) {
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

  bool create_plans() {
    const std::uint32_t flags = options_.trace ? RINGATTN_PLAN_TRACE : 0;
    for (ringattn_plan_desc& desc : plan_values_.descs()) desc.flags = flags;
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
    if (!good(ringattn_plan_create_array(problem_.ranks, comms.data(), plan_values_.descs().data(),
                                         plans.data()),
              "ringattn_plan_create_array")) {
      return false;
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) ranks_[rank].plan = plans[rank];
    return true;
  }

  // Every other rank gets tensors of its whole local capacity, so that local padding is met as well.
  bool shard(const HostTensor& q, const HostTensor& k, const HostTensor& v) {
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
      const struct {
        const char* name;
        std::int32_t axis;
        const HostTensor& global;
        const ringattn_tensor& local;
      } copies[] = {{"ringattn_shard of q", RINGATTN_AXIS_QUERY, q, rank.tensors->q_view},
                    {"ringattn_shard of k", RINGATTN_AXIS_KEY, k, rank.tensors->k_view},
                    {"ringattn_shard of v", RINGATTN_AXIS_KEY, v, rank.tensors->v_view}};
      for (const auto& copy : copies) {
        const ringattn_tensor from = copy.global.view();
        if (!good(ringattn_shard(rank.plan, copy.axis, number, plan_values_.call(), &from, &copy.local),
                  copy.name, number)) {
          return false;
        }
      }
      rank.inputs_hash = hash_of_inputs(*rank.tensors);
    }
    return true;
  }

  bool execute() {
    std::vector<std::uint64_t> hashes;
    for (int repetition = 0; repetition < options_.repeat; ++repetition) {
      for (RankState& rank : ranks_) rank.tensors->poison_outputs();
      const auto start = std::chrono::steady_clock::now();
      if (!(options_.drive == Drive::kThreads ? forward_on_threads() : forward_array())) return false;
      result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      std::vector<std::uint64_t> now;
      for (const RankState& rank : ranks_) {
        now.insert(now.end(), {rank.tensors->o.hash(), rank.tensors->lse.hash()});
      }
      if (repetition > 0 && now != hashes) {
        return broken("execution " + std::to_string(repetition + 1) +
                      " of the plan gave other bits than the first");
      }
      hashes = std::move(now);
    }
    return true;
  }

  // Waits for what was started, where it was started asynchronously.
  Outcome finish(ringattn_status started, ringattn_request* request) const {
    if (started != RINGATTN_OK || !options_.asynchronous) return outcome_of(started);
    const Outcome outcome = outcome_of(ringattn_request_wait(request, -1));
    ringattn_request_destroy(request);
    return outcome;
  }

  bool forward_on_threads() {
    return on_threads("ringattn_forward", [&](std::size_t rank) {
      if (rank < options_.start_delay_ms.size()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(options_.start_delay_ms[rank]));
      }
      ringattn_request* request = nullptr;
      const ringattn_status started = ringattn_forward(ranks_[rank].plan, &ranks_[rank].tensors->args,
                                                       options_.asynchronous ? &request : nullptr);
      return finish(started, request);
    });
  }

  bool forward_array() {
    std::vector<ringattn_plan*> plans;
    std::vector<ringattn_forward_args> args;
    for (const RankState& rank : ranks_) {
      plans.push_back(rank.plan);
      args.push_back(rank.tensors->args);
    }
    const Watchdog watchdog("ringattn_forward_array", options_.watchdog_seconds);
    ringattn_request* request = nullptr;
    const ringattn_status started = ringattn_forward_array(problem_.ranks, plans.data(), args.data(),
                                                           options_.asynchronous ? &request : nullptr);
    return good(finish(started, request), "ringattn_forward_array");
  }

  // Rows beyond the call's local length must be O = 0, lse = -inf; nothing outside the tensors may have been written.
  bool check_outputs() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const RankTensors& tensors = *ranks_[r].tensors;
      const std::string who = "rank " + std::to_string(r) + ": ";
      for (const HostTensor* tensor : {&tensors.q, &tensors.k, &tensors.v, &tensors.o, &tensors.lse}) {
        if (!tensor->guards_intact()) return broken(who + "bytes outside a tensor were written");
      }
      if (hash_of_inputs(tensors) != ranks_[r].inputs_hash) return broken(who + "an input was written");
      for (std::int64_t b = 0; b < problem_.batch; ++b) {
        std::int64_t length = 0;
        if (!good(ringattn_plan_local_length(ranks_[r].plan, RINGATTN_AXIS_QUERY, static_cast<int>(r), b,
                                             plan_values_.call(), &length),
                  "ringattn_plan_local_length", static_cast<int>(r))) {
          return false;
        }
        for (std::int64_t s = length; s < tensors.o.shape(1); ++s) {
          if (is_padding(tensors, b, s)) continue;
          return broken(who + "padding row " + std::to_string(s) + " is not O = 0, lse = -inf");
        }
      }
    }
    return true;
  }

  bool is_padding(const RankTensors& rank, std::int64_t b, std::int64_t s) const {
    for (std::int64_t h = 0; h < problem_.heads; ++h) {
      if (rank.lse.get(b, h, s, 0) != kMinusInfinity) return false;
      for (std::int64_t d = 0; d < rank.o.shape(3); ++d) {
        if (rank.o.get(b, s, h, d) != 0) return false;
      }
    }
    return true;
  }

  // Global outputs. Rows of the call start as NaN, so that one which no rank returns is seen; rows beyond are padding.
  bool gather(const HostTensor& q) {
    result_.o = HostTensor(problem_.effective_dtype_out(),
                           {problem_.batch, q.shape(1), problem_.heads, problem_.effective_dim_v()});
    result_.lse = HostTensor(RINGATTN_DTYPE_F32, {problem_.batch, problem_.heads, q.shape(1), 1});
    for (std::int64_t b = 0; b < problem_.batch; ++b) {
      const std::vector<TokenPlace> places = query_places(problem_, b);
      for (std::int64_t s = 0; s < q.shape(1); ++s) {
        const bool padding = places[static_cast<std::size_t>(s)].sequence < 0;
        for (std::int64_t h = 0; h < problem_.heads; ++h) {
          result_.lse.set(b, h, s, 0, padding ? kMinusInfinity : kNaN);
          for (std::int64_t d = 0; !padding && d < result_.o.shape(3); ++d) result_.o.set(b, s, h, d, kNaN);
        }
      }
    }
    const ringattn_tensor global_o = result_.o.view();
    const ringattn_tensor global_lse = result_.lse.token_view();
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const int number = static_cast<int>(r);
      const ringattn_tensor lse = ranks_[r].tensors->lse.token_view();
      if (!good(ringattn_unshard(ranks_[r].plan, RINGATTN_AXIS_QUERY, number, plan_values_.call(),
                                 &ranks_[r].tensors->o_view, &global_o),
                "ringattn_unshard of o", number) ||
          !good(ringattn_unshard(ranks_[r].plan, RINGATTN_AXIS_QUERY, number, plan_values_.call(), &lse,
                                 &global_lse),
                "ringattn_unshard of lse", number)) {
        return false;
      }
    }
    return true;
  }

  void report() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const int number = static_cast<int>(r);
      ringattn_times times = RINGATTN_STRUCT(ringattn_times);
      if (!good(ringattn_plan_get_times(ranks_[r].plan, &times), "ringattn_plan_get_times", number)) return;
      result_.times.push_back(times);
      if (!options_.trace) continue;
      std::vector<ringattn_event> events(1, RINGATTN_STRUCT(ringattn_event));
      std::uint64_t count = events.size();
      for (int attempt = 0; attempt < 2; ++attempt) {  // the first one tells how many there are
        events.resize(std::max<std::size_t>(1, static_cast<std::size_t>(count)), events[0]);
        if (!good(ringattn_plan_trace(ranks_[r].plan, events.data(), events.size(), &count, nullptr),
                  "ringattn_plan_trace", number)) {
          return;
        }
      }
      events.resize(static_cast<std::size_t>(count));
      result_.events.push_back(std::move(events));
    }
  }

  const ProblemLine& problem_;
  const RunOptions& options_;
  ProblemPlan plan_values_;
  std::unique_ptr<HostPool> pool_;
  ringattn_context* context_ = nullptr;
  std::vector<RankState> ranks_;
  RunResult result_;
};

}  // namespace

std::string RunResult::error() const {
  if (status == RINGATTN_OK) return broken;
  std::string text = call + (rank >= 0 ? " on rank " + std::to_string(rank) : "") + ": ";
  return text + ringattn_status_name(status) + ": " + message;
}

RunResult run_ring(const ProblemLine& problem, const HostTensor& q, const HostTensor& k, const HostTensor& v,
                   const RunOptions& options) {
  return RingRun(problem, options).run(q, k, v);
}

}  // namespace ringattn::support
