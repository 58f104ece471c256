#include "tests/support/rank_tensors.h"

#include <limits>

namespace ringattn::support {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A tensor that only gradients need.
HostTensor gradient(const ProblemLine& problem, ringattn_dtype dtype,
                    const std::array<std::int64_t, 4>& shape) {
  return problem.backward ? HostTensor(dtype, shape, problem.layout) : HostTensor();
}

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
      d_o(gradient(problem, o.dtype(), o.shape())),
      d_lse(gradient(problem, lse.dtype(), lse.shape())),
      d_q(gradient(problem, problem.effective_dtype_grad(), q.shape())),
      d_k(gradient(problem, problem.effective_dtype_grad(), k.shape())),
      d_v(gradient(problem, problem.effective_dtype_grad(), v.shape())),
      q_view(q.view()),
      k_view(k.view()),
      v_view(v.view()),
      o_view(o.view()),
      lse_view(lse.view()),
      d_o_view(d_o.view()),
      d_lse_view(d_lse.view()),
      d_q_view(d_q.view()),
      d_k_view(d_k.view()),
      d_v_view(d_v.view()),
      args(RINGATTN_STRUCT(ringattn_forward_args)),
      backward_args(RINGATTN_STRUCT(ringattn_backward_args)) {
  for (HostTensor* tensor : {&q, &k, &v, &d_o, &d_lse}) tensor->fill(kNaN);
  poison_outputs();
  args.q = backward_args.q = &q_view;
  args.k = backward_args.k = &k_view;
  args.v = backward_args.v = &v_view;
  args.o = backward_args.o = &o_view;
  args.lse = backward_args.lse = &lse_view;
  args.call = backward_args.call = call;
  backward_args.d_o = &d_o_view;
  backward_args.d_q = &d_q_view;
  backward_args.d_k = &d_k_view;
  backward_args.d_v = &d_v_view;
}

void RankTensors::poison_outputs() {
  for (HostTensor* tensor : {&o, &lse, &d_q, &d_k, &d_v}) tensor->fill(kNaN);
}

}  // namespace ringattn::support
