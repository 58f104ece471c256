#include "run_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>

#include "error.h"
#include "run_output.h"
#include "run_process.h"

namespace ringattn::tool {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{5};   // between SIGTERM and SIGKILL
constexpr std::chrono::seconds kLeftovers{2};  // for what still holds the output of a rank that has ended
constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP};

struct Stream {
  Descriptor from;
  RankOutput* to;
  RankLines lines;
};

struct Rank {
  pid_t process = -1;  // not waited for while >= 0, so its number and that of its group stay its own
  bool ended = false;
  int status = 0;  // as a shell would tell it
  int signal = 0;
  Clock::time_point quiet_since;  // after the end
  std::vector<Stream> streams;
};

// While it lives the forwarded signals and SIGCHLD are read from a descriptor.
class Signals {
 public:
  Signals() {
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
  ~Signals() { restore(); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int descriptor() const { return from_.number(); }
  const sigset_t& mask_before() const { return mask_; }
  // The next one that is pending, 0 = none.
  int take() {
    signalfd_siginfo one{};
    return ::read(from_.number(), &one, sizeof one) == sizeof one ? static_cast<int>(one.ssi_signo) : 0;
  }

 private:
  void restore() {
    sigprocmask(SIG_SETMASK, &mask_, nullptr);
    sigaction(SIGCHLD, &child_action_, nullptr);
  }
  sigset_t mask_{};
  struct sigaction child_action_ {};
  Descriptor from_;
};

// Room for two pipes a rank, given back at the end.
class OpenFiles {
 public:
  explicit OpenFiles(int ranks) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlim_t needed = 2 * static_cast<rlim_t>(ranks) + 64;
    if (before_.rlim_cur >= needed) return;
    rlimit raised = before_;
    raised.rlim_cur = needed;
    if (before_.rlim_max < needed || setrlimit(RLIMIT_NOFILE, &raised) != 0) {
      throw BadInput(
          fmt::format("-n {}: needs {} open files, the system allows {} (with --no-prefix none are needed)",
                      ranks, needed, before_.rlim_max));
    }
  }
  ~OpenFiles() { setrlimit(RLIMIT_NOFILE, &before_); }
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;

  const rlimit& before() const { return before_; }

 private:
  rlimit before_{};
};

class Ranks {
 public:
  explicit Ranks(const RanksToRun& what) : open_files_(what.prefix ? what.ranks : 0) { start(what); }
  ~Ranks() {  // after an error ranks are left
    for (Rank& rank : ranks_) {
      if (rank.process < 0) continue;
      kill(-rank.process, SIGKILL);
      waitpid(rank.process, nullptr, 0);
    }
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int finish() {
    while (anybody_left()) {
      wait(next_deadline());
      look_for_ends();
      stop_in_time();
      clear_up();
    }
    while (!gave_up_ && !(out_.empty() && err_.empty())) wait(std::nullopt);
    return status_;
  }

 private:
  void start(const RanksToRun& what) {
    // Only rank 0 may read what the launcher was given, and nobody a terminal: it belongs to the launcher's group.
    const Descriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!nothing.is_open()) throw RunFailed(fmt::format("/dev/null: {}", std::strerror(errno)));
    ProcessStart start;
    start.program = what.program;
    start.signal_mask = signals_.mask_before();
    start.open_files = open_files_.before();
    ranks_.reserve(static_cast<std::size_t>(what.ranks));
    for (int number = 0; number < what.ranks; ++number) {
      Rank rank;
      Pipe out, err;
      start.in = number == 0 && isatty(STDIN_FILENO) == 0 ? STDIN_FILENO : nothing.number();
      if (what.prefix) {
        out = make_pipe();
        err = make_pipe();
        start.out = out.write.number();
        start.err = err.write.number();
      }
      start.environment = what.environment;
      start.environment.push_back(fmt::format("RINGATTN_RANK={}", number));
      start.environment.push_back(fmt::format("RINGATTN_LOCAL_RANK={}", number));
      rank.process = start_process(start);
      if (what.prefix) {
        rank.streams.push_back({std::move(out.read), &out_, RankLines(number, out_)});
        rank.streams.push_back({std::move(err.read), &err_, RankLines(number, err_)});
      }
      ranks_.push_back(std::move(rank));
    }
  }

  bool anybody_left() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.process >= 0; });
  }

  void send(int number) {
    for (const Rank& rank : ranks_) {
      if (rank.process >= 0) kill(-rank.process, number);
    }
  }

  std::optional<Clock::time_point> next_deadline() const {
    std::optional<Clock::time_point> next;
    if (kill_at_ && !killed_) next = kill_at_;
    for (const Rank& rank : ranks_) {
      if (rank.process < 0 || !rank.ended) continue;
      const Clock::time_point over = rank.quiet_since + kLeftovers;
      if (!next || over < *next) next = over;
    }
    return next;
  }

  // Until something can be read or written, a signal comes or it is time; does what can be done.
  void wait(std::optional<Clock::time_point> deadline) {
    std::vector<pollfd> polled = {{signals_.descriptor(), POLLIN, 0}};
    std::vector<Stream*> streams;
    for (Rank& rank : ranks_) {
      for (Stream& stream : rank.streams) {
        if (!stream.from.is_open() || stream.to->full()) continue;
        polled.push_back({stream.from.number(), POLLIN, 0});
        streams.push_back(&stream);
      }
    }
    const std::size_t first_output = polled.size();
    std::vector<RankOutput*> outputs;
    for (RankOutput* output : {&out_, &err_}) {
      const RankOutput& other = output == &out_ ? err_ : out_;
      if (output->empty() || (other.within_line() && !other.empty())) continue;
      polled.push_back({output->descriptor(), POLLOUT, 0});
      outputs.push_back(output);
    }
    int milliseconds = -1;
    if (deadline) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now());
      milliseconds = static_cast<int>(std::max<std::int64_t>(0, left.count()));
    }
    if (poll(polled.data(), polled.size(), milliseconds) < 0) {
      if (errno == EINTR) return;
      throw RunFailed(fmt::format("poll: {}", std::strerror(errno)));
    }
    for (int number = signals_.take(); number != 0; number = signals_.take()) {
      if (number == SIGCHLD) continue;
      send(number);
      gave_up_ = !anybody_left();  // only output is left, which nobody takes
    }
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if (polled[1 + i].revents != 0) read_some(*streams[i]);
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (polled[first_output + i].revents != 0) outputs[i]->write_some();
    }
  }

  static void read_some(Stream& stream) {
    char bytes[16384];
    const ssize_t got = ::read(stream.from.number(), bytes, sizeof bytes);
    if (got > 0) {
      stream.lines.add({bytes, static_cast<std::size_t>(got)});
    } else if (got == 0 || errno != EINTR) {
      stream.lines.end();
      stream.from.close();
    }
  }

  // Notes who has ended. Of several at once a signal is the likelier cause: peers of a rank that died end by
  // themselves, with a status.
  void look_for_ends() {
    std::optional<std::size_t> failed;
    for (std::size_t number = 0; number < ranks_.size(); ++number) {
      Rank& rank = ranks_[number];
      siginfo_t info{};
      if (rank.process < 0 || rank.ended) continue;
      if (waitid(P_PID, static_cast<id_t>(rank.process), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
          info.si_pid == 0)
        continue;
      rank.ended = true;
      rank.quiet_since = Clock::now();
      rank.signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
      rank.status = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
      if (rank.status != 0 && (!failed || (rank.signal != 0 && ranks_[*failed].signal == 0))) failed = number;
    }
    if (failed && status_ == 0) begin_the_end(*failed);
  }

  void begin_the_end(std::size_t number) {
    const Rank& rank = ranks_[number];
    status_ = rank.status;
    const bool others =
        std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& each) { return !each.ended; });
    const std::string how =
        rank.signal != 0 ? fmt::format("was killed by signal {} ({})", rank.signal, strsignal(rank.signal))
                         : fmt::format("exited with status {}", rank.status);
    err_.add(fmt::format("ringattn: rank {} {}{}\n", number, how, others ? "; ending the others" : ""));
    send(SIGTERM);
    kill_at_ = Clock::now() + kPatience;
  }

  void stop_in_time() {
    if (!kill_at_ || killed_ || Clock::now() < *kill_at_) return;
    send(SIGKILL);
    killed_ = true;
  }

  // A rank is over when it has ended and nobody holds its output any more, or nothing has come from there for a
  // while; what is left of its group then dies.
  void clear_up() {
    for (Rank& rank : ranks_) {
      if (rank.process < 0 || !rank.ended) continue;
      const Clock::time_point now = Clock::now();
      bool open = false;
      for (Stream& stream : rank.streams) {
        open |= stream.from.is_open();
        pollfd more = {stream.from.number(), POLLIN, 0};  // also what is not read, as its output is full
        if (!killed_ && stream.from.is_open() && poll(&more, 1, 0) > 0) rank.quiet_since = now;
      }
      if (open && now < rank.quiet_since + kLeftovers) continue;
      for (Stream& stream : rank.streams) {
        if (!stream.from.is_open()) continue;
        stream.lines.end();
        stream.from.close();
      }
      kill(-rank.process, SIGKILL);
      waitpid(rank.process, nullptr, 0);
      rank.process = -1;
    }
  }

  Signals signals_;
  OpenFiles open_files_;
  RankOutput out_{STDOUT_FILENO}, err_{STDERR_FILENO};
  std::vector<Rank> ranks_;
  int status_ = 0;
  std::optional<Clock::time_point> kill_at_;
  bool killed_ = false;
  bool gave_up_ = false;
};

// A pipe must not get the number of a standard stream that the launcher was started without.
void fill_standard_descriptors() {
  int number = 0;
  do {
    number = open("/dev/null", O_RDWR);
  } while (number >= 0 && number <= STDERR_FILENO);
  if (number >= 0) close(number);
}

}  // namespace

int run_ranks(const RanksToRun& what) {
  fill_standard_descriptors();
  return Ranks(what).finish();
}

}  // namespace ringattn::tool
