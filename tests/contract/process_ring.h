// Ranks in forked processes, over a transport that connects processes. A child never runs gtest code and ends
// by _exit: its body returns a text, empty when all is well, which comes back through a socket.
#pragma once
#include <dirent.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/transport_ring.h"

namespace ringattn::test {

inline std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (folder != nullptr && ::readdir(folder) != nullptr) ++count;
  if (folder != nullptr) ::closedir(folder);
  return count;
}

// The test's end, or a child's, of what they tell each other: whole messages.
class Line {
 public:
  Line() = default;
  explicit Line(int fd) : fd_(fd) {
    const timeval limit{20, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  void send(const std::string& text) const { ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  // False when the other end is gone, or silent for 20 s (then errno is EAGAIN).
  bool receive(std::string& text) const {
    char buffer[8192];
    errno = 0;
    const ssize_t count = ::recv(fd_, buffer, sizeof buffer, 0);
    if (count <= 0) return false;
    text.assign(buffer, static_cast<std::size_t>(count));
    return true;
  }
  void close() { ::close(std::exchange(fd_, -1)); }

 private:
  int fd_ = -1;
};

// What a child's body has: its connected link, and two ways to keep step with the test.
struct ChildRank {
  TestLink link;
  std::int32_t world_size;
  Line line;
  std::string log = {};  // what the link has logged last

  void report() const { line.send("R"); }
  void pause() const {
    std::string go;
    line.receive(go);
  }
  std::string state() {
    std::string reason;
    const ringattn_status status = link.state(&reason);
    return std::to_string(status) + " " + reason;
  }
};

class ProcessRing {
 public:
  using Body = std::function<std::string(ChildRank&)>;
  using Step = std::function<void(ProcessRing&)>;
  struct Options {
    std::string secret = "the secret of this ring";
    std::int32_t open_timeout_ms = 10000;
    Step before_connect = {};             // all addresses are known and nobody has them yet
    Step before_last = {};                // all but the last rank have had them for a while
    std::function<void()> in_child = {};  // first of all, in each
  };

  ProcessRing(const ringattn_transport_v1* table, std::int32_t world_size, Body body)
      : ProcessRing(table, world_size, std::move(body), Options()) {}

  ProcessRing(const ringattn_transport_v1* table, std::int32_t world_size, Body body, Options options)
      : table_(table), options_(std::move(options)), group_(TransportRing::new_group()) {
    for (std::int32_t rank = 0; rank < world_size; ++rank) start(rank, world_size, body);
    for (Child& child : children_) {
      addresses_.emplace_back();
      child.line.receive(addresses_.back());
    }
    if (options_.before_connect) options_.before_connect(*this);
    for (Child& child : children_) {
      if (options_.before_last && &child == &children_.back()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        options_.before_last(*this);
      }
      for (const std::string& address : addresses_) child.line.send(address);
    }
  }

  ~ProcessRing() {
    for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(children_.size()); ++rank) {
      signal(rank, SIGKILL);
      reap(rank);
      child(rank).line.close();
    }
  }
  ProcessRing(const ProcessRing&) = delete;
  ProcessRing& operator=(const ProcessRing&) = delete;

  const std::vector<std::string>& addresses() const { return addresses_; }
  std::uint64_t group() const { return group_; }

  void go(std::int32_t rank) { child(rank).line.send("G"); }
  void signal(std::int32_t rank, int number) {
    if (child(rank).pid > 0) ::kill(child(rank).pid, number);
  }
  // "R" when it has reported, else how it ended: its result (empty = well), "died" or "hangs".
  std::string next(std::int32_t rank) {
    std::string text;
    if (child(rank).line.receive(text)) return text == "=" ? "" : text;
    return errno == EAGAIN ? "hangs" : "died";
  }
  void reap(std::int32_t rank) {
    if (child(rank).pid > 0) ::waitpid(std::exchange(child(rank).pid, -1), nullptr, 0);
  }

 private:
  struct Child {
    pid_t pid = -1;
    Line line;
  };
  Child& child(std::int32_t rank) { return children_[static_cast<std::size_t>(rank)]; }

  void start(std::int32_t rank, std::int32_t world_size, const Body& body) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(100);
      const Line line(ends[1]);
      line.send("=" + run_child(rank, world_size, line, body));
      ::_exit(0);
    }
    ::close(ends[1]);
    children_.push_back({pid, Line(ends[0])});
  }

  static void keep_log(void* log, std::int32_t, const char* text) { *static_cast<std::string*>(log) = text; }

  std::string run_child(std::int32_t rank, std::int32_t world_size, const Line& line, const Body& body) {
    if (options_.in_child) options_.in_child();
    const std::size_t descriptors = open_descriptors();
    std::string log;
    const ringattn_host_v1 host{sizeof host, 0, &log, keep_log};
    ringattn_link_desc_v1 desc = TransportRing::describe(rank, world_size, group_);
    desc.open_timeout_ms = options_.open_timeout_ms;
    desc.host = &host;
    desc.secret = options_.secret.data();
    desc.secret_bytes = options_.secret.size();
    void* link = nullptr;
    const char* error = "";
    if (table_->open(&desc, &link, &error) != RINGATTN_OK) return std::string("open: ") + error;
    std::string result = connect(link, world_size, line);
    if (result.empty()) {
      ChildRank child{TestLink(table_, link, rank), world_size, line, log};
      result = body(child);
    }
    table_->close(link);
    if (result.empty() && open_descriptors() != descriptors) return "descriptors are left open";
    return result;
  }

  std::string connect(void* link, std::int32_t world_size, const Line& line) {
    std::string own(4096, '\0');
    std::uint64_t bytes = 0;
    if (table_->address(link, own.data(), own.size(), &bytes) != RINGATTN_OK) return "address failed";
    line.send(own.substr(0, bytes));
    std::vector<std::string> all(static_cast<std::size_t>(world_size));
    std::vector<ringattn_address_v1> given;
    for (std::string& each : all) {
      if (!line.receive(each)) return "no addresses";
      given.push_back(
          {sizeof(ringattn_address_v1), static_cast<std::int32_t>(given.size()), each.data(), each.size()});
    }
    const char* error = "";
    const ringattn_status status = table_->connect(link, given.data(), world_size, &error);
    return status == RINGATTN_OK ? "" : "connect: " + std::to_string(status) + " " + error;
  }

  const ringattn_transport_v1* table_;
  Options options_;
  std::uint64_t group_;
  std::vector<Child> children_;
  std::vector<std::string> addresses_;
};

}  // namespace ringattn::test
