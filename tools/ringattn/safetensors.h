// Files of named tensors: a 64-bit little-endian header length, a JSON header, then the data of all tensors.
// https://huggingface.co/docs/safetensors; the reader trusts nothing in the file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ringattn::tool {

class OutputFile;

inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // as the format's own reader
inline constexpr std::size_t kMaxTensorAxes = 16;

struct StoredTensor {
  std::string name;
  std::string dtype;  // as spelled in the file: "F32", "BF16", ...
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;  // any alignment
};

struct SafetensorsContent {
  std::map<std::string, StoredTensor, std::less<>> tensors;
  std::map<std::string, std::string, std::less<>> metadata;
};

// Reads the tensors of a whole file that lies in memory; they point into `file`. Throws BadInput with one
// line.
SafetensorsContent parse_safetensors(std::span<const std::byte> file);

// A file mapped read-only. Messages begin with its path.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const std::map<std::string, std::string, std::less<>>& metadata() const { return content_.metadata; }
  const StoredTensor* find(std::string_view name) const;  // NULL where there is none
  const StoredTensor& at(std::string_view name) const;    // throws BadInput where there is none
  bool is_same_file(const std::string& path) const;       // also under another name

 private:
  void map(int descriptor);

  std::string path_;
  void* mapped_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint64_t device_ = 0, inode_ = 0;
  SafetensorsContent content_;
};

// Writes all but the commit; the order in the file is that of the list.
void write_safetensors(OutputFile& file, const std::vector<StoredTensor>& tensors,
                       const std::map<std::string, std::string, std::less<>>& metadata);

// Text from a file, fit for one line of a terminal: control bytes and bytes beyond ASCII are escaped, long
// text is cut.
std::string printable(std::string_view text);

}  // namespace ringattn::tool
