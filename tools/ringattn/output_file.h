// A file that appears whole or not at all: written under a temporary name in the same folder, then renamed.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace ringattn::tool {

// Removes the temporary files of this process on SIGINT, SIGTERM and SIGHUP and then dies of that signal;
// ends with one line where an input file shrinks while it is mapped (SIGBUS). Called once, by main.
void install_signal_handlers();

class OutputFile {
 public:
  explicit OutputFile(std::string path);  // throws BadInput where it cannot be made
  ~OutputFile();                          // removes the temporary file unless committed
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::string path_;
  std::string temporary_;
  int slot_ = -1;
  int descriptor_ = -1;
};

// Writes one whole text file.
void write_text_file(const std::string& path, std::string_view text);

}  // namespace ringattn::tool
