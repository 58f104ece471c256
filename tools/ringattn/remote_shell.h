// A rank on another host: what the remote shell (ssh) is asked to do there, and what it is told through its standard
// input, so that no secret stands on a command line.
//
// The one command reads lines from its standard input and evaluates them, and the last one starts the program in a process
// group of its own. From then on each line is the name of a signal for that group; the end of the input, which also comes
// when the launcher or the connection dies, kills the group.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "run_process.h"

namespace ringattn::tool {

struct RemoteProgram {
  std::vector<std::string> environment;  // NAME=value
  std::string folder;                    // to run in
  std::vector<std::string> words;
};

// The words of `shell`, the host, and one command, as ssh takes them. It is the same for all programs.
std::vector<std::string> remote_command(const std::vector<std::string>& shell, const std::string& target);

// The lines that start the program.
std::string remote_script(const RemoteProgram& program);

// What a rank on another host gets of this environment: RINGATTN_..., and what `exported` names.
std::vector<std::string> remote_environment(const std::vector<std::string>& environment,
                                            const std::vector<std::string>& exported);

// The environment of the remote shell itself, which needs nothing of the ring.
std::vector<std::string> without_ring(const std::vector<std::string>& environment);

// A name that a shell takes for a variable.
bool is_variable_name(std::string_view text);

// The launcher's end of a remote shell's standard input. Never blocks; what cannot be delivered any more is dropped.
class RemoteInput {
 public:
  // Returns the other end. Throws RunFailed.
  Descriptor open();
  void close() { to_.close(); }

  int descriptor() const { return to_.number(); }
  bool waits() const { return to_.is_open() && !left_.empty(); }
  void add(std::string_view text);
  void write_some();
  // Once the remote shell has read everything it stays so. Before, as ssh does while it has no connection, nothing runs
  // on the other host.
  bool taken();

 private:
  Descriptor to_;
  std::string left_;
  bool taken_ = false;
};

}  // namespace ringattn::tool
