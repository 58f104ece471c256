#include "ring_run.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <string>
#include <thread>

#include "error.h"
#include "tests/support/host_tensor.h"

namespace ringattn::tool {
namespace {

constexpr std::int64_t kWaitMs = 100;

ringattn_status wait_for(ringattn_request* request, const std::function<void()>& meanwhile) {
  for (;;) {
    const ringattn_status status = ringattn_request_wait(request, kWaitMs);
    if (status != RINGATTN_IN_PROGRESS) return status;
    if (meanwhile) meanwhile();
  }
}

}  // namespace

Buffer::Buffer(ringattn_dtype dtype, std::int64_t batch, std::int64_t axis1, std::int64_t axis2,
               std::int64_t axis3)
    : dtype_(dtype),
      shape_{batch, axis1, axis2, axis3},
      memory_(static_cast<std::size_t>(batch * axis1 * axis2 * axis3 * support::dtype_size(dtype))) {}

ringattn_tensor Buffer::view() const { return dense_view(dtype_, shape_, memory_.data()); }

ringattn_tensor dense_view(ringattn_dtype dtype, const std::int64_t (&shape)[4], const void* data) {
  ringattn_tensor tensor = RINGATTN_STRUCT(ringattn_tensor);
  tensor.dtype = dtype;
  tensor.device_type = RINGATTN_DEVICE_CPU;
  tensor.data = const_cast<void*>(data);
  std::copy(std::begin(shape), std::end(shape), tensor.shape);
  return tensor;
}

ringattn_tensor token_view(const ringattn_tensor& lse) {
  ringattn_tensor tokens = lse;
  tokens.flags = RINGATTN_TENSOR_STRIDES;
  const std::int64_t heads = lse.shape[1], seq = lse.shape[2];
  const std::int64_t shape[4] = {lse.shape[0], seq, heads, 1};
  const std::int64_t stride[4] = {heads * seq, 1, seq, 1};
  std::copy(std::begin(shape), std::end(shape), tokens.shape);
  std::copy(std::begin(stride), std::end(stride), tokens.stride);
  return tokens;
}

RingRun::RingRun(const support::ProblemLine& problem, bool trace) : problem_(problem), structs_(problem) {
  const auto ranks = static_cast<std::size_t>(problem.ranks);
  auto context_desc = RINGATTN_STRUCT(ringattn_context_desc);
  context_desc.threads = problem.threads;
  ringattn_context* context = nullptr;
  check(ringattn_context_create(&context_desc, &context));
  context_.reset(context);

  auto comm_desc = RINGATTN_STRUCT(ringattn_comm_desc);
  comm_desc.world_size = problem.ranks;
  comm_desc.transport = problem.transport.empty() ? nullptr : problem.transport.c_str();
  std::vector<ringattn_comm*> comms(ranks);
  check(ringattn_comm_create_local(context, &comm_desc, comms.data()));
  for (ringattn_comm* comm : comms) comms_.emplace_back(comm);

  if (trace) {
    for (ringattn_plan_desc& desc : structs_.descs()) desc.flags |= RINGATTN_PLAN_TRACE;
  }
  std::vector<ringattn_plan*> plans(ranks);
  check(ringattn_plan_create_array(problem.ranks, comms.data(), structs_.descs().data(), plans.data()));
  for (ringattn_plan* plan : plans) plans_.emplace_back(plan);
  for (int rank = 0; rank < problem.ranks; ++rank) allocate(rank);
}

void RingRun::allocate(int rank) {
  auto info = RINGATTN_STRUCT(ringattn_plan_info);
  check(ringattn_plan_get_info(plans_[static_cast<std::size_t>(rank)].get(), structs_.call(), &info));
  const std::int64_t batch = problem_.batch, q = info.local_q, k = info.local_k;
  Shards shards;
  shards.q = Buffer(problem_.dtype, batch, q, problem_.heads, problem_.dim);
  shards.k = Buffer(problem_.dtype, batch, k, problem_.effective_kv_heads(), problem_.dim);
  shards.v = Buffer(problem_.dtype, batch, k, problem_.effective_kv_heads(), problem_.effective_dim_v());
  shards.o = Buffer(problem_.effective_dtype_out(), batch, q, problem_.heads, problem_.effective_dim_v());
  shards.lse = Buffer(RINGATTN_DTYPE_F32, batch, problem_.heads, q, 1);
  shards_.push_back(std::move(shards));
}

void RingRun::scatter(const ringattn_tensor& q, const ringattn_tensor& k, const ringattn_tensor& v) {
  const auto share = [&](int axis, int rank, const ringattn_tensor& global, const Buffer& local) {
    const ringattn_tensor view = local.view();
    check(ringattn_shard(plans_[static_cast<std::size_t>(rank)].get(), axis, rank, structs_.call(), &global,
                         &view));
  };
  for (int rank = 0; rank < problem_.ranks; ++rank) {
    const Shards& shards = shards_[static_cast<std::size_t>(rank)];
    share(RINGATTN_AXIS_QUERY, rank, q, shards.q);
    share(RINGATTN_AXIS_KEY, rank, k, shards.k);
    share(RINGATTN_AXIS_KEY, rank, v, shards.v);
  }
}

void RingRun::gather(const ringattn_tensor& o, const ringattn_tensor& lse) const {
  const ringattn_tensor lse_tokens = token_view(lse);
  // Padding belongs to no rank: its rows are O = 0, as the buffer begins, and lse = -inf.
  std::fill_n(static_cast<float*>(lse.data), lse.shape[0] * lse.shape[1] * lse.shape[2],
              -std::numeric_limits<float>::infinity());
  for (int rank = 0; rank < problem_.ranks; ++rank) {
    const ringattn_plan* plan = plans_[static_cast<std::size_t>(rank)].get();
    const Shards& shards = shards_[static_cast<std::size_t>(rank)];
    const ringattn_tensor local_o = shards.o.view();
    const ringattn_tensor local_lse = token_view(shards.lse.view());
    check(ringattn_unshard(plan, RINGATTN_AXIS_QUERY, rank, structs_.call(), &local_o, &o));
    check(ringattn_unshard(plan, RINGATTN_AXIS_QUERY, rank, structs_.call(), &local_lse, &lse_tokens));
  }
}

RingRun::Arguments RingRun::arguments() const {
  const auto ranks = static_cast<std::size_t>(problem_.ranks);
  Arguments all;
  all.views.reserve(5 * ranks);  // the arguments point into it
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const Shards& shards = shards_[rank];
    const ringattn_tensor* first = all.views.data() + all.views.size();
    for (const Buffer* buffer : {&shards.q, &shards.k, &shards.v, &shards.o, &shards.lse}) {
      all.views.push_back(buffer->view());
    }
    auto one = RINGATTN_STRUCT(ringattn_forward_args);
    one.q = first;
    one.k = first + 1;
    one.v = first + 2;
    one.o = first + 3;
    one.lse = first + 4;
    one.call = structs_.call();
    all.args.push_back(one);
    all.plans.push_back(plans_[rank].get());
  }
  return all;
}

void RingRun::forward_together(const Arguments& arguments, const std::function<void()>& meanwhile) {
  ringattn_request* raw = nullptr;
  check(ringattn_forward_array(problem_.ranks, arguments.plans.data(), arguments.args.data(), &raw));
  const Request request(raw);
  check(wait_for(raw, meanwhile), ringattn_request_message(raw));
}

void RingRun::forward_on_threads(const Arguments& arguments, const std::function<void()>& meanwhile) {
  struct Outcome {
    ringattn_status status = RINGATTN_OK;
    std::string message;
  };
  const auto ranks = static_cast<std::size_t>(problem_.ranks);
  std::vector<Outcome> outcomes(ranks);
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t running = ranks;
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Outcome& outcome = outcomes[rank];
      ringattn_request* raw = nullptr;
      outcome.status = ringattn_forward(arguments.plans[rank], &arguments.args[rank], &raw);
      const Request request(raw);
      if (outcome.status == RINGATTN_OK) outcome.status = wait_for(raw, {});
      if (outcome.status < 0) outcome.message = ringattn_last_error();
      const std::lock_guard lock(mutex);
      --running;
      changed.notify_one();
    });
  }
  {
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, std::chrono::milliseconds(kWaitMs), [&] { return running == 0; })) {
      if (meanwhile) meanwhile();
    }
  }
  for (std::thread& thread : threads) thread.join();
  for (const Outcome& outcome : outcomes) check(outcome.status, outcome.message.c_str());
}

double RingRun::forward(Drive drive, const std::function<void()>& meanwhile) {
  const Arguments all = arguments();
  const auto start = std::chrono::steady_clock::now();
  if (drive == Drive::together) {
    forward_together(all, meanwhile);
  } else {
    forward_on_threads(all, meanwhile);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

ringattn_times RingRun::times(int rank) const {
  auto times = RINGATTN_STRUCT(ringattn_times);
  check(ringattn_plan_get_times(plans_[static_cast<std::size_t>(rank)].get(), &times));
  return times;
}

std::vector<RankTrace> RingRun::traces() const {
  std::vector<RankTrace> traces;
  traces.reserve(plans_.size());
  for (int rank = 0; rank < problem_.ranks; ++rank) {
    traces.push_back(read_trace(plans_[static_cast<std::size_t>(rank)].get(), rank));
  }
  return traces;
}

}  // namespace ringattn::tool
