// The driver's side of one rank process.
#pragma once
#include <sys/types.h>

#include <stdexcept>
#include <string>

#include "tests/faults/messages.h"

namespace ringattn::faults {

// What a driver could not go on after: a rank that does not answer in time (a hang), that is gone, or that says what it
// must not.
struct Failure : std::runtime_error {
  explicit Failure(const std::string& text, bool is_hang = false) : std::runtime_error(text), hang(is_hang) {}
  bool hang;
};

// Where a process runs: descriptors of namespaces to enter, -1 = those of the driver.
struct Whereabouts {
  int network = -1;
  int names = -1;   // its host name
  int mounts = -1;  // a /sys that shows its own interfaces
};

class RankProcess {
 public:
  // Runs this very program as a worker. It dies with the thread that started it, should that forget to end it.
  RankProcess(int process, int board_fd, const Whereabouts& where = {});
  ~RankProcess();  // kills what still runs
  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  void order(const Message& message);
  // False where there is nothing until then; throws where the process is gone.
  bool hear(Message& answer, Clock::time_point deadline);
  [[noreturn]] void hang() const;  // says so

  void signal(int number) const;
  // Its exit status, 128 + signal where one ended it. A zombie until then.
  int reap(Clock::time_point deadline);
  pid_t pid() const { return pid_; }
  const std::string& last_order() const { return last_order_; }

 private:
  int process_;
  pid_t pid_ = -1;
  Channel channel_;
  std::string last_order_ = "nothing";
};

}  // namespace ringattn::faults
