// The rule for every public struct (ringattn.h section 3) in one place.
#pragma once
#include <algorithm>
#include <cstring>
#include <string>

#include "base/status.h"

namespace ringattn::api {

// A size beyond this is garbage, not a newer header: its bytes are not even looked at.
inline constexpr std::uint32_t kMostStructBytes = 4096;

template <typename T>
Status check_struct_size(const T* in, const char* name) {
  const std::uint32_t size = in->struct_size;
  if (size >= sizeof(T) && size <= kMostStructBytes) return {};
  return {RINGATTN_ERR_STRUCT_SIZE, std::string(name) + ".struct_size: " + std::to_string(size) +
                                        ", expected sizeof = " + std::to_string(sizeof(T)) + " (at most " +
                                        std::to_string(kMostStructBytes) + ")"};
}

template <typename T>
Status read_struct(const T* in, const char* name, T& out) {
  if (in == nullptr) return invalid(std::string(name) + ": NULL, expected a struct");
  RINGATTN_TRY(check_struct_size(in, name));
  std::memcpy(&out, in, sizeof(T));
  const unsigned char* bytes = reinterpret_cast<const unsigned char*>(in);
  for (std::uint32_t i = sizeof(T); i < in->struct_size; ++i) {
    if (bytes[i] != 0) {
      return {RINGATTN_ERR_STRUCT_SIZE,
              std::string(name) + ": byte " + std::to_string(i) +
                  " of a newer header is not zero, expected only options that this version knows"};
    }
  }
  return {};
}

// The i-th of an array that steps by the caller's struct_size.
template <typename T>
const T* array_at(const T* first, std::int64_t i) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) +
                                    i * static_cast<std::int64_t>(first->struct_size));
}

// Writes up to the smaller of both sizes; struct_size stays the caller's.
template <typename T>
void write_struct(const T& value, T* out) {
  const std::uint32_t size = out->struct_size;
  std::memcpy(out, &value, std::min<std::size_t>(size, sizeof(T)));
  out->struct_size = size;
}

}  // namespace ringattn::api
