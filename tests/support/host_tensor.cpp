#include "tests/support/host_tensor.h"

#include <algorithm>
#include <cstring>

#include "tests/support/half.h"

namespace ringattn::support {
namespace {

constexpr std::size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xA5};

}  // namespace

std::int64_t dtype_size(ringattn_dtype dtype) {
  switch (dtype) {
    case RINGATTN_DTYPE_F16:
    case RINGATTN_DTYPE_BF16:
      return 2;
    case RINGATTN_DTYPE_I64:
      return 8;
    default:
      return 4;
  }
}

HostTensor::HostTensor(ringattn_dtype dtype, std::array<std::int64_t, 4> shape, Layout layout)
    : dtype_(dtype), shape_(shape) {
  const auto [batch, seq, head, dim] = shape;
  std::int64_t elements = size();
  std::int64_t first = 0;
  switch (layout) {
    case Layout::kBshd:
      stride_ = {seq * head * dim, head * dim, dim, 1};
      break;
    case Layout::kBhsd:
      stride_ = {head * seq * dim, dim, seq * dim, 1};
      break;
    case Layout::kSbhd:
      stride_ = {head * dim, batch * head * dim, dim, 1};
      break;
    case Layout::kSliced: {  // out of [batch, seq + 1, head + 2, dim + 3], from [0, 1, 1, 2]
      const std::int64_t row = (head + 2) * (dim + 3);
      stride_ = {(seq + 1) * row, row, dim + 3, 1};
      first = row + (dim + 3) + 2;
      elements = batch * (seq + 1) * row;
      break;
    }
  }
  const auto item = static_cast<std::size_t>(dtype_size(dtype));
  start_ = kGuardBytes + static_cast<std::size_t>(first) * item;
  memory_.assign(2 * kGuardBytes + static_cast<std::size_t>(std::max(elements, first)) * item, kGuard);
  fill(0);
}

ringattn_tensor HostTensor::view() const {
  ringattn_tensor tensor = RINGATTN_STRUCT(ringattn_tensor);
  tensor.dtype = dtype_;
  tensor.device_type = RINGATTN_DEVICE_CPU;
  tensor.flags = RINGATTN_TENSOR_STRIDES;
  tensor.data = size() == 0 ? nullptr : const_cast<std::byte*>(data());
  std::copy(shape_.begin(), shape_.end(), tensor.shape);
  std::copy(stride_.begin(), stride_.end(), tensor.stride);
  return tensor;
}

ringattn_tensor HostTensor::token_view() const {
  ringattn_tensor tensor = view();
  std::swap(tensor.shape[1], tensor.shape[2]);
  std::swap(tensor.stride[1], tensor.stride[2]);
  return tensor;
}

std::size_t HostTensor::offset(std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t d) const {
  return static_cast<std::size_t>((b * stride_[0] + s * stride_[1] + h * stride_[2] + d) *
                                  dtype_size(dtype_));
}

double HostTensor::get(std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t d) const {
  const std::byte* from = data() + offset(b, s, h, d);
  const auto read = [from](auto value) {
    std::memcpy(&value, from, sizeof value);
    return value;
  };
  switch (dtype_) {
    case RINGATTN_DTYPE_F16:
      return f16_to_float(read(std::uint16_t{}));
    case RINGATTN_DTYPE_BF16:
      return bf16_to_float(read(std::uint16_t{}));
    case RINGATTN_DTYPE_I32:
      return read(std::int32_t{});
    case RINGATTN_DTYPE_I64:
      return static_cast<double>(read(std::int64_t{}));
    default:
      return read(float{});
  }
}

void HostTensor::set(std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t d, double value) {
  std::byte* to = data() + offset(b, s, h, d);
  const auto write = [to](auto rounded) { std::memcpy(to, &rounded, sizeof rounded); };
  switch (dtype_) {
    case RINGATTN_DTYPE_F16:
      return write(float_to_f16(static_cast<float>(value)));
    case RINGATTN_DTYPE_BF16:
      return write(float_to_bf16(static_cast<float>(value)));
    case RINGATTN_DTYPE_I32:
      return write(static_cast<std::int32_t>(value));
    case RINGATTN_DTYPE_I64:
      return write(static_cast<std::int64_t>(value));
    default:
      return write(static_cast<float>(value));
  }
}

void HostTensor::fill(double value) {
  for (std::int64_t b = 0; b < shape_[0]; ++b) {
    for (std::int64_t s = 0; s < shape_[1]; ++s) {
      for (std::int64_t h = 0; h < shape_[2]; ++h) {
        for (std::int64_t d = 0; d < shape_[3]; ++d) set(b, s, h, d, value);
      }
    }
  }
}

std::vector<float> HostTensor::to_floats() const {
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(size()));
  for (std::int64_t b = 0; b < shape_[0]; ++b) {
    for (std::int64_t s = 0; s < shape_[1]; ++s) {
      for (std::int64_t h = 0; h < shape_[2]; ++h) {
        for (std::int64_t d = 0; d < shape_[3]; ++d) values.push_back(static_cast<float>(get(b, s, h, d)));
      }
    }
  }
  return values;
}

std::uint64_t HostTensor::hash() const {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  const auto item = static_cast<std::size_t>(dtype_size(dtype_));
  for (std::int64_t b = 0; b < shape_[0]; ++b) {
    for (std::int64_t s = 0; s < shape_[1]; ++s) {
      for (std::int64_t h = 0; h < shape_[2]; ++h) {
        const std::byte* row = data() + offset(b, s, h, 0);
        for (std::size_t i = 0; i < item * static_cast<std::size_t>(shape_[3]); ++i) {
          hash = (hash ^ std::to_integer<std::uint64_t>(row[i])) * 0x100000001b3ull;
        }
      }
    }
  }
  return hash;
}

bool HostTensor::guards_intact() const {
  std::vector<bool> is_element(memory_.size(), false);
  const std::int64_t row_bytes = shape_[3] * dtype_size(dtype_);
  for (std::int64_t b = 0; b < shape_[0]; ++b) {
    for (std::int64_t s = 0; s < shape_[1]; ++s) {
      for (std::int64_t h = 0; h < shape_[2]; ++h) {
        const auto row = is_element.begin() + static_cast<std::ptrdiff_t>(start_ + offset(b, s, h, 0));
        std::fill(row, row + row_bytes, true);
      }
    }
  }
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    if (!is_element[i] && memory_[i] != kGuard) return false;
  }
  return true;
}

}  // namespace ringattn::support
