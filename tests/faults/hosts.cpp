#include "tests/faults/hosts.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

namespace ringattn::faults {
namespace {

using Words = std::vector<std::string>;

// Exit status and what it printed.
std::pair<int, std::string> run_words(const Words& words, int network) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {-1, "no pipe"};
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    if (network >= 0 && ::setns(network, CLONE_NEWNET) != 0) ::_exit(126);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t count = 0; (count = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(count));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
}

// Holds new namespaces until it is killed. UCX looks for interfaces in /sys, which shows those of whoever mounted it.
[[noreturn]] void hold(const std::string& name, int ready) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const bool made = ::unshare(CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWNS) == 0 &&
                    ::sethostname(name.data(), name.size()) == 0 &&
                    ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                    ::mount("sysfs", "/sys", "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV, nullptr) == 0;
  if (!made || ::write(ready, "y", 1) != 1) ::_exit(1);
  for (;;) ::pause();
}

int open_namespace(int holder, const char* kind) {
  return ::open(("/proc/" + std::to_string(holder) + "/ns/" + kind).c_str(), O_RDONLY | O_CLOEXEC);
}

}  // namespace

Holder::Holder(const std::string& name) {
  int ready[2];
  if (::pipe2(ready, O_CLOEXEC) != 0) throw Failure("no pipe");
  pid_ = ::fork();
  if (pid_ == 0) hold(name, ready[1]);
  ::close(ready[1]);
  char answer = 'n';
  const bool made = ::read(ready[0], &answer, 1) == 1 && answer == 'y';
  ::close(ready[0]);
  if (made) return;
  ::waitpid(pid_, nullptr, 0);
  throw Failure("no namespaces: they need root");
}

Holder::~Holder() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

Host::Host(const std::string& name) : holder_(name) {
  where_ = {open_namespace(holder(), "net"), open_namespace(holder(), "uts"),
            open_namespace(holder(), "mnt")};
  run({"ip", "link", "set", "lo", "up"});
}

Host::~Host() {
  for (const int fd : {where_.network, where_.names, where_.mounts}) ::close(fd);
}

void Host::run(const std::vector<std::string>& words) const {
  const auto [status, text] = run_words(words, where_.network);
  if (status == 0) return;
  std::string line;
  for (const std::string& word : words) line += word + " ";
  throw Failure(line + "ended with " + std::to_string(status) + ": " + text.substr(0, text.find('\n')));
}

std::vector<int> Host::listening_ports() const {
  std::vector<int> ports;
  for (const char* file : {"net/tcp", "net/tcp6"}) {
    std::ifstream table("/proc/" + std::to_string(holder()) + "/" + file);
    std::string line;
    std::getline(table, line);  // the names of the columns
    while (std::getline(table, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state;
      words >> number >> local >> remote >> state;
      if (state == "0A") ports.push_back(std::stoi(local.substr(local.rfind(':') + 1), nullptr, 16));
    }
  }
  return ports;
}

// ---- the network ----------------------------------------------------------------------------------------

std::string Network::why_not() {
  if (run_words({"ip", "-V"}, -1).first != 0) return "no ip command: iproute2 is not installed";
  if (run_words({"tc", "-V"}, -1).first != 0) return "no tc command: iproute2 is not installed";
  try {
    const Network one(1);
    return "";
  } catch (const Failure& failure) {
    return failure.what();
  }
}

Network::Network(int hosts) : bridge_(std::make_unique<Host>("switch")) {
  bridge_->run({"ip", "link", "add", "switch", "type", "bridge"});
  bridge_->run({"ip", "link", "set", "switch", "up"});
  const Words rate = {"root", "tbf", "rate", "1gbit", "burst", "256kb", "latency", "50ms"};
  for (int i = 0; i < hosts; ++i) {
    hosts_.push_back(std::make_unique<Host>("host-" + std::string(1, static_cast<char>('a' + i))));
    const std::string port = "port" + std::to_string(i);
    bridge_->run({"ip", "link", "add", port, "type", "veth", "peer", "name", "net0", "netns",
                  std::to_string(host(i).holder())});
    bridge_->run({"ip", "link", "set", port, "master", "switch", "up"});
    host(i).run({"ip", "address", "add", address(i) + "/24", "dev", "net0"});
    host(i).run({"ip", "link", "set", "net0", "up"});
    Words there = {"tc", "qdisc", "add", "dev", port}, here = {"tc", "qdisc", "add", "dev", "net0"};
    there.insert(there.end(), rate.begin(), rate.end());
    here.insert(here.end(), rate.begin(), rate.end());
    bridge_->run(there);
    host(i).run(here);
  }
}

std::vector<Whereabouts> Network::where() const {
  std::vector<Whereabouts> all;
  for (const auto& host : hosts_) all.push_back(host->where());
  return all;
}

void Network::cut(int host) { bridge_->run({"ip", "link", "set", "port" + std::to_string(host), "down"}); }
void Network::heal(int host) { bridge_->run({"ip", "link", "set", "port" + std::to_string(host), "up"}); }

// A route to a hardware address that nobody has: nothing refuses, nothing answers.
void Network::block(int one, int other) {
  const auto away = [&](int from, int to) {
    host(from).run({"ip", "neighbour", "replace", address(to), "lladdr", "02:00:00:00:00:99", "dev", "net0"});
  };
  away(one, other);
  away(other, one);
}

void Network::add_dead_interface(int host_number) {
  Host& there = host(host_number);
  there.run({"ip", "link", "add", "aaa0", "type", "veth", "peer", "name", "aaa1"});
  there.run({"ip", "address", "add", "10.66." + std::to_string(host_number) + ".1/24", "dev", "aaa0"});
  there.run({"ip", "link", "set", "aaa0", "up"});
  there.run({"ip", "link", "set", "aaa1", "up"});
}

// ---- strangers ------------------------------------------------------------------------------------------

Stranger::Stranger(const Host& from, const std::string& address, int port, const std::string& greeting) {
  // A socket belongs to the network of the thread that made it.
  std::thread([&] {
    if (::setns(from.where().network, CLONE_NEWNET) == 0)
      fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  }).join();
  if (fd_ < 0) return;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  ::inet_pton(AF_INET, address.c_str(), &to.sin_addr);
  ::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to);
  pollfd wanted{fd_, POLLOUT, 0};
  ::poll(&wanted, 1, 500);
  if (::send(fd_, greeting.data(), greeting.size(), MSG_NOSIGNAL) < 0) ::close(std::exchange(fd_, -1));
}

Stranger::~Stranger() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace ringattn::faults
