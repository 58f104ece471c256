#include "tests/support/oracle.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/support/spawn.h"

namespace ringattn::support {
namespace {

constexpr std::int64_t kLanes = 8;  // independent sums, so that the compiler can use vectors
using Lanes = std::array<double, kLanes>;

// Rows of [batch, head, seq] in double, each padded with zeros to a multiple of kLanes.
class Rows {
 public:
  explicit Rows(const HostTensor& tensor)
      : seq_(tensor.shape(1)),
        heads_(tensor.shape(2)),
        width_((tensor.shape(3) + kLanes - 1) / kLanes * kLanes),
        values_(static_cast<std::size_t>(tensor.shape(0) * seq_ * heads_ * width_), 0.0) {
    for (std::int64_t b = 0; b < tensor.shape(0); ++b) {
      for (std::int64_t h = 0; h < heads_; ++h) {
        for (std::int64_t s = 0; s < seq_; ++s) {
          double* row = values_.data() + ((b * heads_ + h) * seq_ + s) * width_;
          for (std::int64_t d = 0; d < tensor.shape(3); ++d) row[d] = tensor.get(b, s, h, d);
        }
      }
    }
  }
  const double* row(std::int64_t b, std::int64_t h, std::int64_t s) const {
    return values_.data() + ((b * heads_ + h) * seq_ + s) * width_;
  }
  std::int64_t width() const { return width_; }

 private:
  std::int64_t seq_, heads_, width_;
  std::vector<double> values_;
};

double total(const Lanes& lanes) {
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// Dot product and the sum of the products' absolute values.
void dot(const double* a, const double* b, std::int64_t width, double& sum, double& absolute) {
  Lanes sums{}, absolutes{};
  for (std::int64_t d = 0; d < width; d += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const double product = a[d + lane] * b[d + lane];
      sums[static_cast<std::size_t>(lane)] += product;
      absolutes[static_cast<std::size_t>(lane)] += std::fabs(product);
    }
  }
  sum = total(sums);
  absolute = total(absolutes);
}

// One worker's scratch.
struct Scratch {
  std::vector<std::int64_t> keys;  // visible ones
  std::vector<double> scores;
  std::vector<double> sum_pv, sum_abs_pv;
};

class Oracle {
 public:
  Oracle(const ProblemLine& problem, const HostTensor& q, const HostTensor& k, const HostTensor& v)
      : problem_(problem), scale_(problem.effective_scale()), q_(q), k_(k), v_(v) {
    result_.queries = problem.queries;
    result_.heads = problem.heads;
    result_.dim_v = problem.effective_dim_v();
    const auto rows = static_cast<std::size_t>(problem.batch * problem.queries * problem.heads);
    result_.o.assign(rows * static_cast<std::size_t>(result_.dim_v), 0.0);
    result_.abs_pv = result_.o;
    result_.lse.assign(rows, -std::numeric_limits<double>::infinity());
    result_.abs_score.assign(rows, 0.0);
    result_.row_max = result_.log_sum = result_.abs_score;
    for (std::int64_t b = 0; b < problem.batch; ++b) {
      query_places_.push_back(query_places(problem, b));
      key_places_.push_back(key_places(problem, b));
    }
  }

  // All heads of one query.
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

  OracleResult take() { return std::move(result_); }

 private:
  void head(std::int64_t b, std::int64_t index, std::int64_t h, Scratch& scratch) {
    const std::int64_t kv_head = h / (problem_.heads / problem_.effective_kv_heads());
    const std::size_t row = result_.row(b, index, h);
    double largest = -std::numeric_limits<double>::infinity();
    double& abs_score = result_.abs_score[row];
    scratch.scores.resize(scratch.keys.size());
    for (std::size_t i = 0; i < scratch.keys.size(); ++i) {
      double sum = 0, absolute = 0;
      dot(q_.row(b, h, index), k_.row(b, kv_head, scratch.keys[i]), q_.width(), sum, absolute);
      scratch.scores[i] = scale_ * sum;
      largest = std::max(largest, scratch.scores[i]);
      abs_score = std::max(abs_score, scale_ * absolute);
    }
    const std::int64_t width = v_.width();
    scratch.sum_pv.assign(static_cast<std::size_t>(width), 0.0);
    scratch.sum_abs_pv = scratch.sum_pv;
    double sum_p = 0;
    for (std::size_t i = 0; i < scratch.keys.size(); ++i) {
      const double p = std::exp(scratch.scores[i] - largest);
      const double* v = v_.row(b, kv_head, scratch.keys[i]);
      sum_p += p;
      for (std::int64_t d = 0; d < width; ++d) {
        scratch.sum_pv[static_cast<std::size_t>(d)] += p * v[d];
        scratch.sum_abs_pv[static_cast<std::size_t>(d)] += std::fabs(p * v[d]);
      }
    }
    for (std::int64_t d = 0; d < result_.dim_v; ++d) {
      const std::size_t element = result_.element(b, index, h, d);
      result_.o[element] = scratch.sum_pv[static_cast<std::size_t>(d)] / sum_p;
      result_.abs_pv[element] = scratch.sum_abs_pv[static_cast<std::size_t>(d)] / sum_p;
    }
    result_.row_max[row] = largest;
    result_.log_sum[row] = std::log(sum_p);
    result_.lse[row] = largest + result_.log_sum[row];
  }

  const ProblemLine& problem_;
  const double scale_;
  const Rows q_, k_, v_;
  std::vector<std::vector<TokenPlace>> query_places_, key_places_;  // [batch row]
  OracleResult result_;
};

// Lengths of the sequences of one row of the batch: query lengths or key lengths.
std::vector<std::int64_t> sequence_lengths(const ProblemLine& problem, std::int64_t batch_row, bool of_keys) {
  if (!problem.docs) return {of_keys ? problem.keys : problem.queries};
  const std::vector<std::int64_t>& lengths = of_keys && problem.docs_k ? *problem.docs_k : *problem.docs;
  if (problem.batch <= 1) return lengths;
  if (static_cast<std::size_t>(batch_row) >= lengths.size()) return {};
  return {lengths[static_cast<std::size_t>(batch_row)]};
}

std::vector<TokenPlace> places(std::int64_t row_length, const std::vector<std::int64_t>& lengths,
                               const std::function<std::int64_t(std::size_t)>& first_position) {
  std::vector<TokenPlace> tokens(static_cast<std::size_t>(row_length), TokenPlace{-1, 0});
  std::size_t token = 0;
  for (std::size_t sequence = 0; sequence < lengths.size(); ++sequence) {
    for (std::int64_t i = 0; i < lengths[sequence] && token < tokens.size(); ++i, ++token) {
      tokens[token] = {static_cast<std::int64_t>(sequence), first_position(sequence) + i};
    }
  }
  return tokens;
}

}  // namespace

std::vector<TokenPlace> query_places(const ProblemLine& problem, std::int64_t batch_row) {
  const std::vector<std::int64_t> queries = sequence_lengths(problem, batch_row, false);
  const std::vector<std::int64_t> keys = sequence_lengths(problem, batch_row, true);
  return places(problem.queries, queries, [&](std::size_t sequence) {
    return problem.offset ? *problem.offset : keys[sequence] - queries[sequence];
  });
}

std::vector<TokenPlace> key_places(const ProblemLine& problem, std::int64_t batch_row) {
  return places(problem.keys, sequence_lengths(problem, batch_row, true), [](std::size_t) { return 0; });
}

bool visible(const ProblemLine& problem, const TokenPlace& query, const TokenPlace& key) {
  if (query.sequence < 0 || query.sequence != key.sequence) return false;
  if ((problem.mask & RINGATTN_MASK_CAUSAL) != 0 && key.position > query.position) return false;
  if ((problem.mask & RINGATTN_MASK_WINDOW_LEFT) != 0 &&
      query.position - key.position > problem.window_left) {
    return false;
  }
  return (problem.mask & RINGATTN_MASK_WINDOW_RIGHT) == 0 ||
         key.position - query.position <= problem.window_right;
}

double visible_pairs(const ProblemLine& problem) {
  double pairs = 0;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const std::vector<TokenPlace> keys = key_places(problem, b);
    for (const TokenPlace& query : query_places(problem, b)) {
      for (const TokenPlace& key : keys) pairs += visible(problem, query, key) ? 1 : 0;
    }
  }
  return pairs * static_cast<double>(problem.heads);
}

OracleResult oracle_attention(const ProblemLine& problem, const HostTensor& q, const HostTensor& k,
                              const HostTensor& v, int workers) {
  Oracle oracle(problem, q, k, v);
  const std::int64_t rows = problem.batch * problem.queries;
  const auto run = [&](int worker) {
    Scratch scratch;
    for (std::int64_t row = worker; row < rows; row += workers) {
      oracle.query(row / problem.queries, row % problem.queries, scratch);
    }
  };
  if (workers <= 1) {
    run(0);
  } else {
    run_threads(workers, run, 0, "oracle");
  }
  return oracle.take();
}

}  // namespace ringattn::support
