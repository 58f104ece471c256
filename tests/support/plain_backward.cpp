#include "tests/support/plain_backward.h"

#include <algorithm>
#include <cmath>

#include "tests/support/half.h"
#include "tests/support/plain_blocks.h"
#include "tests/support/spawn.h"
#include "tests/support/visibility.h"

namespace ringattn::support {
namespace {

// products[key] = row . (row `first + key` of the transposed block), each summed in the order of the dims.
void multiply(const float* row, std::int64_t dim, const float* transposed, std::int64_t keys,
              std::int64_t first, std::vector<float>& products) {
  std::fill(products.begin(), products.end(), 0.0f);
  const auto count = static_cast<std::int64_t>(products.size());
  for (std::int64_t d = 0; d < dim; ++d) {
    const float* values = transposed + d * keys + first;
    for (std::int64_t key = 0; key < count; ++key) {
      products[static_cast<std::size_t>(key)] += row[d] * values[key];
    }
  }
}

void add(float factor, const float* values, std::int64_t dim, float* sum) {
  for (std::int64_t d = 0; d < dim; ++d) sum[d] += factor * values[d];
}

struct Scratch {
  std::vector<std::int64_t> keys;
  std::vector<float> scores, d_p;  // of all keys from the first to the last visible one
};

class Backward {
 public:
  Backward(const ProblemLine& problem, const HostTensor& q, const HostTensor& k, const HostTensor& v,
           const PlainResult& forward, const HostTensor& d_o, const HostTensor* d_lse)
      : problem_(problem),
        scale_(static_cast<float>(problem.effective_scale())),
        kv_heads_(problem.effective_kv_heads()),
        q_(q, false),
        k_(k, false),
        k_transposed_(k, true),
        v_transposed_(v, true),
        d_o_(d_o, false),
        d_lse_(d_lse),
        forward_(forward),
        visibility_(problem) {
    result_.d_q.assign(static_cast<std::size_t>(q.size()), 0.0f);
    result_.d_k.assign(static_cast<std::size_t>(k.size()), 0.0f);
    result_.d_v.assign(static_cast<std::size_t>(v.size()), 0.0f);
  }

  // All query heads of one kv head for one query.
  void query(std::int64_t b, std::int64_t kv_head, std::int64_t index, Scratch& scratch) {
    visibility_.keys_of(b, index, scratch.keys);
    if (scratch.keys.empty()) return;
    const std::int64_t first = scratch.keys.front();
    scratch.scores.resize(static_cast<std::size_t>(scratch.keys.back() - first + 1));
    scratch.d_p.resize(scratch.scores.size());
    const std::int64_t group = problem_.heads / kv_heads_;
    for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      const float* q = q_.block(b, h) + index * q_.dim();
      const float* d_o = d_o_.block(b, h) + index * d_o_.dim();
      multiply(q, q_.dim(), k_transposed_.block(b, kv_head), problem_.keys, first, scratch.scores);
      multiply(d_o, d_o_.dim(), v_transposed_.block(b, kv_head), problem_.keys, first, scratch.d_p);
      head(b, kv_head, index, h, scratch);
    }
  }

  // dQ and dK still lack the scale, and everything its one rounding.
  PlainGradients take() {
    const ringattn_dtype dtype = problem_.effective_dtype_grad();
    for (float& value : result_.d_q) value = round_to(dtype, scale_ * value);
    for (float& value : result_.d_k) value = round_to(dtype, scale_ * value);
    for (float& value : result_.d_v) value = round_to(dtype, value);
    return std::move(result_);
  }

 private:
  void head(std::int64_t b, std::int64_t kv_head, std::int64_t index, std::int64_t h, Scratch& scratch) {
    const std::int64_t dim = q_.dim(), dim_v = d_o_.dim();
    const float* q = q_.block(b, h) + index * dim;
    const float* d_o = d_o_.block(b, h) + index * dim_v;
    const auto row = static_cast<std::size_t>((b * problem_.queries + index) * problem_.heads + h);
    const float* o = forward_.o.data() + row * static_cast<std::size_t>(dim_v);
    float delta = 0;
    for (std::int64_t d = 0; d < dim_v; ++d) delta += d_o[d] * o[d];
    if (d_lse_ != nullptr) delta -= static_cast<float>(d_lse_->get(b, h, index, 0));

    float* d_q = result_.d_q.data() + row * static_cast<std::size_t>(dim);
    for (const std::int64_t key : scratch.keys) {
      const auto i = static_cast<std::size_t>(key - scratch.keys.front());
      const float p = std::exp(scale_ * scratch.scores[i] - forward_.lse[row]);
      const float d_s = round_to(problem_.dtype, p * (scratch.d_p[i] - delta));
      const std::int64_t key_row = (b * problem_.keys + key) * kv_heads_ + kv_head;
      add(round_to(problem_.dtype, p), d_o, dim_v, result_.d_v.data() + key_row * dim_v);
      add(d_s, k_.block(b, kv_head) + key * dim, dim, d_q);
      add(d_s, q, dim, result_.d_k.data() + key_row * dim);
    }
  }

  const ProblemLine& problem_;
  const float scale_;
  const std::int64_t kv_heads_;
  const Blocks q_, k_, k_transposed_, v_transposed_, d_o_;
  const HostTensor* d_lse_;
  const PlainResult& forward_;
  const Visibility visibility_;
  PlainGradients result_;
};

}  // namespace

PlainGradients plain_backward(const ProblemLine& problem, const HostTensor& q, const HostTensor& k,
                              const HostTensor& v, const PlainResult& forward, const HostTensor& d_o,
                              const HostTensor* d_lse, int workers) {
  Backward backward(problem, q, k, v, forward, d_o, d_lse);
  const std::int64_t kv_heads = problem.effective_kv_heads();
  std::vector<Scratch> scratch(static_cast<std::size_t>(std::max(1, workers)));
  share(problem.batch * kv_heads, workers, "plain gradients", [&](std::int64_t item, int worker) {
    for (std::int64_t index = 0; index < problem.queries; ++index) {
      backward.query(item / kv_heads, item % kv_heads, index, scratch[static_cast<std::size_t>(worker)]);
    }
  });
  return backward.take();
}

}  // namespace ringattn::support
