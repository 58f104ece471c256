#include "run_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

#include "error.h"
#include "remote_shell.h"
#include "run_output.h"
#include "run_process.h"
#include "run_signals.h"

namespace ringattn::tool {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{5};   // between SIGTERM and SIGKILL
constexpr std::chrono::seconds kLeftovers{2};  // for what still holds the output of a rank that has ended
constexpr std::chrono::seconds kFarewell{3};   // for a remote shell, after the end of its input
constexpr int kConnectionFailed = 255;         // what ssh returns then

struct Stream {
  Descriptor from;
  RankOutput* to;
  RankLines lines;
};

struct Rank {
  std::string target;  // of another host; "" = this machine
  RemoteInput input;   // of its remote shell
  pid_t process = -1;  // not waited for while >= 0, so its number and that of its group stay its own
  bool ended = false;
  int status = 0;  // as a shell would tell it
  int signal = 0;
  Clock::time_point quiet_since;  // after the end
  std::vector<Stream> streams;
};

// It stays to be waited for.
bool has_ended(pid_t process, siginfo_t& how) {
  return waitid(P_PID, static_cast<id_t>(process), &how, WEXITED | WNOHANG | WNOWAIT) == 0 && how.si_pid != 0;
}

const char* signal_name(int number) { return number == SIGINT ? "INT" : number == SIGHUP ? "HUP" : "TERM"; }

int descriptors(const RanksToRun& what) {
  const auto far =
      std::count_if(what.seats.begin(), what.seats.end(), [](const Seat& seat) { return !seat.here(); });
  return static_cast<int>(far) + (what.prefix ? 2 * static_cast<int>(what.seats.size()) : 0);
}

class Ranks {
 public:
  explicit Ranks(const RanksToRun& what)
      : what_(what), open_files_(descriptors(what), static_cast<int>(what.seats.size())) {
    try {
      start_all();
    } catch (...) {
      end_all();
      throw;
    }
  }
  ~Ranks() { end_all(); }  // after an error ranks are left
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
  void start_all() {
    // Only rank 0 may read what the launcher was given, and nobody a terminal: it belongs to the launcher's group.
    const Descriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!nothing.is_open()) throw RunFailed(fmt::format("/dev/null: {}", std::strerror(errno)));
    ranks_.reserve(what_.seats.size());
    for (std::size_t number = 0; number < what_.seats.size(); ++number) {
      ProcessStart start;
      start.signal_mask = signals_.mask_before();
      start.open_files = open_files_.before();
      start.in = number == 0 && isatty(STDIN_FILENO) == 0 ? STDIN_FILENO : nothing.number();
      start_rank(static_cast<int>(number), start);
    }
  }

  void start_rank(int number, ProcessStart& start) {
    const Seat& seat = what_.seats[static_cast<std::size_t>(number)];
    Rank rank;
    rank.target = seat.target;
    std::vector<std::string> environment = what_.environment;
    environment.push_back(fmt::format("RINGATTN_RANK={}", number));
    environment.push_back(fmt::format("RINGATTN_LOCAL_RANK={}", seat.local_rank));
    Pipe out, err;
    Descriptor in;
    if (what_.prefix) {
      out = make_pipe();
      err = make_pipe();
      start.out = out.write.number();
      start.err = err.write.number();
    }
    if (seat.here()) {
      start.program = what_.program;
      start.environment = environment;
    } else {
      in = rank.input.open();
      start.in = in.number();
      start.what = "--remote-shell";
      start.program = remote_command(what_.remote_shell, seat.target);
      start.environment = without_ring(environment);
    }
    rank.process = start_process(start);
    if (!seat.here()) {
      rank.input.add(
          remote_script({remote_environment(environment, what_.exported), what_.folder, what_.program}));
    }
    if (what_.prefix) {
      rank.streams.push_back({std::move(out.read), &out_, RankLines(number, out_)});
      rank.streams.push_back({std::move(err.read), &err_, RankLines(number, err_)});
    }
    ranks_.push_back(std::move(rank));
  }

  // A remote shell has a moment to kill what it has started on its host.
  void end_all() {
    send(SIGKILL);
    const Clock::time_point latest = Clock::now() + kFarewell;
    for (Rank& rank : ranks_) {
      if (rank.process < 0) continue;
      siginfo_t how{};
      while (!rank.target.empty() && Clock::now() < latest && !has_ended(rank.process, how))
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      kill(-rank.process, SIGKILL);
      waitpid(rank.process, nullptr, 0);
      rank.process = -1;
    }
  }

  bool anybody_left() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.process >= 0; });
  }

  // To the rank's group; on another host the remote shell's input tells it.
  void send(int number) {
    for (Rank& rank : ranks_) {
      if (rank.process < 0) continue;
      if (rank.target.empty()) {
        kill(-rank.process, number);
      } else if (number == SIGKILL) {
        rank.input.close();
      } else if (rank.input.taken()) {
        rank.input.add(fmt::format("{}\n", signal_name(number)));
      } else {
        kill(-rank.process, number);  // of a wrapper too: a shell that waits for its child would wait on
        rank.input.close();
      }
    }
  }

  std::optional<Clock::time_point> next_deadline() const {
    std::optional<Clock::time_point> next;
    if (kill_at_) next = kill_at_;
    for (const Rank& rank : ranks_) {
      if (rank.process < 0 || !rank.ended) continue;
      const Clock::time_point over = rank.quiet_since + kLeftovers;
      if (!next || over < *next) next = over;
    }
    return next;
  }

  // Until something can be read or written, a signal comes or it is time; does what can be done.
  void wait(std::optional<Clock::time_point> deadline) {
    std::vector<pollfd> polled;
    std::vector<std::function<void()>> then;
    const auto watch = [&](int descriptor, short events, std::function<void()> what) {
      polled.push_back({descriptor, events, 0});
      then.push_back(std::move(what));
    };
    watch(signals_.descriptor(), POLLIN, [this] { forward_signals(); });
    for (Rank& rank : ranks_) {
      if (rank.input.waits()) watch(rank.input.descriptor(), POLLOUT, [&rank] { rank.input.write_some(); });
      for (Stream& stream : rank.streams) {
        if (!stream.from.is_open() || stream.to->full()) continue;
        watch(stream.from.number(), POLLIN, [&stream] { read_some(stream); });
      }
    }
    for (RankOutput* output : {&out_, &err_}) {
      const RankOutput& other = output == &out_ ? err_ : out_;
      if (output->empty() || (other.within_line() && !other.empty())) continue;
      watch(output->descriptor(), POLLOUT, [output] { output->write_some(); });
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
    for (std::size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].revents != 0) then[i]();
    }
  }

  void forward_signals() {
    for (int number = signals_.take(); number != 0; number = signals_.take()) {
      if (number == SIGCHLD) continue;
      send(number);
      gave_up_ = !anybody_left();  // only output is left, which nobody takes
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
      if (rank.process < 0 || rank.ended || !has_ended(rank.process, info)) continue;
      rank.ended = true;
      rank.quiet_since = Clock::now();
      rank.signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
      rank.status = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
      if (!rank.target.empty() && rank.status > 128 && rank.status <= 128 + SIGRTMAX)
        rank.signal = rank.status - 128;  // the other host's shell tells it so
      if (rank.status != 0 && (!failed || (rank.signal != 0 && ranks_[*failed].signal == 0))) failed = number;
    }
    if (failed && status_ == 0) begin_the_end(*failed);
  }

  void begin_the_end(std::size_t number) {
    const Rank& rank = ranks_[number];
    status_ = rank.status;
    const bool others =
        std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& each) { return !each.ended; });
    std::string how = rank.signal != 0
                          ? fmt::format("was killed by signal {} ({})", rank.signal, strsignal(rank.signal))
                          : fmt::format("exited with status {}", rank.status);
    const std::string where = rank.target.empty() ? "" : " on " + rank.target;
    if (!rank.target.empty() && rank.status == kConnectionFailed)
      how += fmt::format(", as {} does that cannot reach its host", what_.remote_shell.front());
    err_.add(
        fmt::format("ringattn: rank {}{} {}{}\n", number, where, how, others ? "; ending the others" : ""));
    send(SIGTERM);
    kill_at_ = Clock::now() + kPatience;
  }

  // First all ranks; then the remote shells that have not ended by the end of their input.
  void stop_in_time() {
    if (!kill_at_ || Clock::now() < *kill_at_) return;
    if (!killed_) {
      send(SIGKILL);
      killed_ = true;
      kill_at_ = Clock::now() + kFarewell;
      return;
    }
    for (const Rank& rank : ranks_) {
      if (rank.process >= 0) kill(-rank.process, SIGKILL);
    }
    kill_at_.reset();
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

  const RanksToRun& what_;
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
