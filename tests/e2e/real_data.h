// The tensors of a real language model beside their fp64 answers (shared/data/README.md).
#pragma once

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "tests/support/host_tensor.h"
#include "tools/ringattn/safetensors.h"

namespace ringattn::support {

inline std::string data_folder() {
  const char* folder = std::getenv("RINGATTN_TEST_DATA");
  return folder != nullptr ? folder : RINGATTN_SOURCE_DIR "/../shared/data";
}

inline HostTensor tensor_of(const tool::SafetensorsFile& file, const char* name, ringattn_dtype dtype,
                            std::array<std::int64_t, 4> shape) {
  const tool::StoredTensor& stored = file.at(name);
  HostTensor tensor(dtype, shape);
  const auto bytes = static_cast<std::size_t>(tensor.size() * dtype_size(dtype));
  if (stored.data.size() != bytes) throw std::runtime_error(std::string(name) + " has an unexpected size");
  std::memcpy(tensor.data(), stored.data.data(), bytes);
  return tensor;
}

}  // namespace ringattn::support
