#include "tests/support/limits.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "tests/support/half.h"

namespace ringattn::support {
namespace {

constexpr double kExact = -1;  // a slack that says: exactly the expected value

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

struct Errors {
  double max = 0;
  double rms = 0;
};

bool both_finite(double a, double b) { return std::isfinite(a) && std::isfinite(b); }

Errors errors_of(const std::vector<double>& result, const std::vector<double>& expected) {
  Errors errors;
  double sum = 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (!both_finite(result[i], expected[i])) continue;
    const double error = std::fabs(result[i] - expected[i]);
    errors.max = std::max(errors.max, error);
    sum += error * error;
  }
  errors.rms = result.empty() ? 0 : std::sqrt(sum / static_cast<double>(result.size()));
  return errors;
}

double rms_of_slack(const std::vector<double>& slack) {
  double sum = 0;
  for (const double value : slack) sum += std::isfinite(value) && value > 0 ? value * value : 0;
  return slack.empty() ? 0 : std::sqrt(sum / static_cast<double>(slack.size()));
}

// How far an element is into its limit: above 1 is too far. Writes the limit.
double use_of_limit(double result, double expected, double plain_max, double slack, double& limit) {
  if (std::isnan(slack)) slack = INFINITY;  // of a finite element beside scores that are not
  limit = slack == kExact ? 0 : 2 * plain_max + slack;
  if (slack == kExact) return result == expected ? 0 : INFINITY;
  if (!std::isfinite(expected)) return std::isfinite(result) ? INFINITY : 0;
  if (!std::isfinite(result)) return INFINITY;
  const double error = std::fabs(result - expected);
  return error == 0 ? 0 : error / limit;
}

using Place = std::function<std::string(std::size_t)>;

LimitResult judge(const std::vector<double>& result, const std::vector<double>& expected,
                  const std::vector<double>& plain, const std::vector<double>& slack, const Place& place) {
  LimitResult verdict;
  const Errors own = errors_of(result, expected);
  const Errors yardstick = errors_of(plain, expected);
  verdict.max_abs = own.max;
  verdict.rms = own.rms;
  verdict.limit_rms = 2 * yardstick.rms + rms_of_slack(slack);
  double most = -1;
  for (std::size_t i = 0; i < result.size(); ++i) {
    double limit = 0;
    const double use = use_of_limit(result[i], expected[i], yardstick.max, slack[i], limit);
    if (use <= most) continue;
    most = use;
    verdict.limit_max = limit;
    verdict.worst = place(i) + " is " + number(result[i]) + ", expected " + number(expected[i]) + " within " +
                    number(limit);
  }
  if (most > 1) verdict.ok = false;
  if (verdict.rms > verdict.limit_rms) {
    verdict.ok = false;
    verdict.worst += "; rms error " + number(verdict.rms) + " above " + number(verdict.limit_rms);
  }
  return verdict;
}

double relative_slack(double abs_score) { return 0x1p-23 * (1 + abs_score); }

}  // namespace

LimitResult check_limit(const std::vector<double>& result, const std::vector<double>& expected,
                        const std::vector<double>& plain, const std::vector<double>& slack) {
  return judge(result, expected, plain, slack, [](std::size_t i) { return "element " + std::to_string(i); });
}

double gradient_slack(const OracleGradient& oracle, std::size_t element, ringattn_dtype dtype_grad) {
  const std::size_t row = element / static_cast<std::size_t>(oracle.shape[3]);
  return relative_slack(oracle.abs_score[row]) * oracle.abs_terms[element] +
         relative_slack(0) * oracle.abs_products[element] + std::fabs(oracle.shift[element]) +
         ulp(dtype_grad, oracle.value[element]);
}

LimitResult check_gradient(const char* name, const HostTensor& gradient, const OracleGradient& oracle,
                           const std::vector<float>& plain) {
  const auto [batch, seq, heads, dim] = oracle.shape;
  std::vector<double> result, slack;
  result.reserve(oracle.value.size());
  slack.reserve(oracle.value.size());
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t s = 0; s < seq; ++s) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const bool reached = oracle.reached[oracle.row(b, s, h)] != 0;
        for (std::int64_t d = 0; d < dim; ++d) {
          result.push_back(gradient.get(b, s, h, d));
          slack.push_back(reached ? gradient_slack(oracle, oracle.element(b, s, h, d), gradient.dtype())
                                  : kExact);
        }
      }
    }
  }
  const auto place = [&](std::size_t i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t row = at / oracle.shape[3], token = row / oracle.shape[2];
    return std::string(name) + "[" + std::to_string(token / oracle.shape[1]) + ", " +
           std::to_string(token % oracle.shape[1]) + ", " + std::to_string(row % oracle.shape[2]) + ", " +
           std::to_string(at % oracle.shape[3]) + "]";
  };
  return judge(result, oracle.value, {plain.begin(), plain.end()}, slack, place);
}

LimitResult check_o(const HostTensor& o, const OracleResult& oracle, const PlainResult& plain) {
  std::vector<double> result, slack;
  result.reserve(oracle.o.size());
  slack.reserve(oracle.o.size());
  for (std::int64_t b = 0; b < o.shape(0); ++b) {
    for (std::int64_t query = 0; query < oracle.queries; ++query) {
      for (std::int64_t head = 0; head < oracle.heads; ++head) {
        const std::size_t row = oracle.row(b, query, head);
        const bool empty = oracle.lse[row] == -INFINITY;
        for (std::int64_t d = 0; d < oracle.dim_v; ++d) {
          const std::size_t element = oracle.element(b, query, head, d);
          result.push_back(o.get(b, query, head, d));
          slack.push_back(empty ? kExact
                                : relative_slack(oracle.abs_score[row]) * oracle.abs_pv[element] +
                                      ulp(o.dtype(), oracle.o[element]));
        }
      }
    }
  }
  const auto place = [&](std::size_t i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t row = at / oracle.dim_v;
    return "o[" + std::to_string(row / oracle.heads / oracle.queries) + ", " +
           std::to_string(row / oracle.heads % oracle.queries) + ", " + std::to_string(row % oracle.heads) +
           ", " + std::to_string(at % oracle.dim_v) + "]";
  };
  return judge(result, oracle.o, {plain.o.begin(), plain.o.end()}, slack, place);
}

LimitResult check_lse(const HostTensor& lse, const OracleResult& oracle, const PlainResult& plain) {
  std::vector<double> result, slack;
  result.reserve(oracle.lse.size());
  slack.reserve(oracle.lse.size());
  for (std::int64_t b = 0; b < lse.shape(0); ++b) {
    for (std::int64_t query = 0; query < oracle.queries; ++query) {
      for (std::int64_t head = 0; head < oracle.heads; ++head) {
        const std::size_t row = oracle.row(b, query, head);
        result.push_back(lse.get(b, head, query, 0));
        const double magnitude = 1 + std::fabs(oracle.row_max[row]) + std::fabs(oracle.log_sum[row]);
        slack.push_back(oracle.lse[row] == -INFINITY ? kExact
                                                     : relative_slack(oracle.abs_score[row]) * magnitude +
                                                           ulp(lse.dtype(), oracle.lse[row]));
      }
    }
  }
  const auto place = [&](std::size_t i) {
    const auto row = static_cast<std::int64_t>(i);
    return "lse[" + std::to_string(row / oracle.heads / oracle.queries) + ", " +
           std::to_string(row % oracle.heads) + ", " + std::to_string(row / oracle.heads % oracle.queries) +
           "]";
  };
  return judge(result, oracle.lse, {plain.lse.begin(), plain.lse.end()}, slack, place);
}

}  // namespace ringattn::support
