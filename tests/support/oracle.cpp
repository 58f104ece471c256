#include "tests/support/oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/oracle_rows.h"
#include "tests/support/spawn.h"

namespace ringattn::support {
namespace {

// One worker's scratch.
struct Scratch {
  std::vector<std::int64_t> keys;  // visible ones
  std::vector<double> scores;
  std::vector<double> sum_pv, sum_abs_pv;
};

class Oracle {
 public:
  Oracle(const ProblemLine& problem, const HostTensor& q, const HostTensor& k, const HostTensor& v)
      : problem_(problem), scale_(problem.effective_scale()), q_(q), k_(k), v_(v), visibility_(problem) {
    result_.queries = problem.queries;
    result_.heads = problem.heads;
    result_.dim_v = problem.effective_dim_v();
    const auto rows = static_cast<std::size_t>(problem.batch * problem.queries * problem.heads);
    result_.o.assign(rows * static_cast<std::size_t>(result_.dim_v), 0.0);
    result_.abs_pv = result_.o;
    result_.lse.assign(rows, -std::numeric_limits<double>::infinity());
    result_.abs_score.assign(rows, 0.0);
    result_.row_max = result_.log_sum = result_.abs_score;
  }

  // All heads of one query.
  void query(std::int64_t b, std::int64_t index, Scratch& scratch) {
    visibility_.keys_of(b, index, scratch.keys);
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
  const Visibility visibility_;
  OracleResult result_;
};

}  // namespace

OracleResult oracle_attention(const ProblemLine& problem, const HostTensor& q, const HostTensor& k,
                              const HostTensor& v, int workers) {
  Oracle oracle(problem, q, k, v);
  const std::int64_t rows = problem.batch * problem.queries;
  std::vector<Scratch> scratch(static_cast<std::size_t>(std::max(1, workers)));
  share(rows, workers, "oracle", [&](std::int64_t row, int worker) {
    oracle.query(row / problem.queries, row % problem.queries, scratch[static_cast<std::size_t>(worker)]);
  });
  return oracle.take();
}

}  // namespace ringattn::support
