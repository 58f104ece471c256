// The owner of one file descriptor, and the options that every socket of a meeting has.
#pragma once
#include <string>
#include <utility>

namespace ringattn::comm {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Socket() { close(); }

  bool open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  void close();

 private:
  int fd_ = -1;
};

// No delay, and probes that tell within some ten seconds of a cable that was cut.
void set_meeting_options(int fd);
std::string errno_text(int error);  // "Connection refused"

// Milliseconds for poll until the deadline, rounded up; at most `most`.
int poll_timeout(unsigned long long deadline_ns, int most);

}  // namespace ringattn::comm
