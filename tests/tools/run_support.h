// What the tests of `ringattn run` share.
#pragma once
#include <gtest/gtest.h>
#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <sstream>
#include <string>
#include <vector>

#include "tool_process.h"

namespace ringattn::tools_test {

using Lines = std::vector<std::string>;

inline Lines sorted_lines(const std::string& text) {
  Lines lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

// Is the process whose number stands in this file gone? A moment is allowed: a killer does not wait.
inline bool is_gone(const std::string& file) {
  const pid_t process = static_cast<pid_t>(std::stol(read_file(file)));
  for (int i = 0; i < 400; ++i) {
    if (kill(process, 0) != 0 && errno == ESRCH) return true;
    // A zombie whose parent, here whoever adopted it, is slow to wait is as good as gone.
    const std::string stat = read_file("/proc/" + std::to_string(process) + "/stat");
    const std::size_t name_end = stat.rfind(") ");
    if (name_end != std::string::npos && stat[name_end + 2] == 'Z') return true;
    detail::nap();
  }
  return false;
}

inline void expect_refused(const std::vector<std::string>& words, const std::string& message) {
  const ToolResult result = run_tool(words);
  EXPECT_EQ(result.exit_status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "ringattn: " + message + "\n");
}

}  // namespace ringattn::tools_test
