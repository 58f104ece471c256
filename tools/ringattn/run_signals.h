// What `ringattn run` changes of its own process while ranks live: signals and the limit of open files. Both are put back.
#pragma once
#include <sys/resource.h>

#include <csignal>

#include "run_process.h"

namespace ringattn::tool {

// While it lives the forwarded signals and SIGCHLD are read from a descriptor.
class Signals {
 public:
  Signals();  // throws RunFailed
  ~Signals() { restore(); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int descriptor() const { return from_.number(); }
  const sigset_t& mask_before() const { return mask_; }
  // The next one that is pending, 0 = none.
  int take();

 private:
  void restore();

  sigset_t mask_{};
  struct sigaction child_action_ {};
  Descriptor from_;
};

// Room for the descriptors that the ranks need, given back at the end.
class OpenFiles {
 public:
  // Throws BadInput where the system does not allow so many; `ranks` is for the message.
  OpenFiles(int needed, int ranks);
  ~OpenFiles() { setrlimit(RLIMIT_NOFILE, &before_); }
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;

  const rlimit& before() const { return before_; }

 private:
  rlimit before_{};
};

}  // namespace ringattn::tool
