// What forward and backward have in common: from a collective call with its arguments to a running execution.
#pragma once
#include <cstdint>

#include "api/handles.h"
#include "base/status.h"
#include "ring/execution.h"

namespace ringattn::api {

// The arguments of one call, of one or more ranks. Read once: the caller's structs may change afterwards.
class ExecutionCall {
 public:
  ExecutionCall(const char* name, bool backward) : name_(name), backward_(backward) {}
  virtual ~ExecutionCall() = default;

  const char* name() const { return name_; }
  bool backward() const { return backward_; }

  // Can the arguments be stepped through? Only asked where there are several.
  virtual Status check_step() const = 0;
  // Reads the arguments of the i-th rank; the functions below are about these.
  virtual Status read(std::int32_t i) = 0;
  virtual Status check_tensors(const plan::Plan& plan, const schedule::Layout& layout,
                               ring::Tensors& out) const = 0;
  const ringattn_call* call() const { return call_; }
  void* workspace() const { return workspace_; }
  std::uint64_t workspace_bytes() const { return workspace_bytes_; }

 protected:
  // From either struct: these fields have the same names in both.
  template <typename Args>
  Status take_common(const Args& args) {
    if (args.flags != 0) return invalid("flags: " + std::to_string(args.flags) + ", expected 0");
    call_ = args.call;
    workspace_ = args.workspace;
    workspace_bytes_ = args.workspace_bytes;
    return {};
  }

 private:
  const char* const name_;
  const bool backward_;
  const ringattn_call* call_ = nullptr;
  void* workspace_ = nullptr;
  std::uint64_t workspace_bytes_ = 0;
};

// Blocking where request is null.
Status execute(std::int32_t count, ringattn_plan* const* plans, ExecutionCall& call,
               ringattn_request** request);

}  // namespace ringattn::api
