// Runs the built command line tool as a user would, and makes files for it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ringattn::tools_test {

struct ToolResult {
  int exit_status = -1;  // -1 = ended by a signal
  int signal = 0;
  std::string out, err;
};

// A folder of its own for one test, removed with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string file(std::string_view name) const { return (path_ / name).string(); }
  std::vector<std::string> names() const;  // of what is in it, sorted

 private:
  std::filesystem::path path_;
};

// Runs the tool in `folder` and waits for it.
ToolResult run_tool(const std::vector<std::string>& arguments, const std::filesystem::path& folder = ".");
// Through the shell: "%" in `command` stands for the tool.
ToolResult run_shell(const std::string& command, const std::filesystem::path& folder);

// Starts the tool, lets it run until `ready` holds (at most ten seconds), sends the signal and waits.
struct Interrupted {
  bool was_ready = false;
  ToolResult result;
};
template <typename Ready>
Interrupted interrupt_tool(const std::vector<std::string>& arguments, const std::filesystem::path& folder,
                           int signal, const Ready& ready);

void write_file(const std::string& path, std::string_view bytes);
std::string read_file(const std::string& path);

// Bytes of a safetensors file with this header, its length in front.
std::string safetensors_bytes(std::string_view header, std::string_view data);

// A tensor of F32 numbers for make_safetensors.
struct NamedFloats {
  std::string name;
  std::string dtype;  // F32 or BF16; numbers are rounded
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};
std::string make_safetensors(const std::vector<NamedFloats>& tensors, const std::string& metadata = "");

// Normal random numbers, the same everywhere.
std::vector<float> random_floats(std::int64_t count, std::uint64_t seed);

namespace detail {
int start(const std::vector<std::string>& arguments, const std::filesystem::path& folder,
          const std::string& out, const std::string& err);
ToolResult finish(int process, const std::string& out, const std::string& err);
void send(int process, int signal);
void nap();
}  // namespace detail

template <typename Ready>
Interrupted interrupt_tool(const std::vector<std::string>& arguments, const std::filesystem::path& folder,
                           int signal, const Ready& ready) {
  const TemporaryFolder outputs;
  const std::string out = outputs.file("out"), err = outputs.file("err");
  const int process = detail::start(arguments, folder, out, err);
  Interrupted interrupted;
  for (int i = 0; i < 2000 && !interrupted.was_ready; ++i) {
    interrupted.was_ready = ready();
    if (!interrupted.was_ready) detail::nap();
  }
  detail::send(process, signal);
  interrupted.result = detail::finish(process, out, err);
  return interrupted;
}

}  // namespace ringattn::tools_test
