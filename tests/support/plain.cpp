#include "tests/support/plain.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/half.h"
#include "tests/support/plain_blocks.h"
#include "tests/support/spawn.h"

namespace ringattn::support {
namespace {

struct Scratch {
  std::vector<std::int64_t> keys;
  std::vector<float> scores;  // of all keys from the first to the last visible one
  std::vector<float> sum;
};

class Plain {
 public:
  Plain(const ProblemLine& problem, const HostTensor& q, const HostTensor& k, const HostTensor& v)
      : problem_(problem), q_(q, false), k_(k, true), v_(v, false), visibility_(problem) {
    const auto rows = static_cast<std::size_t>(problem.batch * problem.queries * problem.heads);
    result_.o.assign(rows * static_cast<std::size_t>(problem.effective_dim_v()), 0.0f);
    result_.lse.assign(rows, -std::numeric_limits<float>::infinity());
  }

  void query(std::int64_t b, std::int64_t index, Scratch& scratch) {
    visibility_.keys_of(b, index, scratch.keys);
    if (scratch.keys.empty()) return;
    for (std::int64_t h = 0; h < problem_.heads; ++h) head(b, index, h, scratch);
  }

  PlainResult take() { return std::move(result_); }

 private:
  void score(const float* q, const float* k, Scratch& scratch) const {
    const std::int64_t first = scratch.keys.front();
    const std::int64_t count = scratch.keys.back() - first + 1;
    scratch.scores.assign(static_cast<std::size_t>(count), 0.0f);
    float* scores = scratch.scores.data();
    for (std::int64_t d = 0; d < q_.dim(); ++d) {
      const float* row = k + d * problem_.keys + first;
      for (std::int64_t key = 0; key < count; ++key) scores[key] += q[d] * row[key];
    }
    const auto scale = static_cast<float>(problem_.effective_scale());
    for (std::int64_t key = 0; key < count; ++key) scores[key] *= scale;
  }

  void head(std::int64_t b, std::int64_t index, std::int64_t h, Scratch& scratch) {
    const std::int64_t kv_head = h / (problem_.heads / problem_.effective_kv_heads());
    score(q_.block(b, h) + index * q_.dim(), k_.block(b, kv_head), scratch);
    const std::int64_t first = scratch.keys.front();
    const auto score_of = [&](std::int64_t key) -> float& {
      return scratch.scores[static_cast<std::size_t>(key - first)];
    };
    float largest = -std::numeric_limits<float>::infinity();
    for (const std::int64_t key : scratch.keys) largest = std::max(largest, score_of(key));
    float sum_p = 0;
    for (const std::int64_t key : scratch.keys) sum_p += score_of(key) = std::exp(score_of(key) - largest);

    const std::int64_t dim_v = v_.dim();
    scratch.sum.assign(static_cast<std::size_t>(dim_v), 0.0f);
    for (const std::int64_t key : scratch.keys) {
      const float p = round_to(problem_.dtype, score_of(key) / sum_p);
      const float* v = v_.block(b, kv_head) + key * dim_v;
      for (std::int64_t d = 0; d < dim_v; ++d) scratch.sum[static_cast<std::size_t>(d)] += p * v[d];
    }
    const auto row = static_cast<std::size_t>((b * problem_.queries + index) * problem_.heads + h);
    for (std::size_t d = 0; d < static_cast<std::size_t>(dim_v); ++d) {
      result_.o[row * static_cast<std::size_t>(dim_v) + d] =
          round_to(problem_.effective_dtype_out(), scratch.sum[d]);
    }
    result_.lse[row] = largest + std::log(sum_p);
  }

  const ProblemLine& problem_;
  const Blocks q_, k_, v_;
  const Visibility visibility_;
  PlainResult result_;
};

}  // namespace

PlainResult plain_attention(const ProblemLine& problem, const HostTensor& q, const HostTensor& k,
                            const HostTensor& v, int workers) {
  Plain plain(problem, q, k, v);
  const std::int64_t rows = problem.batch * problem.queries;
  std::vector<Scratch> scratch(static_cast<std::size_t>(std::max(1, workers)));
  share(rows, workers, "plain implementation", [&](std::int64_t row, int worker) {
    plain.query(row / problem.queries, row % problem.queries, scratch[static_cast<std::size_t>(worker)]);
  });
  return plain.take();
}

}  // namespace ringattn::support
