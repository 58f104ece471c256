#include "ring_run.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <string>
#include <thread>

#include "error.h"
#include "gather.h"
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

ringattn_tensor Buffer::view_like(int axis, std::int64_t length, const void* data) const {
  std::int64_t shape[4];
  std::copy(std::begin(shape_), std::end(shape_), shape);
  shape[axis] = length;
  return dense_view(dtype_, shape, data);
}

std::size_t Buffer::bytes_like(int axis, std::int64_t length) const {
  std::int64_t count = support::dtype_size(dtype_);
  for (int i = 0; i < 4; ++i) count *= i == axis ? length : shape_[i];
  return static_cast<std::size_t>(count);
}

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

RingRun::RingRun(const support::ProblemLine& problem, bool trace, const Ring& ring)
    : problem_(problem),
      structs_(problem),
      ring_(ring),
      done_(std::make_unique<std::atomic<double>[]>(static_cast<std::size_t>(problem.ranks))) {
  std::vector<ringattn_comm*> comms;
  std::vector<ringattn_plan_desc> descs;
  for (std::size_t place = 0; place < ring.ranks.size(); ++place) {
    comms.push_back(ring.comms[place].get());
    descs.push_back(structs_.desc(ring.ranks[place]));
    if (trace) descs.back().flags |= RINGATTN_PLAN_TRACE;
  }
  std::vector<ringattn_plan*> plans(comms.size());
  check(ringattn_plan_create_array(static_cast<std::int32_t>(comms.size()), comms.data(), descs.data(),
                                   plans.data()));
  for (ringattn_plan* plan : plans) plans_.emplace_back(plan);
  for (std::size_t place = 0; place < plans_.size(); ++place) allocate(place);
}

std::int64_t RingRun::local_rows(int axis, int rank) const {
  std::int64_t longest = 0;
  for (std::int64_t row = 0; row < problem_.batch; ++row) {
    std::int64_t length = 0;
    check(ringattn_plan_local_length(plans_.front().get(), axis, rank, row, structs_.call(), &length));
    longest = std::max(longest, length);
  }
  return longest;
}

void RingRun::allocate(std::size_t place) {
  auto info = RINGATTN_STRUCT(ringattn_plan_info);
  check(ringattn_plan_get_info(plans_[place].get(), structs_.call(), &info));
  const std::int64_t batch = problem_.batch, q = info.local_q, k = info.local_k;
  Shards shards;
  shards.q = Buffer(problem_.dtype, batch, q, problem_.heads, problem_.dim);
  shards.k = Buffer(problem_.dtype, batch, k, problem_.effective_kv_heads(), problem_.dim);
  shards.v = Buffer(problem_.dtype, batch, k, problem_.effective_kv_heads(), problem_.effective_dim_v());
  shards.o = Buffer(problem_.effective_dtype_out(), batch, q, problem_.heads, problem_.effective_dim_v());
  shards.lse = Buffer(RINGATTN_DTYPE_F32, batch, problem_.heads, q, 1);
  if (problem_.backward) {
    const ringattn_dtype dtype = problem_.effective_dtype_grad();
    const std::int64_t kv_heads = problem_.effective_kv_heads(), dim_v = problem_.effective_dim_v();
    shards.d_o = Buffer(problem_.effective_dtype_out(), batch, q, problem_.heads, dim_v);
    shards.d_lse = Buffer(RINGATTN_DTYPE_F32, batch, problem_.heads, q, 1);
    shards.d_q = Buffer(dtype, batch, q, problem_.heads, problem_.dim);
    shards.d_k = Buffer(dtype, batch, k, kv_heads, problem_.dim);
    shards.d_v = Buffer(dtype, batch, k, kv_heads, dim_v);
  }
  shards_.push_back(std::move(shards));
}

void RingRun::share(int axis, const ringattn_tensor& global, Buffer Shards::*local, Form form) {
  for (std::size_t place = 0; place < plans_.size(); ++place) {
    const ringattn_tensor dense = (shards_[place].*local).view();
    const ringattn_tensor view = form == Form::lse ? token_view(dense) : dense;
    check(ringattn_shard(plans_[place].get(), axis, ring_.ranks[place], structs_.call(), &global, &view));
  }
}

void RingRun::collect(int axis, const ringattn_tensor& global, Buffer Shards::*local, Form form) const {
  if (!ring_.is_whole()) return collect_from_processes(axis, global, shards_.front().*local, form);
  for (std::size_t place = 0; place < plans_.size(); ++place) {
    const ringattn_tensor dense = (shards_[place].*local).view();
    const ringattn_tensor view = form == Form::lse ? token_view(dense) : dense;
    check(ringattn_unshard(plans_[place].get(), axis, ring_.ranks[place], structs_.call(), &view, &global));
  }
}

// Every process is one rank, and any rank's plan knows where the tokens of all others belong.
void RingRun::collect_from_processes(int axis, const ringattn_tensor& global, const Buffer& own,
                                     Form form) const {
  if (problem_.batch == 0) return;
  const int seq = form == Form::lse ? 2 : 1;
  std::vector<std::int64_t> rows;
  std::vector<std::size_t> sizes;
  for (int rank = 0; rank < ring_.world; ++rank) {
    rows.push_back(local_rows(axis, rank));
    sizes.push_back(own.bytes_like(seq, rows.back()));
  }
  const auto all = gather_bytes(ring_.comms.front().get(), own.bytes(), sizes);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const ringattn_tensor dense = own.view_like(seq, rows[rank], all[rank].data());
    const ringattn_tensor view = form == Form::lse ? token_view(dense) : dense;
    check(ringattn_unshard(plans_.front().get(), axis, static_cast<int>(rank), structs_.call(), &view,
                           &global));
  }
}

void RingRun::scatter(const ringattn_tensor& q, const ringattn_tensor& k, const ringattn_tensor& v) {
  share(RINGATTN_AXIS_QUERY, q, &Shards::q);
  share(RINGATTN_AXIS_KEY, k, &Shards::k);
  share(RINGATTN_AXIS_KEY, v, &Shards::v);
}

void RingRun::gather(const ringattn_tensor& o, const ringattn_tensor& lse) const {
  if (ring_
          .reports()) {  // padding belongs to no rank: its rows are O = 0, as the buffer begins, and lse = -inf
    std::fill_n(static_cast<float*>(lse.data), lse.shape[0] * lse.shape[1] * lse.shape[2],
                -std::numeric_limits<float>::infinity());
  }
  collect(RINGATTN_AXIS_QUERY, o, &Shards::o);
  collect(RINGATTN_AXIS_QUERY, token_view(lse), &Shards::lse, Form::lse);
}

void RingRun::scatter_gradients(const ringattn_tensor& d_o, const ringattn_tensor* d_lse) {
  share(RINGATTN_AXIS_QUERY, d_o, &Shards::d_o);
  with_d_lse_ = d_lse != nullptr;
  if (with_d_lse_) share(RINGATTN_AXIS_QUERY, token_view(*d_lse), &Shards::d_lse, Form::lse);
}

void RingRun::gather_gradients(const ringattn_tensor& d_q, const ringattn_tensor& d_k,
                               const ringattn_tensor& d_v) const {
  collect(RINGATTN_AXIS_QUERY, d_q, &Shards::d_q);
  collect(RINGATTN_AXIS_KEY, d_k, &Shards::d_k);
  collect(RINGATTN_AXIS_KEY, d_v, &Shards::d_v);
}

RingRun::Views::Views(const Shards& shards)
    : q(shards.q.view()),
      k(shards.k.view()),
      v(shards.v.view()),
      o(shards.o.view()),
      lse(shards.lse.view()),
      d_o(shards.d_o.view()),
      d_lse(shards.d_lse.view()),
      d_q(shards.d_q.view()),
      d_k(shards.d_k.view()),
      d_v(shards.d_v.view()) {}

std::vector<RingRun::Views> RingRun::views() const {
  return std::vector<Views>(shards_.begin(), shards_.end());
}

std::vector<ringattn_plan*> RingRun::plans() const {
  std::vector<ringattn_plan*> plans;
  for (const Plan& plan : plans_) plans.push_back(plan.get());
  return plans;
}

void RingRun::run_together(const StartAll& start, const std::function<void()>& meanwhile) {
  ringattn_request* raw = nullptr;
  check(start(&raw));
  const Request request(raw);
  check(wait_for(raw, meanwhile), ringattn_request_message(raw));
}

void RingRun::run_on_threads(const StartOne& start, const std::function<void()>& meanwhile) {
  struct Outcome {
    ringattn_status status = RINGATTN_OK;
    std::string message;
  };
  const std::size_t ranks = plans_.size();
  std::vector<Outcome> outcomes(ranks);
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t running = ranks;
  std::vector<std::thread> threads;
  for (std::size_t place = 0; place < ranks; ++place) {
    threads.emplace_back([&, place] {
      Outcome& outcome = outcomes[place];
      ringattn_request* raw = nullptr;
      outcome.status = start(place, &raw);
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

double RingRun::execute(Drive drive, const StartAll& all, const StartOne& one,
                        const std::function<void()>& meanwhile) {
  for (const int rank : ring_.ranks) done_[static_cast<std::size_t>(rank)] = 0;
  const auto start = std::chrono::steady_clock::now();
  if (drive == Drive::together) {
    run_together(all, meanwhile);
  } else {
    run_on_threads(one, meanwhile);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void RingRun::hear_progress(void* user, std::int32_t rank, std::int32_t done, std::int32_t total) {
  const auto& run = *static_cast<const RingRun*>(user);
  run.done_[static_cast<std::size_t>(rank)] = total > 0 ? static_cast<double>(done) / total : 1;
}

double RingRun::part_done() const {
  double sum = 0;
  for (const int rank : ring_.ranks) sum += done_[static_cast<std::size_t>(rank)];
  return sum / here();
}

double RingRun::forward(Drive drive, const std::function<void()>& meanwhile) {
  const std::vector<Views> tensors = views();
  const std::vector<ringattn_plan*> plans = this->plans();
  std::vector<ringattn_forward_args> args;
  for (const Views& rank : tensors) {
    auto one = RINGATTN_STRUCT(ringattn_forward_args);
    one.q = &rank.q;
    one.k = &rank.k;
    one.v = &rank.v;
    one.o = &rank.o;
    one.lse = &rank.lse;
    one.call = structs_.call();
    one.progress = hear_progress;
    one.progress_user = this;
    args.push_back(one);
  }
  return execute(
      drive,
      [&](ringattn_request** request) {
        return ringattn_forward_array(here(), plans.data(), args.data(), request);
      },
      [&](std::size_t place, ringattn_request** request) {
        return ringattn_forward(plans[place], &args[place], request);
      },
      meanwhile);
}

double RingRun::backward(Drive drive, const std::function<void()>& meanwhile) {
  const std::vector<Views> tensors = views();
  const std::vector<ringattn_plan*> plans = this->plans();
  std::vector<ringattn_backward_args> args;
  for (const Views& rank : tensors) {
    auto one = RINGATTN_STRUCT(ringattn_backward_args);
    one.q = &rank.q;
    one.k = &rank.k;
    one.v = &rank.v;
    one.o = &rank.o;
    one.lse = &rank.lse;
    one.d_o = &rank.d_o;
    one.d_lse = with_d_lse_ ? &rank.d_lse : nullptr;
    one.d_q = &rank.d_q;
    one.d_k = &rank.d_k;
    one.d_v = &rank.d_v;
    one.call = structs_.call();
    one.progress = hear_progress;
    one.progress_user = this;
    args.push_back(one);
  }
  return execute(
      drive,
      [&](ringattn_request** request) {
        return ringattn_backward_array(here(), plans.data(), args.data(), request);
      },
      [&](std::size_t place, ringattn_request** request) {
        return ringattn_backward(plans[place], &args[place], request);
      },
      meanwhile);
}

std::vector<RankTrace> RingRun::traces() const {
  std::vector<RankTrace> traces;
  traces.reserve(plans_.size());
  for (std::size_t place = 0; place < plans_.size(); ++place) {
    traces.push_back(read_trace(plans_[place].get(), ring_.ranks[place]));
  }
  return traces;
}

}  // namespace ringattn::tool
