#include "tests/support/plain.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/half.h"
#include "tests/support/spawn.h"

namespace ringattn::support {
namespace {

// Values of one tensor as [batch, head] blocks of `seq` rows in fp32; keys are transposed so that many keys advance
// together through the dims while each score is still summed in the order of the dims.
class Blocks {
 public:
  Blocks(const HostTensor& tensor, bool transposed)
      : seq_(tensor.shape(1)), heads_(tensor.shape(2)), dim_(tensor.shape(3)) {
    values_.resize(static_cast<std::size_t>(tensor.size()));
    for (std::int64_t b = 0; b < tensor.shape(0); ++b) {
      for (std::int64_t h = 0; h < heads_; ++h) {
        float* block = values_.data() + (b * heads_ + h) * seq_ * dim_;
        for (std::int64_t s = 0; s < seq_; ++s) {
          for (std::int64_t d = 0; d < dim_; ++d) {
            block[transposed ? d * seq_ + s : s * dim_ + d] = static_cast<float>(tensor.get(b, s, h, d));
          }
        }
      }
    }
  }
  const float* block(std::int64_t b, std::int64_t h) const {
    return values_.data() + (b * heads_ + h) * seq_ * dim_;
  }
  std::int64_t dim() const { return dim_; }

 private:
  std::int64_t seq_, heads_, dim_;
  std::vector<float> values_;
};

struct Scratch {
  std::vector<std::int64_t> keys;
  std::vector<float> scores;  // of all keys from the first to the last visible one
  std::vector<float> sum;
};

class Plain {
 public:
  Plain(const ProblemLine& problem, const HostTensor& q, const HostTensor& k, const HostTensor& v)
      : problem_(problem), q_(q, false), k_(k, true), v_(v, false) {
    const auto rows = static_cast<std::size_t>(problem.batch * problem.queries * problem.heads);
    result_.o.assign(rows * static_cast<std::size_t>(problem.effective_dim_v()), 0.0f);
    result_.lse.assign(rows, -std::numeric_limits<float>::infinity());
    for (std::int64_t b = 0; b < problem.batch; ++b) {
      query_places_.push_back(query_places(problem, b));
      key_places_.push_back(key_places(problem, b));
    }
  }

  void query(std::int64_t b, std::int64_t index, Scratch& scratch) {
    const TokenPlace place = query_places_[static_cast<std::size_t>(b)][static_cast<std::size_t>(index)];
    const std::vector<TokenPlace>& keys = key_places_[static_cast<std::size_t>(b)];
    scratch.keys.clear();
    for (std::int64_t key = 0; key < problem_.keys; ++key) {
      if (visible(problem_, place, keys[static_cast<std::size_t>(key)])) scratch.keys.push_back(key);
    }
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
  std::vector<std::vector<TokenPlace>> query_places_, key_places_;
  PlainResult result_;
};

}  // namespace

PlainResult plain_attention(const ProblemLine& problem, const HostTensor& q, const HostTensor& k,
                            const HostTensor& v, int workers) {
  Plain plain(problem, q, k, v);
  const std::int64_t rows = problem.batch * problem.queries;
  const auto run = [&](int worker) {
    Scratch scratch;
    for (std::int64_t row = worker; row < rows; row += workers) {
      plain.query(row / problem.queries, row % problem.queries, scratch);
    }
  };
  if (workers <= 1) {
    run(0);
  } else {
    run_threads(workers, run, 0, "plain implementation");
  }
  return plain.take();
}

}  // namespace ringattn::support
