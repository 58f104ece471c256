// forward and its array form.
#include "api/execute.h"
#include "api/guard.h"
#include "api/read_struct.h"
#include "api/tensor_check.h"

namespace {

using namespace ringattn;
using api::TensorUse;

class ForwardCall final : public api::ExecutionCall {
 public:
  explicit ForwardCall(const ringattn_forward_args* given) : ExecutionCall("forward", false), given_(given) {}

  Status check_step() const override {
    return given_ == nullptr ? Status() : api::check_struct_size(given_, "forward_args");
  }

  Status read(std::int32_t i) override {
    args_ = ringattn_forward_args{};
    RINGATTN_TRY(api::read_struct(given_ == nullptr || i == 0 ? given_ : api::array_at(given_, i),
                                  "forward_args", args_));
    return take_common(args_);
  }

  Status check_tensors(const plan::Plan& plan, const schedule::Layout& layout,
                       ring::Tensors& t) const override {
    const Problem& p = plan.problem;
    t.progress = args_.progress;
    t.progress_user = args_.progress_user;
    RINGATTN_TRY(api::read_shards(plan, layout, args_.q, args_.k, args_.v, t));
    const std::int64_t rows = t.q.shape[1];
    RINGATTN_TRY(api::read_tensor(args_.o, "o", TensorUse::output, static_cast<std::int32_t>(p.dtype_out),
                                  {p.batch, rows, p.heads, p.head_dim_v}, t.o));
    t.has_lse = args_.lse != nullptr;
    if (t.has_lse) {
      RINGATTN_TRY(api::read_tensor(args_.lse, "lse", TensorUse::output, RINGATTN_DTYPE_F32,
                                    {p.batch, p.heads, rows, 1}, t.lse));
    }
    return {};
  }

 private:
  const ringattn_forward_args* const given_;
  ringattn_forward_args args_{};
};

ringattn_status run(std::int32_t count, ringattn_plan* const* plans, const ringattn_forward_args* args,
                    ringattn_request** request) {
  return api::guarded([&] {
    ForwardCall call(args);
    return api::execute(count, plans, call, request);
  });
}

}  // namespace

extern "C" {

ringattn_status ringattn_forward(ringattn_plan* plan, const ringattn_forward_args* args,
                                 ringattn_request** request) {
  return run(1, &plan, args, request);
}

ringattn_status ringattn_forward_array(int32_t count, ringattn_plan* const* plans,
                                       const ringattn_forward_args* args, ringattn_request** request) {
  return run(count, plans, args, request);
}

}  // extern "C"
