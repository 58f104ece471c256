#include "tests/faults/process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

#include "tests/faults/worker.h"

namespace ringattn::faults {
namespace {

constexpr int kSpare = 64;  // above every descriptor that has a fixed place

bool enter(const Whereabouts& where) {
  return (where.network < 0 || ::setns(where.network, CLONE_NEWNET) == 0) &&
         (where.names < 0 || ::setns(where.names, CLONE_NEWUTS) == 0) &&
         (where.mounts < 0 || ::setns(where.mounts, CLONE_NEWNS) == 0);
}

// Between fork and exec of a program with threads: system calls alone.
[[noreturn]] void become_worker(const char* number, int channel, int board, const Whereabouts& where) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int high_channel = ::fcntl(channel, F_DUPFD, kSpare), high_board = ::fcntl(board, F_DUPFD, kSpare);
  const bool ready = enter(where) && ::dup2(high_channel, kChannelDescriptor) >= 0 &&
                     ::dup2(high_board, kBoardDescriptor) >= 0;
  if (!ready) ::_exit(126);
  ::close(high_channel);
  ::close(high_board);
  ::execl("/proc/self/exe", "ringattn_faults", "worker", number, static_cast<char*>(nullptr));
  ::_exit(127);
}

}  // namespace

RankProcess::RankProcess(int process, int board_fd, const Whereabouts& where) : process_(process) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) throw Failure("no socket pair");
  channel_ = Channel(ends[0]);
  const std::string number = std::to_string(process);
  pid_ = ::fork();
  if (pid_ == 0) become_worker(number.c_str(), ends[1], board_fd, where);
  ::close(ends[1]);
  if (pid_ < 0) throw Failure("no process");
}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : process_(other.process_),
      pid_(std::exchange(other.pid_, -1)),
      channel_(std::move(other.channel_)),
      last_order_(std::move(other.last_order_)) {}

RankProcess::~RankProcess() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void RankProcess::order(const Message& message) {
  last_order_ = message.verb;
  if (!channel_.send(message))
    throw Failure("process " + std::to_string(process_) + " is gone before '" + message.verb + "'");
}

bool RankProcess::hear(Message& answer, Clock::time_point deadline) {
  const Heard heard = channel_.hear(answer, deadline);
  if (heard == Heard::gone)
    throw Failure("process " + std::to_string(process_) + " (pid " + std::to_string(pid_) + ") died in '" +
                  last_order_ + "'");
  return heard == Heard::message;
}

void RankProcess::hang() const {
  throw Failure("process " + std::to_string(process_) + " (pid " + std::to_string(pid_) + ") hangs in '" +
                    last_order_ + "'",
                true);
}

void RankProcess::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

int RankProcess::reap(Clock::time_point deadline) {
  if (pid_ <= 0) return -1;
  int status = 0;
  while (::waitpid(pid_, &status, WNOHANG) == 0) {
    if (Clock::now() >= deadline)
      throw Failure("process " + std::to_string(process_) + " does not end after '" + last_order_ + "'",
                    true);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace ringattn::faults
