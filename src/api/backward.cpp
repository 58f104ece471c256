// backward and its array form.
#include "api/execute.h"
#include "api/guard.h"
#include "api/read_struct.h"
#include "api/tensor_check.h"

namespace {

using namespace ringattn;
using api::TensorUse;

class BackwardCall final : public api::ExecutionCall {
 public:
  explicit BackwardCall(const ringattn_backward_args* given)
      : ExecutionCall("backward", true), given_(given) {}

  Status check_step() const override {
    return given_ == nullptr ? Status() : api::check_struct_size(given_, "backward_args");
  }

  Status read(std::int32_t i) override {
    args_ = ringattn_backward_args{};
    RINGATTN_TRY(api::read_struct(given_ == nullptr || i == 0 ? given_ : api::array_at(given_, i),
                                  "backward_args", args_));
    return take_common(args_);
  }

  Status check_tensors(const plan::Plan& plan, const schedule::Layout& layout,
                       ring::Tensors& t) const override {
    t.progress = args_.progress;
    t.progress_user = args_.progress_user;
    RINGATTN_TRY(api::read_shards(plan, layout, args_.q, args_.k, args_.v, t));
    RINGATTN_TRY(read_results(plan, t));
    return read_gradients(plan, t);
  }

 private:
  // What forward left, and what flows into it.
  Status read_results(const plan::Plan& plan, ring::Tensors& t) const {
    const Problem& p = plan.problem;
    const auto dtype = static_cast<std::int32_t>(p.dtype_out);
    const std::int64_t rows = t.q.shape[1];
    RINGATTN_TRY(
        api::read_tensor(args_.o, "o", TensorUse::input, dtype, {p.batch, rows, p.heads, p.head_dim_v}, t.o));
    RINGATTN_TRY(api::read_tensor(args_.lse, "lse", TensorUse::input, RINGATTN_DTYPE_F32,
                                  {p.batch, p.heads, rows, 1}, t.lse));
    RINGATTN_TRY(api::read_tensor(args_.d_o, "d_o", TensorUse::input, dtype,
                                  {p.batch, rows, p.heads, p.head_dim_v}, t.d_o));
    t.has_lse = true;
    t.has_d_lse = args_.d_lse != nullptr;
    if (!t.has_d_lse) return {};
    return api::read_tensor(args_.d_lse, "d_lse", TensorUse::input, RINGATTN_DTYPE_F32,
                            {p.batch, p.heads, rows, 1}, t.d_lse);
  }

  Status read_gradients(const plan::Plan& plan, ring::Tensors& t) const {
    const Problem& p = plan.problem;
    const auto dtype = static_cast<std::int32_t>(p.dtype_grad);
    const std::int64_t rows_q = t.q.shape[1], rows_k = t.k.shape[1];
    RINGATTN_TRY(api::read_tensor(args_.d_q, "d_q", TensorUse::output, dtype,
                                  {p.batch, rows_q, p.heads, p.head_dim_qk}, t.d_q));
    RINGATTN_TRY(api::read_tensor(args_.d_k, "d_k", TensorUse::output, dtype,
                                  {p.batch, rows_k, p.kv_heads, p.head_dim_qk}, t.d_k));
    return api::read_tensor(args_.d_v, "d_v", TensorUse::output, dtype,
                            {p.batch, rows_k, p.kv_heads, p.head_dim_v}, t.d_v);
  }

  const ringattn_backward_args* const given_;
  ringattn_backward_args args_{};
};

ringattn_status run(std::int32_t count, ringattn_plan* const* plans, const ringattn_backward_args* args,
                    ringattn_request** request) {
  return api::guarded([&] {
    BackwardCall call(args);
    return api::execute(count, plans, call, request);
  });
}

}  // namespace

extern "C" {

ringattn_status ringattn_backward(ringattn_plan* plan, const ringattn_backward_args* args,
                                  ringattn_request** request) {
  return run(1, &plan, args, request);
}

ringattn_status ringattn_backward_array(int32_t count, ringattn_plan* const* plans,
                                        const ringattn_backward_args* args, ringattn_request** request) {
  return run(count, plans, args, request);
}

}  // extern "C"
