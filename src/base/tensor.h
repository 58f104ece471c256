// A tensor of the caller after all checks: address, dtype, shape and strides in elements.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/problem.h"

namespace ringattn {

struct TensorView {
  std::byte* data = nullptr;
  std::int32_t dtype = 0;    // RINGATTN_DTYPE_...
  std::int64_t element = 4;  // bytes
  std::int64_t shape[4] = {0, 0, 0, 0};
  std::int64_t stride[4] = {0, 0, 0, 0};

  bool empty() const { return shape[0] == 0 || shape[1] == 0 || shape[2] == 0 || shape[3] == 0; }
  std::byte* at(std::int64_t batch, std::int64_t seq, std::int64_t head) const {
    return data + (batch * stride[0] + seq * stride[1] + head * stride[2]) * element;
  }
};

}  // namespace ringattn
