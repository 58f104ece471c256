#include "remote_shell.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "error.h"

namespace ringattn::tool {
namespace {

// For whatever shell the user has there: one line, no '!', no single quote within. Variables are ours by their names.
constexpr const char* kLoader = R"(exec /bin/sh -c 'ringattn_n=$(printf "\nx"); ringattn_n=${ringattn_n%x}; )"
                                R"(while IFS= read -r ringattn_l; do eval "$ringattn_l"; done; exit 255')";

// The left side of the pipe tells the right one the group's number, then the exit status. It is not a background job:
// these ignore SIGINT. Descriptor 3 is what the launcher says; 5 and 6 are the program's output and error, as this shell's
// own words about how the program ended are nobody's. As here, what the program has left in its group has two seconds.
constexpr const char* kStart =
    R"(exec 3<&0 5>&1 6>&2 0</dev/null; )"
    R"({ (setsid /bin/sh -c 'echo $$ >&4; exec 4>&-; exec "$@"' sh {} 4>&1 >&5 2>&6 3<&- 5>&- 6>&-); )"
    R"(echo $? 5>&- 6>&-; } 3<&- 2>/dev/null | { IFS= read -r g; )"
    R"({ while IFS= read -r s; do kill -s "$s" -- -$g; done; kill -s KILL -- -$g; } <&3 3<&- >/dev/null & )"
    R"(w=$!; exec 3<&-; IFS= read -r status; kill $w; )"
    R"(i=0; while [ $i -lt 20 ] && kill -s 0 -- -$g; do sleep 0.1; i=$((i+1)); done; kill -s KILL -- -$g; )"
    R"(exit $status; } 2>/dev/null 5>&- 6>&-; exit)";

// As one word of a line: a newline is in a variable that the loader has set.
std::string shell_word(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += R"('\'')";
    } else if (c == '\n') {
      out += R"('"$ringattn_n"')";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string_view name_of(std::string_view assignment) { return assignment.substr(0, assignment.find('=')); }

bool is_of_ring(std::string_view assignment) { return assignment.rfind("RINGATTN_", 0) == 0; }

}  // namespace

bool is_variable_name(std::string_view text) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !text.empty() && !(text.front() >= '0' && text.front() <= '9') &&
         std::all_of(text.begin(), text.end(), is_letter);
}

std::vector<std::string> remote_command(const std::vector<std::string>& shell, const std::string& target) {
  std::vector<std::string> words = shell;
  words.push_back(target);
  words.emplace_back(kLoader);
  return words;
}

std::string remote_script(const RemoteProgram& program) {
  std::string lines;
  for (const std::string& variable : program.environment) {
    const std::string_view name = name_of(variable);
    lines +=
        fmt::format("export {}={}\n", name, shell_word(std::string_view(variable).substr(name.size() + 1)));
  }
  lines += fmt::format("cd -- {} || exit 3\n", shell_word(program.folder));
  std::string words;
  for (const std::string& word : program.words) words += (words.empty() ? "" : " ") + shell_word(word);
  const std::string_view start = kStart;
  const std::size_t hole = start.find("{}");
  lines.append(start.substr(0, hole)).append(words).append(start.substr(hole + 2)).append("\n");
  return lines;
}

std::vector<std::string> remote_environment(const std::vector<std::string>& environment,
                                            const std::vector<std::string>& exported) {
  std::vector<std::string> out;
  for (const std::string& variable : environment) {
    const std::string_view name = name_of(variable);
    const bool wanted =
        is_of_ring(variable) || std::find(exported.begin(), exported.end(), name) != exported.end();
    if (wanted && is_variable_name(name) && name.size() < variable.size()) out.push_back(variable);
  }
  return out;
}

std::vector<std::string> without_ring(const std::vector<std::string>& environment) {
  std::vector<std::string> out;
  std::copy_if(environment.begin(), environment.end(), std::back_inserter(out),
               [](const std::string& variable) { return !is_of_ring(variable); });
  return out;
}

// A socket, as a write to a pipe that nobody reads any more would be a signal.
Descriptor RemoteInput::open() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw RunFailed(fmt::format("cannot make a socket: {}", std::strerror(errno)));
  to_ = Descriptor(ends[0]);
  return Descriptor(ends[1]);
}

void RemoteInput::add(std::string_view text) {
  left_ += text;
  write_some();
}

void RemoteInput::write_some() {
  while (waits()) {
    const ssize_t sent = ::send(to_.number(), left_.data(), left_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      left_.erase(0, static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR) {
      to_.close();
    }
  }
}

bool RemoteInput::taken() {
  int unread = 0;
  if (!taken_ && to_.is_open() && left_.empty())
    taken_ = ioctl(to_.number(), SIOCOUTQ, &unread) == 0 && unread == 0;
  return taken_;
}

}  // namespace ringattn::tool
