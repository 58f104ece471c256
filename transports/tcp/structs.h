// Structs that cross the table carry their own size: what the caller knows and we do not is left alone, and
// the other way round.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ringattn::tcp {

// Element `index` of an array whose first element tells the step; fields that the caller does not know are
// zero.
template <class T>
T read_struct(const T* array, std::int32_t index = 0) {
  T value{};
  const std::size_t step = array->struct_size;
  const auto* from = reinterpret_cast<const char*>(array) + step * static_cast<std::size_t>(index);
  std::memcpy(&value, from, std::min(step, sizeof(T)));
  return value;
}

template <class T>
void write_struct(T* array, std::int32_t index, T value) {
  const std::size_t step = array->struct_size;
  value.struct_size = static_cast<std::uint32_t>(step);
  std::memcpy(reinterpret_cast<char*>(array) + step * static_cast<std::size_t>(index), &value,
              std::min(step, sizeof(T)));
}

}  // namespace ringattn::tcp
