#include "run_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "error.h"

namespace ringattn::tool {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

// Between fork and exec. Returns only where the program cannot be run, with the reason.
int become(const ProcessStart& start, char* const* argv, char* const* envp, pid_t launcher) {
  setpgid(0, 0);
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return errno;
  if (getppid() != launcher) _exit(128 + SIGKILL);  // it died before that call
  if (dup2(start.in, STDIN_FILENO) < 0 || dup2(start.out, STDOUT_FILENO) < 0 ||
      dup2(start.err, STDERR_FILENO) < 0)
    return errno;
  signal(SIGXFSZ, SIG_DFL);  // the tool ignores it
  if (setrlimit(RLIMIT_NOFILE, &start.open_files) != 0) return errno;
  if (sigprocmask(SIG_SETMASK, &start.signal_mask, nullptr) != 0) return errno;
  execvpe(argv[0], argv, envp);
  return errno;
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    close();
    number_ = std::exchange(other.number_, -1);
  }
  return *this;
}

void Descriptor::close() {
  if (number_ >= 0) ::close(number_);
  number_ = -1;
}

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw RunFailed(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

pid_t start_process(const ProcessStart& start) {
  const std::vector<char*> argv = pointers(start.program), envp = pointers(start.environment);
  Pipe reason = make_pipe();
  const pid_t launcher = getpid();
  const pid_t process = fork();
  if (process < 0) throw RunFailed(fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (process == 0) {
    const int error = become(start, argv.data(), envp.data(), launcher);
    [[maybe_unused]] const ssize_t written = ::write(reason.write.number(), &error, sizeof error);
    _exit(127);
  }
  setpgid(process, process);  // also here: who is first does not matter, and a signal may be sent at once
  reason.write.close();
  int error = 0;
  ssize_t got = 0;
  do {
    got = ::read(reason.read.number(), &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof error) return process;
  waitpid(process, nullptr, 0);
  const std::string& name = start.program.front();
  if (error == ENOENT && name.find('/') == std::string::npos)
    throw BadInput(fmt::format("{} \"{}\": not found in PATH", start.what, name));
  throw BadInput(fmt::format("{} \"{}\": cannot be run: {}", start.what, name, std::strerror(error)));
}

}  // namespace ringattn::tool
