// What the rows of `./dev bench ring` share: one plan of one rank with its tensors, and where its figures go.
#pragma once
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "ringattn.h"

namespace ringattn::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

inline void must(ringattn_status status, const char* what) {
  if (status == RINGATTN_OK) return;
  fmt::print(stderr, "{}: {}: {}\n", what, ringattn_status_name(status), ringattn_last_error());
  std::exit(3);
}

// The calling thread on one core. After the context is made: the library counts the cores that it may use then, and a
// rank on a core of its own is to wait as it does where every rank has one.
inline void stay_on_core(int number) {
  cpu_set_t all, one;
  CPU_ZERO(&all);
  if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) == 0) return;
  int nth = number % CPU_COUNT(&all), core = 0;
  for (; !CPU_ISSET(core, &all) || nth-- > 0;) ++core;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  sched_setaffinity(0, sizeof one, &one);
}

struct Shape {
  std::int64_t tokens = 0;  // per rank
  std::int64_t heads = 8, kv_heads = 8, dim = 64;
};

// Queries are zero, so that O is the mean of V, whose token i has i in channel 0.
class Case {
 public:
  Case(ringattn_comm* comm, const Shape& shape, std::int64_t queries, std::int64_t keys) {
    auto desc = RINGATTN_STRUCT(ringattn_plan_desc);
    desc.batch = 1;
    desc.seq_q = queries;
    desc.seq_k = keys;
    desc.heads = static_cast<std::int32_t>(shape.heads);
    desc.kv_heads = static_cast<std::int32_t>(shape.kv_heads);
    desc.head_dim_qk = static_cast<std::int32_t>(shape.dim);
    desc.dtype = RINGATTN_DTYPE_F32;
    desc.query_cut = RINGATTN_QUERY_CUT_BY_INDEX;
    must(ringattn_plan_create(comm, &desc, &plan_), "plan");
    must(ringattn_plan_get_info(plan_, nullptr, &info_), "plan info");
    q_ = tensor(info_.local_q, shape.heads, shape.dim);
    k_ = tensor(info_.local_k, shape.kv_heads, shape.dim);
    o_ = tensor(info_.local_q, shape.heads, shape.dim);
    const std::int64_t first = info_.rank * info_.local_k, row = shape.kv_heads * shape.dim;
    for (std::int64_t i = 0; i < info_.local_k; ++i) {
      for (std::int64_t h = 0; h < shape.kv_heads; ++h)
        static_cast<float*>(k_.data)[i * row + h * shape.dim] =
            static_cast<float>(first + i) / static_cast<float>(keys);
    }
    expected_ = 0.5f - 0.5f / static_cast<float>(keys);
  }
  ~Case() { ringattn_plan_destroy(plan_); }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  void run() {
    auto args = RINGATTN_STRUCT(ringattn_forward_args);
    args.q = &q_;
    args.k = args.v = &k_;
    args.o = &o_;
    must(ringattn_forward(plan_, &args, nullptr), "forward");
  }
  // Nothing wrong is measured.
  void check() const {
    const float error = info_.local_q == 0 ? 0 : static_cast<const float*>(o_.data)[0] - expected_;
    if (std::fabs(error) < 1e-3f) return;
    fmt::print(stderr, "a wrong result, by {}: nothing is measured\n", error);
    std::exit(1);
  }
  // Seconds of one forward.
  double time() {
    const auto start = Clock::now();
    run();
    const double seconds = seconds_since(start);
    check();
    return seconds;
  }
  const ringattn_plan_info& info() const { return info_; }
  ringattn_times times() const {
    auto times = RINGATTN_STRUCT(ringattn_times);
    must(ringattn_plan_get_times(plan_, &times), "times");
    return times;
  }

 private:
  ringattn_tensor tensor(std::int64_t seq, std::int64_t heads, std::int64_t dim) {
    auto one = RINGATTN_STRUCT(ringattn_tensor);
    const std::int64_t shape[4] = {1, seq, heads, dim};
    std::copy(shape, shape + 4, one.shape);
    one.dtype = RINGATTN_DTYPE_F32;
    memory_.push_back(std::make_unique<std::vector<float>>(static_cast<std::size_t>(seq * heads * dim + 1)));
    one.data = memory_.back()->data();
    return one;
  }

  ringattn_plan* plan_ = nullptr;
  ringattn_plan_info info_ = RINGATTN_STRUCT(ringattn_plan_info);
  std::vector<std::unique_ptr<std::vector<float>>> memory_;
  ringattn_tensor q_, k_, o_;
  float expected_ = 0;
};

// A comm of one rank beside the ring's.
inline ringattn_comm* create_alone(ringattn_context* context) {
  auto desc = RINGATTN_STRUCT(ringattn_comm_desc);
  desc.world_size = 1;
  desc.transport = "local";
  ringattn_comm* alone = nullptr;
  must(ringattn_comm_create_local(context, &desc, &alone), "comm of one rank");
  return alone;
}

}  // namespace ringattn::bench
