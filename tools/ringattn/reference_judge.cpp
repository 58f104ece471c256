#include "reference_judge.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstring>

#include "tests/support/half.h"
#include "tests/support/host_tensor.h"

namespace ringattn::tool {

void ReferenceJudge::add(bool exact, double result, double reference, double oracle, double plain,
                         double slack) {
  const bool both = !exact && std::isfinite(result) && std::isfinite(reference);
  const bool alike = result == reference || (!exact && !std::isfinite(result) && !std::isfinite(reference));
  differences_.push_back(both ? result - reference : alike ? 0 : INFINITY);
  const bool finite = std::isfinite(oracle) && std::isfinite(plain);
  plain_differences_.push_back(finite ? plain - oracle : 0);
  slack_.push_back(finite && std::isfinite(slack) ? slack : 0);
  results_.push_back(result);
  references_.push_back(reference);
}

support::LimitResult ReferenceJudge::judge(const std::function<std::string(std::int64_t)>& place) const {
  const std::vector<double> zero(differences_.size(), 0.0);
  support::LimitResult limit = support::check_limit(differences_, zero, plain_differences_, slack_);
  std::size_t element = 0;
  if (std::sscanf(limit.worst.c_str(), "element %zu", &element) == 1) {
    limit.worst = fmt::format("{} is {:.9g}, the reference {:.9g}, limit {:.3g}",
                              place(static_cast<std::int64_t>(element)), results_[element],
                              references_[element], limit.limit_max);
  }
  return limit;
}

std::string limit_text(const char* name, const support::LimitResult& limit) {
  return fmt::format("{:<12} max abs error {:.3g} (limit {:.3g}), rms {:.3g} (limit {:.3g}){}", name,
                     limit.max_abs, limit.limit_max, limit.rms, limit.limit_rms,
                     limit.ok ? "" : "  OUT OF TOLERANCE: " + limit.worst);
}

float value_at(const ringattn_tensor& tensor, std::int64_t index) {
  const auto item = static_cast<std::size_t>(support::dtype_size(tensor.dtype));
  const std::byte* from = static_cast<const std::byte*>(tensor.data) + item * static_cast<std::size_t>(index);
  if (tensor.dtype == RINGATTN_DTYPE_F32) {
    float value;
    std::memcpy(&value, from, item);
    return value;
  }
  std::uint16_t half;
  std::memcpy(&half, from, item);
  return tensor.dtype == RINGATTN_DTYPE_BF16 ? support::bf16_to_float(half) : support::f16_to_float(half);
}

}  // namespace ringattn::tool
