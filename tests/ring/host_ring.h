// A ring whose context computes on plain threads of the host (so that ThreadSanitizer sees every lock), over
// any transport, with one plan and the shards of all ranks. Its execution is that of its problem: forward, or
// with pass=backward the gradients, for which o and lse are there already.
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "ringattn.h"
#include "tests/support/fake_transport.h"
#include "tests/support/host_pool.h"
#include "tests/support/problem_plan.h"
#include "tests/support/random_data.h"
#include "tests/support/rank_tensors.h"
#include "tests/support/ready_ring.h"
#include "tests/support/spawn.h"

namespace ringattn::support {

inline ProblemLine parse_line(const std::string& line) {
  ProblemLine problem;
  const auto error = parse_problem(line, problem);
  EXPECT_FALSE(error.has_value()) << error.value_or("");
  return problem;
}

// The fakes under names of this folder's own, "ring_lend" and "ring_copy": others of this program register
// them too.
inline void register_fakes() {
  static ringattn_transport_v1 tables[] = {*test::fake_lend(), *test::fake_copy()};
  static const bool once = [] {
    tables[0].name = "ring_lend";
    tables[1].name = "ring_copy";
    for (const ringattn_transport_v1& table : tables)
      require_ok(ringattn_transport_register(&table), "register");
    return true;
  }();
  static_cast<void>(once);
}

class HostContext {
 public:
  // No workers: whoever calls computes.
  explicit HostContext(int workers = 2, int progress_thread = 0) : pool_(workers > 0 ? workers : 1) {
    ringattn_context_desc desc = RINGATTN_STRUCT(ringattn_context_desc);
    desc.progress_thread = progress_thread;
    desc.threads = 1;
    if (workers > 0) pool_.attach(desc);
    require_ok(ringattn_context_create(&desc, &context_), "ringattn_context_create");
  }
  ~HostContext() { ringattn_context_destroy(context_); }
  HostContext(const HostContext&) = delete;
  HostContext& operator=(const HostContext&) = delete;
  ringattn_context* get() const { return context_; }

 private:
  HostPool pool_;
  ringattn_context* context_ = nullptr;
};

struct HostRingOptions {
  const char* transport = "local";
  test::FakeScript script = {};  // of a fake transport
  int timeout_ms = 30'000;
  int arrival_timeout_ms = 30'000;
  std::uint32_t plan_flags = 0;
  bool plans = true;  // make a plan on every rank, and its shards
};

class HostRing {
 public:
  HostRing(const HostContext& context, const std::string& line, const HostRingOptions& options = {})
      : problem_(parse_line(line)), values_(problem_) {
    register_fakes();
    test::fake_script(options.script);
    ringattn_comm_desc desc = RINGATTN_STRUCT(ringattn_comm_desc);
    desc.world_size = problem_.ranks;
    desc.timeout_ms = options.timeout_ms;
    desc.arrival_timeout_ms = options.arrival_timeout_ms;
    desc.transport = options.transport;
    comms_.resize(static_cast<std::size_t>(problem_.ranks));
    plans_.resize(comms_.size());
    require_ok(ringattn_comm_create_local(context.get(), &desc, comms_.data()), "ringattn_comm_create_local");
    for (ringattn_plan_desc& plan : values_.descs()) plan.flags |= options.plan_flags;
    if (!options.plans) return;
    require_ok(ringattn_plan_create_array(ranks(), comms_.data(), values_.descs().data(), plans_.data()),
               "ringattn_plan_create_array");
    const Inputs inputs = random_inputs(problem_, 1);
    for (int rank = 0; rank < ranks(); ++rank) tensors_.push_back(shard(rank, inputs));
    if (problem_.backward) compute_results();
  }
  ~HostRing() {
    for (ringattn_plan* plan : plans_) ringattn_plan_destroy(plan);
    for (ringattn_comm* comm : comms_) ringattn_comm_destroy(comm);
  }
  HostRing(const HostRing&) = delete;
  HostRing& operator=(const HostRing&) = delete;

  int ranks() const { return static_cast<int>(comms_.size()); }
  ringattn_comm* comm(int rank) const { return comms_[static_cast<std::size_t>(rank)]; }
  ringattn_plan*& plan(int rank) { return plans_[static_cast<std::size_t>(rank)]; }
  RankTensors& tensors(int rank) { return *tensors_[static_cast<std::size_t>(rank)]; }
  const ringattn_plan_desc& desc(int rank) const { return values_.desc(rank); }
  const ringattn_call* call() const { return values_.call(); }

  ringattn_status create_plan(int rank) { return ringattn_plan_create(comm(rank), &desc(rank), &plan(rank)); }
  ringattn_status execute(int rank, ringattn_request** request = nullptr) {
    if (problem_.backward) return ringattn_backward(plan(rank), &tensors(rank).backward_args, request);
    return ringattn_forward(plan(rank), &tensors(rank).args, request);
  }
  ringattn_status execute_all(ringattn_request** request = nullptr) {
    if (problem_.backward) {
      std::vector<ringattn_backward_args> args;
      for (const auto& rank : tensors_) args.push_back(rank->backward_args);
      return ringattn_backward_array(ranks(), plans_.data(), args.data(), request);
    }
    std::vector<ringattn_forward_args> args;
    for (const auto& rank : tensors_) args.push_back(rank->args);
    return ringattn_forward_array(ranks(), plans_.data(), args.data(), request);
  }
  // A started request of one rank; the test fails and it is NULL where it cannot start.
  ringattn_request* start(int rank) {
    ringattn_request* request = nullptr;
    EXPECT_EQ(execute(rank, &request), RINGATTN_OK) << ringattn_last_error();
    return request;
  }
  // Every rank on a thread of its own, blocking.
  std::vector<ringattn_status> execute_on_threads(int seconds = 60) {
    std::vector<ringattn_status> statuses(comms_.size());
    const auto body = [&](int rank) { statuses[static_cast<std::size_t>(rank)] = execute(rank); };
    run_threads(ranks(), body, seconds, "ranks on threads");
    return statuses;
  }
  void poison_outputs() {
    for (const auto& rank : tensors_) {
      for (HostTensor* tensor : outputs(*rank)) tensor->fill(std::numeric_limits<double>::quiet_NaN());
    }
  }
  std::uint64_t hash() const {
    std::uint64_t hash = 0;
    for (const auto& rank : tensors_) {
      for (const HostTensor* tensor : outputs(*rank)) hash = hash * 31 + tensor->hash();
    }
    return hash;
  }

 private:
  std::unique_ptr<RankTensors> shard(int rank, const Inputs& inputs) {
    ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
    require_ok(ringattn_plan_get_info(plan(rank), call(), &info), "ringattn_plan_get_info");
    auto out = std::make_unique<RankTensors>(problem_, info.local_capacity_q, info.local_capacity_k, call());
    const ringattn_tensor q = inputs.q.view(), k = inputs.k.view(), v = inputs.v.view();
    require_ok(ringattn_shard(plan(rank), RINGATTN_AXIS_QUERY, rank, call(), &q, &out->q_view), "shard q");
    require_ok(ringattn_shard(plan(rank), RINGATTN_AXIS_KEY, rank, call(), &k, &out->k_view), "shard k");
    require_ok(ringattn_shard(plan(rank), RINGATTN_AXIS_KEY, rank, call(), &v, &out->v_view), "shard v");
    if (problem_.backward) {
      const ringattn_tensor d_o = inputs.d_o.view();
      require_ok(ringattn_shard(plan(rank), RINGATTN_AXIS_QUERY, rank, call(), &d_o, &out->d_o_view),
                 "shard d_o");
    }
    return out;
  }

  std::vector<HostTensor*> outputs(RankTensors& rank) const {
    if (problem_.backward) return {&rank.d_q, &rank.d_k, &rank.d_v};
    return {&rank.o, &rank.lse};
  }

  // o and lse by a ring of its own, so that the transport under test and its script see backward alone.
  void compute_results() {
    const HostContext context(1);
    ProblemLine problem = problem_;
    problem.backward = false;
    problem.dtype_grad = 0;
    HostRing forward(context, to_line(problem));
    EXPECT_EQ(forward.execute_all(), RINGATTN_OK) << ringattn_last_error();
    for (int rank = 0; rank < ranks(); ++rank) {
      tensors(rank).o = forward.tensors(rank).o;
      tensors(rank).lse = forward.tensors(rank).lse;
      tensors(rank).o_view = tensors(rank).o.view();
      tensors(rank).lse_view = tensors(rank).lse.view();
    }
  }

  ProblemLine problem_;
  ProblemPlan values_;
  std::vector<ringattn_comm*> comms_;
  std::vector<ringattn_plan*> plans_;
  std::vector<std::unique_ptr<RankTensors>> tensors_;
};

// A parameter of suites that run over both passes.
struct Over {
  const char* transport;
  const char* pass;
};
inline constexpr Over kEverything[] = {
    {"local", "forward"},  {"ring_lend", "forward"},  {"ring_copy", "forward"},  {"tcp", "forward"},
    {"local", "backward"}, {"ring_lend", "backward"}, {"ring_copy", "backward"}, {"tcp", "backward"}};
inline std::string name_of(const Over& over) {
  return std::string(over.transport).append("_").append(over.pass);
}
inline std::string with_pass(const char* line, const Over& over) {
  return std::string(line).append(" pass=").append(over.pass);
}

// The bits of a problem's answer, computed over the local transport by one thread.
inline std::uint64_t answer_of_local(const std::string& line) {
  const HostContext context(1);
  HostRing ring(context, line);
  EXPECT_EQ(ring.execute_all(), RINGATTN_OK) << ringattn_last_error();
  return ring.hash();
}

// Waits for a request and releases it.
inline ringattn_status finish(ringattn_request* request, std::string* message = nullptr) {
  if (request == nullptr) return RINGATTN_ERR_INTERNAL;
  const ringattn_status status = ringattn_request_wait(request, -1);
  if (message != nullptr) *message = ringattn_request_message(request);
  ringattn_request_destroy(request);
  return status;
}

}  // namespace ringattn::support
