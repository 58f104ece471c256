#include "tests/support/rank_tensors.h"

#include <limits>

namespace ringattn::support {

namespace {
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
}  // namespace

RankTensors::RankTensors(const ProblemLine& problem, std::int64_t rows_q, std::int64_t rows_k,
                         const ringattn_call* call)
    : q(problem.dtype, {problem.batch, rows_q, problem.heads, problem.dim}, problem.layout),
      k(problem.dtype, {problem.batch, rows_k, problem.effective_kv_heads(), problem.dim}, problem.layout),
      v(problem.dtype, {problem.batch, rows_k, problem.effective_kv_heads(), problem.effective_dim_v()},
        problem.layout),
      o(problem.effective_dtype_out(), {problem.batch, rows_q, problem.heads, problem.effective_dim_v()},
        problem.layout),
      lse(RINGATTN_DTYPE_F32, {problem.batch, problem.heads, rows_q, 1}, problem.layout),
      q_view(q.view()),
      k_view(k.view()),
      v_view(v.view()),
      o_view(o.view()),
      lse_view(lse.view()),
      args(RINGATTN_STRUCT(ringattn_forward_args)) {
  for (HostTensor* tensor : {&q, &k, &v}) tensor->fill(kNaN);
  poison_outputs();
  args.q = &q_view;
  args.k = &k_view;
  args.v = &v_view;
  args.o = &o_view;
  args.lse = &lse_view;
  args.call = call;
}

void RankTensors::poison_outputs() {
  o.fill(kNaN);
  lse.fill(kNaN);
}

}  // namespace ringattn::support
