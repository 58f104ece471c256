#include "safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "error.h"
#include "output_file.h"
#include "safetensors_header.h"

namespace ringattn::tool {
namespace {

constexpr std::size_t kLengthBytes = 8;

struct Descriptor {
  int value;
  ~Descriptor() { close(value); }
};

// Bits of one element; nothing for a type that the format does not have.
std::optional<std::uint64_t> bits_of(std::string_view dtype) {
  struct Row {
    std::string_view name;
    std::uint64_t bits;
  };
  static constexpr Row rows[] = {
      {"BOOL", 8},    {"U8", 8},   {"I8", 8},      {"F8_E5M2", 8}, {"F8_E4M3", 8},
      {"F8_E8M0", 8}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"I16", 16},
      {"U16", 16},    {"F16", 16}, {"BF16", 16},   {"I32", 32},    {"U32", 32},
      {"F32", 32},    {"I64", 64}, {"U64", 64},    {"F64", 64},    {"C64", 64},
  };
  for (const Row& row : rows) {
    if (row.name == dtype) return row.bits;
  }
  return std::nullopt;
}

// Bytes that dtype and shape ask for.
std::uint64_t bytes_of(const HeaderEntry& entry) {
  const auto bits = bits_of(entry.dtype);
  if (!bits) {
    throw BadInput(
        fmt::format("tensor \"{}\": unknown dtype \"{}\"", printable(entry.name), printable(entry.dtype)));
  }
  std::uint64_t total = *bits;
  // A size of 0 makes the tensor empty whatever its other sizes are, so it is not an overflow.
  if (std::find(entry.shape.begin(), entry.shape.end(), 0) != entry.shape.end()) return 0;
  for (const std::int64_t size : entry.shape) {
    if (__builtin_mul_overflow(total, static_cast<std::uint64_t>(size), &total)) {
      throw BadInput(fmt::format("tensor \"{}\": shape [{}] is too large for 64 bits", printable(entry.name),
                                 fmt::join(entry.shape, ", ")));
    }
  }
  if (total % 8 != 0) {
    throw BadInput(fmt::format("tensor \"{}\": {} bits are not whole bytes", printable(entry.name), total));
  }
  return total / 8;
}

void check_sizes(const SafetensorsHeader& header, std::uint64_t data_bytes) {
  for (const HeaderEntry& entry : header.entries) {
    if (entry.begin > entry.end || entry.end > data_bytes) {
      throw BadInput(fmt::format("tensor \"{}\": data_offsets [{}, {}] lie outside the {} bytes of data",
                                 printable(entry.name), entry.begin, entry.end, data_bytes));
    }
    const std::uint64_t bytes = bytes_of(entry);
    if (entry.end - entry.begin != bytes) {
      throw BadInput(fmt::format("tensor \"{}\": data_offsets hold {} bytes, but {} [{}] takes {}",
                                 printable(entry.name), entry.end - entry.begin, entry.dtype,
                                 fmt::join(entry.shape, ", "), bytes));
    }
  }
}

// The format allows neither overlaps nor holes: each byte of the data belongs to one tensor.
void check_cover(const SafetensorsHeader& header, std::uint64_t data_bytes) {
  std::vector<const HeaderEntry*> by_place;
  for (const HeaderEntry& entry : header.entries) by_place.push_back(&entry);
  std::sort(by_place.begin(), by_place.end(), [](const HeaderEntry* a, const HeaderEntry* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
  });
  std::uint64_t covered = 0;
  for (const HeaderEntry* entry : by_place) {
    if (entry->begin != covered) {
      throw BadInput(fmt::format("tensor \"{}\": data begins at {}, {} where the tensor before it ends at {}",
                                 printable(entry->name), entry->begin,
                                 entry->begin < covered ? "an overlap" : "a hole", covered));
    }
    covered = entry->end;
  }
  if (covered != data_bytes) {
    throw BadInput(fmt::format("{} bytes of data, but the tensors take {}", data_bytes, covered));
  }
}

}  // namespace

std::string printable(std::string_view text) {
  constexpr std::size_t most = 64;
  std::string out;
  for (const char c : text.substr(0, most)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '"' && c != '\\') {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  if (text.size() > most) out += "...";
  return out;
}

SafetensorsContent parse_safetensors(std::span<const std::byte> file) {
  if (file.size() < kLengthBytes) {
    throw BadInput(fmt::format("{} bytes are too few for a safetensors file", file.size()));
  }
  std::uint64_t header_bytes = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    header_bytes |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  }
  const std::uint64_t rest = file.size() - kLengthBytes;
  if (header_bytes > kMaxHeaderBytes) {
    throw BadInput(fmt::format("header length {} is above the limit of {} (not a safetensors file?)",
                               header_bytes, kMaxHeaderBytes));
  }
  if (header_bytes > rest) {
    throw BadInput(
        fmt::format("header length {} is beyond the end of the file, {} bytes follow", header_bytes, rest));
  }
  const std::string_view json(reinterpret_cast<const char*>(file.data()) + kLengthBytes, header_bytes);
  if (json.empty() || json.front() != '{') throw BadInput("the header does not begin with '{'");

  SafetensorsHeader header = parse_safetensors_header(json);
  const std::span<const std::byte> data = file.subspan(kLengthBytes + header_bytes);
  check_sizes(header, data.size());
  check_cover(header, data.size());

  SafetensorsContent content;
  content.metadata = std::move(header.metadata);
  for (HeaderEntry& entry : header.entries) {
    StoredTensor tensor{entry.name, std::move(entry.dtype), std::move(entry.shape),
                        data.subspan(entry.begin, entry.end - entry.begin)};
    content.tensors.emplace(std::move(entry.name), std::move(tensor));
  }
  return content;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  const Descriptor descriptor{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (descriptor.value < 0) throw BadInput(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  map(descriptor.value);
  try {
    content_ = parse_safetensors({static_cast<const std::byte*>(mapped_), bytes_});
  } catch (const BadInput& error) {
    if (mapped_ != nullptr) munmap(mapped_, bytes_);
    throw BadInput(fmt::format("{}: {}", path, error.what()));
  }
}

void SafetensorsFile::map(int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) {
    throw BadInput(fmt::format("cannot read {}: {}", path_, std::strerror(errno)));
  }
  if (!S_ISREG(status.st_mode)) throw BadInput(fmt::format("{} is not a regular file", path_));
  device_ = status.st_dev;
  inode_ = status.st_ino;
  bytes_ = static_cast<std::size_t>(status.st_size);
  if (bytes_ == 0) return;  // an empty mapping is not possible; the parser says what is wrong
  mapped_ = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (mapped_ == MAP_FAILED) {
    mapped_ = nullptr;
    throw RunFailed(fmt::format("cannot map {}: {}", path_, std::strerror(errno)));
  }
}

SafetensorsFile::~SafetensorsFile() {
  if (mapped_ != nullptr) munmap(mapped_, bytes_);
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto place = content_.tensors.find(name);
  return place == content_.tensors.end() ? nullptr : &place->second;
}

const StoredTensor& SafetensorsFile::at(std::string_view name) const {
  if (const StoredTensor* tensor = find(name)) return *tensor;
  std::string present;
  for (const auto& [other, tensor] : content_.tensors) {
    if (present.size() > 200) {
      present += ", ...";
      break;
    }
    present += (present.empty() ? "" : ", ") + printable(other);
  }
  throw BadInput(fmt::format("{}: no tensor \"{}\"; the file has {}", path_, name,
                             present.empty() ? "no tensors" : present));
}

bool SafetensorsFile::is_same_file(const std::string& path) const {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

void write_safetensors(OutputFile& file, const std::vector<StoredTensor>& tensors,
                       const std::map<std::string, std::string, std::less<>>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const StoredTensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.data.size()}}};
    offset += tensor.data.size();
  }
  std::string text = header.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  while ((kLengthBytes + text.size()) % 64 != 0) text += ' ';  // the data begins aligned

  std::string length(kLengthBytes, '\0');
  for (std::size_t i = 0; i < kLengthBytes; ++i) length[i] = static_cast<char>(text.size() >> (8 * i));
  file.write(length);
  file.write(text);
  for (const StoredTensor& tensor : tensors) file.write(tensor.data.data(), tensor.data.size());
}

}  // namespace ringattn::tool
