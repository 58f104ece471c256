#include "tests/support/oracle_backward.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>

#include "tests/support/oracle_rows.h"
#include "tests/support/spawn.h"
#include "tests/support/visibility.h"

namespace ringattn::support {
namespace {

OracleGradient gradient_of(const HostTensor& input) {
  OracleGradient gradient;
  gradient.shape = input.shape();
  const auto rows = static_cast<std::size_t>(input.shape(0) * input.shape(1) * input.shape(2));
  gradient.value.assign(rows * static_cast<std::size_t>(input.shape(3)), 0.0);
  gradient.abs_terms = gradient.abs_products = gradient.shift = gradient.value;
  gradient.abs_score.assign(rows, 0.0);
  gradient.reached.assign(rows, 0);
  return gradient;
}

// What one pair adds to a row of a gradient: factor * values, and to its sums.
struct Factors {
  double value, terms, products, shift;
};

void add_row(OracleGradient& gradient, std::size_t row, const Factors& factors, const double* values) {
  const auto dim = static_cast<std::size_t>(gradient.shape[3]);
  double* value = gradient.value.data() + row * dim;
  double* terms = gradient.abs_terms.data() + row * dim;
  double* products = gradient.abs_products.data() + row * dim;
  double* shift = gradient.shift.data() + row * dim;
  for (std::size_t d = 0; d < dim; ++d) {
    value[d] += factors.value * values[d];
    terms[d] += factors.terms * std::fabs(values[d]);
  }
  if (factors.products == 0) return;
  for (std::size_t d = 0; d < dim; ++d) products[d] += factors.products * std::fabs(values[d]);
  if (factors.shift == 0) return;
  for (std::size_t d = 0; d < dim; ++d) shift[d] += factors.shift * values[d];
}

// One worker's scratch: of the keys that a row sees.
struct Scratch {
  std::vector<std::int64_t> keys;
  std::vector<double> p;        // scores, then probabilities
  std::vector<double> d_p;      // dO . v
  std::vector<double> abs_d_p;  // sum |dO_d v_d|
};

class Backward {
 public:
  Backward(const ProblemLine& problem, const HostTensor& q, const HostTensor& k, const HostTensor& v,
           const HostTensor& d_o, const HostTensor* d_lse, const HostTensor* o)
      : problem_(problem),
        scale_(problem.effective_scale()),
        group_(problem.heads / problem.effective_kv_heads()),
        q_(q),
        k_(k),
        v_(v),
        d_o_(d_o),
        d_lse_(d_lse),
        o_(o),
        visibility_(problem),
        result_{gradient_of(q), gradient_of(k), gradient_of(v)} {}

  // All query heads of one kv head for one query. Writes what belongs to this kv head only. Returns the
  // visible pairs.
  double query(std::int64_t b, std::int64_t kv_head, std::int64_t index, Scratch& scratch) {
    visibility_.keys_of(b, index, scratch.keys);
    if (scratch.keys.empty()) return 0;
    scratch.p.resize(scratch.keys.size());
    scratch.d_p.resize(scratch.keys.size());
    scratch.abs_d_p.resize(scratch.keys.size());
    for (std::int64_t h = kv_head * group_; h < (kv_head + 1) * group_; ++h) {
      const double abs_score = probabilities(b, index, h, kv_head, scratch);
      add_gradients(b, index, h, kv_head, abs_score, scratch);
    }
    return static_cast<double>(scratch.keys.size()) * static_cast<double>(group_);
  }

  OracleGradients take() { return std::move(result_); }

 private:
  // Fills p and d_p; returns A of the row.
  double probabilities(std::int64_t b, std::int64_t index, std::int64_t h, std::int64_t kv_head,
                       Scratch& scratch) const {
    double largest = -std::numeric_limits<double>::infinity(), abs_score = 0;
    for (std::size_t i = 0; i < scratch.keys.size(); ++i) {
      double sum = 0, absolute = 0;
      dot(q_.row(b, h, index), k_.row(b, kv_head, scratch.keys[i]), q_.width(), sum, absolute);
      dot(d_o_.row(b, h, index), v_.row(b, kv_head, scratch.keys[i]), v_.width(), scratch.d_p[i],
          scratch.abs_d_p[i]);
      scratch.p[i] = scale_ * sum;
      largest = std::max(largest, scratch.p[i]);
      abs_score = std::max(abs_score, scale_ * absolute);
    }
    double sum_p = 0;
    for (double& p : scratch.p) sum_p += p = std::exp(p - largest);
    for (double& p : scratch.p) p /= sum_p;
    return abs_score;
  }

  void add_gradients(std::int64_t b, std::int64_t index, std::int64_t h, std::int64_t kv_head,
                     double abs_score, const Scratch& scratch) {
    const double d_lse = d_lse_ == nullptr ? 0 : d_lse_->get(b, h, index, 0);
    double delta = -d_lse, abs_delta = std::fabs(d_lse);
    for (std::size_t i = 0; i < scratch.keys.size(); ++i) {
      delta += scratch.p[i] * scratch.d_p[i];
      abs_delta += scratch.p[i] * scratch.abs_d_p[i];
    }
    const double moved = o_ == nullptr ? 0 : delta - delta_of_given(b, index, h, d_lse);

    const std::size_t row = result_.d_q.row(b, index, h);
    result_.d_q.abs_score[row] = abs_score;
    result_.d_q.reached[row] = 1;
    for (std::size_t i = 0; i < scratch.keys.size(); ++i) {
      const double p = scratch.p[i], d_p = scratch.d_p[i];
      const Factors d_s{scale_ * p * (d_p - delta), scale_ * p * (std::fabs(d_p) + std::fabs(delta)),
                        scale_ * p * (scratch.abs_d_p[i] + abs_delta), scale_ * p * moved};
      const std::size_t key = result_.d_k.row(b, scratch.keys[i], kv_head);
      add_row(result_.d_q, row, d_s, k_.row(b, kv_head, scratch.keys[i]));
      add_row(result_.d_k, key, d_s, q_.row(b, h, index));
      add_row(result_.d_v, key, {p, p, 0, 0}, d_o_.row(b, h, index));
      for (OracleGradient* gradient : {&result_.d_k, &result_.d_v}) {
        gradient->abs_score[key] = std::max(gradient->abs_score[key], abs_score);
        gradient->reached[key] = 1;
      }
    }
  }

  double delta_of_given(std::int64_t b, std::int64_t index, std::int64_t h, double d_lse) const {
    double delta = -d_lse;
    for (std::int64_t d = 0; d < o_->shape(3); ++d)
      delta += d_o_.row(b, h, index)[d] * o_->get(b, index, h, d);
    return delta;
  }

  const ProblemLine& problem_;
  const double scale_;
  const std::int64_t group_;
  const Rows q_, k_, v_, d_o_;
  const HostTensor* d_lse_;
  const HostTensor* o_;
  const Visibility visibility_;
  OracleGradients result_;
};

}  // namespace

OracleGradients oracle_backward(const ProblemLine& problem, const HostTensor& q, const HostTensor& k,
                                const HostTensor& v, const HostTensor& d_o, const HostTensor* d_lse,
                                int workers, const std::function<void(double)>& progress,
                                const HostTensor* given_o) {
  Backward backward(problem, q, k, v, d_o, d_lse, given_o);
  const std::int64_t kv_heads = problem.effective_kv_heads();
  const double pairs = progress ? std::max(1.0, visible_pairs(problem)) : 1;
  std::vector<Scratch> scratch(static_cast<std::size_t>(std::max(1, workers)));
  std::mutex mutex;
  std::atomic<double> done{0};
  // One kv head is one worker's, row by row: each sum of dK and dV has one order.
  share(problem.batch * kv_heads, workers, "oracle of the gradients", [&](std::int64_t item, int worker) {
    Scratch& own = scratch[static_cast<std::size_t>(worker)];
    for (std::int64_t index = 0; index < problem.queries; ++index) {
      done += backward.query(item / kv_heads, item % kv_heads, index, own);
      if (!progress) continue;
      const std::unique_lock lock(mutex, std::try_to_lock);
      if (lock) progress(done / pairs);
    }
  });
  return backward.take();
}

}  // namespace ringattn::support
