#include "verify_ring.h"

#include <chrono>

#include "answer_check.h"
#include "gather.h"
#include "gradient_check.h"
#include "ring_run.h"
#include "tests/support/host_tensor.h"
#include "tests/support/random_data.h"

namespace ringattn::tool {
namespace {

using support::HostTensor;
using support::LimitResult;

// The whole ring's answer.
struct Outputs {
  explicit Outputs(const support::ProblemLine& problem)
      : o(problem.effective_dtype_out(),
          {problem.batch, problem.queries, problem.heads, problem.effective_dim_v()}),
        lse(RINGATTN_DTYPE_F32, {problem.batch, problem.heads, problem.queries, 1}) {
    if (!problem.backward) return;
    const ringattn_dtype dtype = problem.effective_dtype_grad();
    const std::int64_t batch = problem.batch, keys = problem.keys, kv_heads = problem.effective_kv_heads();
    d_q = HostTensor(dtype, {batch, problem.queries, problem.heads, problem.dim});
    d_k = HostTensor(dtype, {batch, keys, kv_heads, problem.dim});
    d_v = HostTensor(dtype, {batch, keys, kv_heads, problem.effective_dim_v()});
  }
  HostTensor o, lse, d_q, d_k, d_v;
};

void compute(const support::ProblemLine& problem, const support::Inputs& inputs, const Ring& ring,
             Outputs& outputs, double& seconds) {
  RingRun run(problem, false, ring);
  run.scatter(inputs.q.view(), inputs.k.view(), inputs.v.view());
  seconds = run.forward(Drive::together, {});
  run.gather(outputs.o.view(), outputs.lse.view());
  if (!problem.backward) return;
  const ringattn_tensor d_lse = inputs.d_lse.view();
  run.scatter_gradients(inputs.d_o.view(), &d_lse);
  seconds += run.backward(Drive::together, {});
  run.gather_gradients(outputs.d_q.view(), outputs.d_k.view(), outputs.d_v.view());
}

void judge(const support::ProblemLine& problem, const support::Inputs& inputs, const Outputs& outputs,
           support::VerifyResult& result) {
  const ringattn_tensor q = inputs.q.view(), k = inputs.k.view(), v = inputs.v.view(), o = outputs.o.view();
  const Verdict verdict = check_answer(problem, {q, k, v, o, outputs.lse.view(), std::nullopt, std::nullopt},
                                       row_blocks(problem, kRowsOfBlock), {});
  result.o = verdict.o;
  result.lse = verdict.lse;
  if (problem.backward) {
    const GradientVerdict gradients =
        check_gradients(problem,
                        {q, k, v, inputs.d_o.view(), inputs.d_lse.view(), outputs.d_q.view(),
                         outputs.d_k.view(), outputs.d_v.view(), std::nullopt, std::nullopt, std::nullopt, o},
                        {});
    result.d_q = gradients.d_q;
    result.d_k = gradients.d_k;
    result.d_v = gradients.d_v;
  }
  for (const LimitResult* limit : {&result.o, &result.lse, &result.d_q, &result.d_k, &result.d_v}) {
    if (!limit->ok) result.error += (result.error.empty() ? "" : "; ") + limit->worst;
  }
}

}  // namespace

support::VerifyResult verify_on_ring(const support::ProblemLine& problem, std::uint64_t seed,
                                     const Ring& ring) {
  support::VerifyResult result;
  result.line = to_line(problem);
  result.backward = problem.backward;
  const support::Inputs inputs = support::random_inputs(problem, seed);
  Outputs outputs(problem);
  compute(problem, inputs, ring, outputs, result.run_seconds);
  if (ring.reports()) {
    const auto start = std::chrono::steady_clock::now();
    judge(problem, inputs, outputs, result);
    result.oracle_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  result.ok = number_of_rank_zero(ring.comms.front().get(), result.error.empty() ? 1 : 0) == 1;
  return result;
}

}  // namespace ringattn::tool
