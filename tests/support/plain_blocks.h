// Tensors in fp32 as the plain implementations read them.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/support/host_tensor.h"

namespace ringattn::support {

// Values of one tensor as [batch, head] blocks of `seq` rows in fp32; keys are transposed so that many keys
// advance together through the dims while each score is still summed in the order of the dims.
class Blocks {
 public:
  Blocks(const HostTensor& tensor, bool transposed)
      : seq_(tensor.shape(1)), heads_(tensor.shape(2)), dim_(tensor.shape(3)) {
    values_.resize(static_cast<std::size_t>(tensor.size()));
    for (std::int64_t b = 0; b < tensor.shape(0); ++b) {
      for (std::int64_t h = 0; h < heads_; ++h) {
        float* block = values_.data() + (b * heads_ + h) * seq_ * dim_;
        for (std::int64_t s = 0; s < seq_; ++s) {
          for (std::int64_t d = 0; d < dim_; ++d) {
            block[transposed ? d * seq_ + s : s * dim_ + d] = static_cast<float>(tensor.get(b, s, h, d));
          }
        }
      }
    }
  }
  const float* block(std::int64_t b, std::int64_t h) const {
    return values_.data() + (b * heads_ + h) * seq_ * dim_;
  }
  std::int64_t dim() const { return dim_; }

 private:
  std::int64_t seq_, heads_, dim_;
  std::vector<float> values_;
};

}  // namespace ringattn::support
