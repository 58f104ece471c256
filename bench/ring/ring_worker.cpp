// One rank of `./dev bench ring`: how much of the transfer a ring step hides. Started by a launcher; rank 0 prints one line of
// JSON a case. In turns, so that what the machine does meanwhile meets both: *both* is the ring as it is, *compute* the same
// tiles on keys that are all here, *transfer* the same ring with one query a rank.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ringattn.h"

namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

void must(ringattn_status status, const char* what) {
  if (status == RINGATTN_OK) return;
  fmt::print(stderr, "{}: {}: {}\n", what, ringattn_status_name(status), ringattn_last_error());
  std::exit(3);
}

struct Shape {
  std::int64_t tokens = 0;  // per rank
  std::int64_t heads = 8, kv_heads = 8, dim = 64;
};

// One plan of one rank with its tensors: queries are zero, so that O is the mean of V, whose token i has i in channel 0.
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

  // Seconds of one forward, which must be right.
  double run() {
    auto args = RINGATTN_STRUCT(ringattn_forward_args);
    args.q = &q_;
    args.k = args.v = &k_;
    args.o = &o_;
    const auto start = Clock::now();
    must(ringattn_forward(plan_, &args, nullptr), "forward");
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const float error = info_.local_q == 0 ? 0 : static_cast<const float*>(o_.data)[0] - expected_;
    if (!(std::fabs(error) < 1e-3f)) {
      fmt::print(stderr, "a wrong result, by {}: nothing is measured\n", error);
      std::exit(1);
    }
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

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The median with its 95 % interval, by the order of the values (exact for any distribution).
Json with_interval(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const auto off = static_cast<std::size_t>(std::ceil(n / 2 - 0.98 * std::sqrt(n)));
  const std::size_t low = std::max<std::size_t>(off, 1) - 1;
  return {{"median", median(values)}, {"low", values[low]}, {"high", values[values.size() - 1 - low]}};
}

struct Options {
  int pairs = 31;
  std::vector<Shape> shapes;
};

// tokens[:heads:kv_heads:dim], ...
Options read_options(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word.rfind("pairs=", 0) == 0) {
      options.pairs = std::max(3, std::atoi(word.c_str() + 6));
      continue;
    }
    Shape shape;
    long long tokens = 0, heads = shape.heads, kv_heads = shape.kv_heads, dim = shape.dim;
    const int got = std::sscanf(word.c_str(), "%lld:%lld:%lld:%lld", &tokens, &heads, &kv_heads, &dim);
    if (got < 1 || tokens < 1) {
      fmt::print(stderr, "\"{}\": expected pairs=N or TOKENS[:HEADS:KV_HEADS:DIM]\n", word);
      std::exit(2);
    }
    options.shapes.push_back({tokens, heads, kv_heads, dim});
  }
  return options;
}

void measure(ringattn_comm* ring, ringattn_comm* alone, std::int32_t world, const Shape& shape, int pairs,
             bool print) {
  const std::int64_t keys = shape.tokens * world;
  Case both(ring, shape, keys, keys), transfer(ring, shape, world, keys),
      compute(alone, shape, shape.tokens, keys);
  for (int i = 0; i < 2; ++i) both.run(), transfer.run(), compute.run();  // warm
  std::vector<double> both_s, compute_s, transfer_s, ratio, exposed, agree;
  for (int i = 0; i < pairs; ++i) {
    both_s.push_back(both.run());
    exposed.push_back(static_cast<double>(both.times().exposed_wait_ns) * 1e-9);
    agree.push_back(static_cast<double>(both.times().agree_ns) * 1e-9);
    transfer_s.push_back(transfer.run());  // all ranks end together, and start the next one so
    compute_s.push_back(compute.run());
    ratio.push_back(both_s.back() / compute_s.back());
  }
  if (!print) return;
  const ringattn_plan_info& info = both.info();
  const double rate = info.flops / median(compute_s);
  const double bytes = static_cast<double>(info.bytes_received);
  const Json line = {{"ranks", world},
                     {"tokens_per_rank", shape.tokens},
                     {"heads", shape.heads},
                     {"kv_heads", shape.kv_heads},
                     {"dim", shape.dim},
                     {"pairs", pairs},
                     {"both_s", median(both_s)},
                     {"compute_s", median(compute_s)},
                     {"transfer_s", median(transfer_s)},
                     {"exposed_wait_s", median(exposed)},
                     {"agree_s", median(agree)},
                     {"both_over_compute", with_interval(ratio)},
                     {"bytes_received", bytes},
                     {"flops", info.flops},
                     {"compute_flops_per_s", rate},
                     {"link_bytes_per_s", bytes / median(transfer_s)},
                     {"overlap_flops_per_byte", info.overlap_flops_per_byte}};
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** words) {
  const Options options = read_options(count, words);
  auto context_desc = RINGATTN_STRUCT(ringattn_context_desc);
  context_desc.threads = 1;
  ringattn_context* context = nullptr;
  must(ringattn_context_create(&context_desc, &context), "context");
  auto desc = RINGATTN_STRUCT(ringattn_comm_desc);
  ringattn_comm *ring = nullptr, *alone = nullptr;
  must(ringattn_comm_create_from_environment(context, &desc, &ring), "comm");
  std::int32_t rank = 0, world = 0;
  must(ringattn_comm_rank(ring, &rank, &world), "rank");
  desc.world_size = 1;
  desc.transport = "local";
  must(ringattn_comm_create_local(context, &desc, &alone), "comm of one rank");
  for (const Shape& shape : options.shapes) measure(ring, alone, world, shape, options.pairs, rank == 0);
  ringattn_comm_destroy(alone);
  ringattn_comm_destroy(ring);
  ringattn_context_destroy(context);
  return 0;
}
