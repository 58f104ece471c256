// The JSON header of a safetensors file, read event by event: what does not belong there is refused at once,
// so a hostile header costs no more memory than its own size.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ringattn::tool {

struct HeaderEntry {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // in the data, which follows the header
};

struct SafetensorsHeader {
  std::vector<HeaderEntry> entries;  // in the order of the header
  std::map<std::string, std::string, std::less<>> metadata;
};

// Throws BadInput. Checks the form of the header, not what the offsets mean.
SafetensorsHeader parse_safetensors_header(std::string_view json);

}  // namespace ringattn::tool
