// An owning tensor of any dtype and layout, with a ringattn_tensor view of it and guard bytes around it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ringattn.h"
#include "tests/support/problem_line.h"

namespace ringattn::support {

std::int64_t dtype_size(ringattn_dtype dtype);

class HostTensor {
 public:
  HostTensor() = default;
  // All elements zero. Axes [batch, seq, head, dim]; the memory order is the layout's.
  HostTensor(ringattn_dtype dtype, std::array<std::int64_t, 4> shape, Layout layout = Layout::kBshd);

  // A view for the library. Outputs are written through it, so it is not const in spirit.
  ringattn_tensor view() const;
  // The view of an lse tensor [batch, head, seq, 1] with axes [batch, seq, head, 1], for shard and unshard.
  ringattn_tensor token_view() const;

  double get(std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t d) const;
  // Rounds to the dtype (round to nearest even).
  void set(std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t d, double value);
  void fill(double value);

  ringattn_dtype dtype() const { return dtype_; }
  const std::array<std::int64_t, 4>& shape() const { return shape_; }
  std::int64_t shape(int axis) const { return shape_[static_cast<std::size_t>(axis)]; }
  std::int64_t size() const { return shape_[0] * shape_[1] * shape_[2] * shape_[3]; }
  std::byte* data() { return memory_.data() + start_; }
  const std::byte* data() const { return memory_.data() + start_; }

  // Elements as fp32 in the order of the axes, whatever the layout.
  std::vector<float> to_floats() const;
  // FNV-1a over the elements' bits in the order of the axes: the same for every layout.
  std::uint64_t hash() const;
  // False when a byte that belongs to no element was changed: around the tensor, or in the gaps of kSliced.
  bool guards_intact() const;

 private:
  std::size_t offset(std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t d) const;

  ringattn_dtype dtype_ = RINGATTN_DTYPE_F32;
  std::array<std::int64_t, 4> shape_{};
  std::array<std::int64_t, 4> stride_{};  // elements
  std::size_t start_ = 0;                 // bytes to element [0, 0, 0, 0]
  std::vector<std::byte> memory_;
};

}  // namespace ringattn::support
