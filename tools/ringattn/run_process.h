// One rank of `ringattn run`: a process in a process group of its own.
#pragma once
#include <sys/resource.h>
#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

namespace ringattn::tool {

// A descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : number_(other.number_) { other.number_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;

  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }
  void close();

 private:
  int number_ = -1;
};

struct Pipe {
  Descriptor read, write;
};
// Both ends are closed by exec. Throws RunFailed.
Pipe make_pipe();

struct ProcessStart {
  const char* what = "program";          // for messages
  std::vector<std::string> program;      // [0] is looked for in PATH
  std::vector<std::string> environment;  // NAME=value
  int in = 0, out = 1, err = 2;          // become its descriptors 0, 1, 2
  sigset_t signal_mask{};
  rlimit open_files{};
};

// Its process group has the number of the process. It gets SIGKILL when the calling thread ends. Returns when the
// program runs; throws BadInput where it cannot be run, RunFailed where the system has no room for a process.
pid_t start_process(const ProcessStart& start);

}  // namespace ringattn::tool
