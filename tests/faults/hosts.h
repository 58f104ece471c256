// Network namespaces as hosts: each with a host name and an interface of its own, joined by a bridge in one more, at
// 1 Gbit/s. They are nobody's but those of some processes that hold them, without names, so that they are gone when the
// driver is, however it ends.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tests/faults/process.h"

namespace ringattn::faults {

// The process that holds a host's namespaces.
class Holder {
 public:
  explicit Holder(const std::string& name);
  ~Holder();
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  int pid() const { return pid_; }

 private:
  int pid_;
};

class Host {
 public:
  explicit Host(const std::string& name);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // A command of iproute2, run there; throws Failure with what it printed.
  void run(const std::vector<std::string>& words) const;
  const Whereabouts& where() const { return where_; }
  // Ports that somebody listens on there.
  std::vector<int> listening_ports() const;
  int holder() const { return holder_.pid(); }

 private:
  Holder holder_;
  Whereabouts where_;
};

class Network {
 public:
  // "" where it can be made, else why not.
  static std::string why_not();

  explicit Network(int hosts);

  int size() const { return static_cast<int>(hosts_.size()); }
  Host& host(int i) { return *hosts_[static_cast<std::size_t>(i)]; }
  static std::string address(int host) { return "10.77.0." + std::to_string(host + 1); }
  std::vector<Whereabouts> where() const;

  void cut(int host);  // pulls the cable out of the switch
  void heal(int host);
  // Packets between these two are thrown away from now on, without a word to anybody.
  void block(int one, int other);
  // An interface in front of the others that looks well and leads nowhere.
  void add_dead_interface(int host);

 private:
  std::unique_ptr<Host> bridge_;
  std::vector<std::unique_ptr<Host>> hosts_;
};

// Connects to `address`:`port` from there, says `greeting`, and stays silent until it is destroyed.
class Stranger {
 public:
  Stranger(const Host& from, const std::string& address, int port, const std::string& greeting);
  ~Stranger();
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  bool connected() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace ringattn::faults
