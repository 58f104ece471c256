#include "gradient_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "reference_judge.h"
#include "tests/support/host_tensor.h"
#include "tests/support/oracle_backward.h"
#include "tests/support/plain.h"
#include "tests/support/plain_backward.h"

namespace ringattn::tool {
namespace {

using support::HostTensor;
using support::LimitResult;
using support::OracleGradient;

HostTensor copy_of(const ringattn_tensor& dense) {
  HostTensor tensor(dense.dtype, {dense.shape[0], dense.shape[1], dense.shape[2], dense.shape[3]});
  const auto bytes = static_cast<std::size_t>(tensor.size() * support::dtype_size(dense.dtype));
  if (bytes > 0) std::memcpy(tensor.data(), dense.data, bytes);
  return tensor;
}

LimitResult judge(const char* name, const ringattn_tensor& result,
                  const std::optional<ringattn_tensor>& reference, const OracleGradient& oracle,
                  const std::vector<float>& plain) {
  if (!reference) return support::check_gradient(name, copy_of(result), oracle, plain);
  const auto heads = static_cast<std::size_t>(oracle.shape[2]),
             dim = static_cast<std::size_t>(oracle.shape[3]);
  const auto seq = static_cast<std::size_t>(oracle.shape[1]);
  ReferenceJudge judge;
  for (std::size_t i = 0; i < oracle.value.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    judge.add(oracle.reached[i / dim] == 0, value_at(result, at), value_at(*reference, at), oracle.value[i],
              plain[i], support::gradient_slack(oracle, i, result.dtype));
  }
  return judge.judge([&](std::int64_t element) {
    const auto at = static_cast<std::size_t>(element);
    const std::size_t row = at / dim, token = row / heads;
    return fmt::format("{}[{}, {}, {}, {}]", name, token / seq, token % seq, row % heads, at % dim);
  });
}

}  // namespace

GradientVerdict check_gradients(const support::ProblemLine& problem, const GradientAnswer& answer,
                                const std::function<void(double)>& progress) {
  const int workers = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const HostTensor q = copy_of(answer.q), k = copy_of(answer.k), v = copy_of(answer.v),
                   d_o = copy_of(answer.d_o);
  const HostTensor d_lse_copy = answer.d_lse ? copy_of(*answer.d_lse) : HostTensor();
  const HostTensor* d_lse = answer.d_lse ? &d_lse_copy : nullptr;
  const HostTensor o_copy = answer.o ? copy_of(*answer.o) : HostTensor();
  const HostTensor* o = answer.o ? &o_copy : nullptr;
  // The plain implementation takes about a third of the whole.
  constexpr double kPlainPart = 0.3;
  const auto tell = [&](double done) {
    if (progress) progress(kPlainPart + (1 - kPlainPart) * done);
  };
  const support::PlainResult forward = support::plain_attention(problem, q, k, v, workers);
  const support::PlainGradients plain =
      support::plain_backward(problem, q, k, v, forward, d_o, d_lse, workers);
  tell(0);
  const support::OracleGradients oracle =
      support::oracle_backward(problem, q, k, v, d_o, d_lse, workers, tell, o);
  return {judge("dq", answer.d_q, answer.d_q_ref, oracle.d_q, plain.d_q),
          judge("dk", answer.d_k, answer.d_k_ref, oracle.d_k, plain.d_k),
          judge("dv", answer.d_v, answer.d_v_ref, oracle.d_v, plain.d_v)};
}

std::string to_text(const GradientVerdict& verdict) {
  return limit_text("dq", verdict.d_q) + "\n" + limit_text("dk", verdict.d_k) + "\n" +
         limit_text("dv", verdict.d_v);
}

}  // namespace ringattn::tool
