#include "run_signals.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "error.h"

namespace ringattn::tool {
namespace {

constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP};
constexpr rlim_t kOwnFiles = 64;

}  // namespace

Signals::Signals() {
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &usual, &child_action_);  // ignored, ranks would vanish without their status
  sigset_t taken;
  sigemptyset(&taken);
  sigaddset(&taken, SIGCHLD);
  for (const int number : kForwarded) sigaddset(&taken, number);
  sigprocmask(SIG_BLOCK, &taken, &mask_);
  from_ = Descriptor(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  if (from_.is_open()) return;
  const int error = errno;
  restore();
  throw RunFailed(fmt::format("signalfd: {}", std::strerror(error)));
}

int Signals::take() {
  signalfd_siginfo one{};
  return ::read(from_.number(), &one, sizeof one) == sizeof one ? static_cast<int>(one.ssi_signo) : 0;
}

void Signals::restore() {
  sigprocmask(SIG_SETMASK, &mask_, nullptr);
  sigaction(SIGCHLD, &child_action_, nullptr);
}

OpenFiles::OpenFiles(int needed, int ranks) {
  getrlimit(RLIMIT_NOFILE, &before_);
  const rlim_t wanted = static_cast<rlim_t>(needed) + kOwnFiles;
  if (before_.rlim_cur >= wanted) return;
  rlimit raised = before_;
  raised.rlim_cur = wanted;
  if (before_.rlim_max < wanted || setrlimit(RLIMIT_NOFILE, &raised) != 0) {
    throw BadInput(fmt::format(
        "-n {}: needs {} open files, the system allows {} (with --no-prefix two fewer for each rank)", ranks,
        wanted, before_.rlim_max));
  }
}

}  // namespace ringattn::tool
