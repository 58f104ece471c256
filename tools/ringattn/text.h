// Numbers as people read them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace ringattn::tool {

std::string grouped(std::int64_t value);         // 1,234,567
std::string bytes_text(double bytes);            // 3.28 MB; powers of 1000
std::string count_text(double count);            // 31.2 M
std::string one_line(std::string_view message);  // control characters become spaces

}  // namespace ringattn::tool
