// No rank of a call may write what another one, or itself, reads or writes.
#pragma once
#include <span>

#include "base/status.h"
#include "ring/execution.h"

namespace ringattn::api {

// What one rank's call reads and writes.
struct Operands {
  const ring::Tensors* tensors = nullptr;
  const std::byte* workspace = nullptr;  // the caller's own, else null
  std::uint64_t workspace_bytes = 0;
  bool backward = false;
  std::int32_t rank = 0;
};

// No output and no workspace of a rank may share memory with anything else of any rank of the call. `wrong`: which of
// `ranks` is to blame, where one is.
Status check_memory(std::span<const Operands> ranks, std::size_t* wrong);

}  // namespace ringattn::api
