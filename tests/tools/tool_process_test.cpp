#include "tool_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

#include "tests/support/half.h"
#include "tests/support/random_data.h"

namespace ringattn::tools_test {

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "ringattn-test-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> TemporaryFolder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

namespace detail {

int start(const std::vector<std::string>& arguments, const std::filesystem::path& folder,
          const std::string& out, const std::string& err) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  pid_t process = -1;
  const int error = posix_spawn(&process, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " + arguments.front() + ": " + std::strerror(error));
  return process;
}

ToolResult finish(int process, const std::string& out, const std::string& err) {
  int status = 0;
  if (waitpid(process, &status, 0) != process) throw std::runtime_error("waitpid failed");
  ToolResult result;
  if (WIFEXITED(status)) result.exit_status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  result.out = read_file(out);
  result.err = read_file(err);
  return result;
}

void send(int process, int signal) { kill(process, signal); }

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

}  // namespace detail

namespace {

ToolResult run(const std::vector<std::string>& arguments, const std::filesystem::path& folder) {
  const TemporaryFolder outputs;
  const std::string out = outputs.file("out"), err = outputs.file("err");
  return detail::finish(detail::start(arguments, folder, out, err), out, err);
}

}  // namespace

ToolResult run_tool(const std::vector<std::string>& arguments, const std::filesystem::path& folder) {
  std::vector<std::string> all = {RINGATTN_TOOL_PATH};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run(all, folder);
}

ToolResult run_shell(const std::string& command, const std::filesystem::path& folder) {
  std::string text;
  for (const char c : command) text += c == '%' ? "'" RINGATTN_TOOL_PATH "'" : std::string(1, c);
  return run({"/bin/sh", "-c", text}, folder);
}

void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::string safetensors_bytes(std::string_view header, std::string_view data) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i));
  bytes += header;
  bytes += data;
  return bytes;
}

std::string make_safetensors(const std::vector<NamedFloats>& tensors, const std::string& metadata) {
  std::string header = "{", data;
  if (!metadata.empty()) header += "\"__metadata__\":" + metadata;
  for (const NamedFloats& tensor : tensors) {
    const std::size_t begin = data.size();
    for (const float value : tensor.values) {
      const std::uint32_t bits =
          tensor.dtype == "BF16" ? support::float_to_bf16(value) : support::bits_of(value);
      for (int i = 0; i < (tensor.dtype == "BF16" ? 2 : 4); ++i) data += static_cast<char>(bits >> (8 * i));
    }
    std::string shape;
    for (const std::int64_t size : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(size);
    header += std::string(header.size() > 1 ? "," : "") + "\"" + tensor.name + "\":{\"dtype\":\"" +
              tensor.dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" + std::to_string(begin) + "," +
              std::to_string(data.size()) + "]}";
  }
  return safetensors_bytes(header + "}", data);
}

std::vector<float> random_floats(std::int64_t count, std::uint64_t seed) {
  support::Random random(seed);
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(random.normal()));
  return values;
}

TEST(ToolProcess, ReportsExitStatusAndStreams) {
  const TemporaryFolder folder;
  const ToolResult result = run_shell("echo one; echo two >&2; exit 7", folder.path());
  EXPECT_EQ(result.exit_status, 7);
  EXPECT_EQ(result.out, "one\n");
  EXPECT_EQ(result.err, "two\n");
}

}  // namespace ringattn::tools_test
