// What a rank process may give up before it loads a transport: what containers, other users and small machines do not have.
#pragma once
#include <string>

namespace ringattn::faults {

// "" or why the system did not let it. None can be taken back.
//   memory   to read and write other processes' memory, as seccomp filters of containers forbid it
//   user     to be the driver's user: it is `number` from now on. Only for root
//   shm      to share /dev/shm: it has an empty one of its own. Only for root
std::string give_up(const std::string& what, unsigned number);

// Changes how much the /dev/shm that own_shared_memory made may hold; the destructor makes it large again.
class SmallSharedMemory {
 public:
  explicit SmallSharedMemory(const std::string& size);  // "64k"
  ~SmallSharedMemory();
  SmallSharedMemory(const SmallSharedMemory&) = delete;
  SmallSharedMemory& operator=(const SmallSharedMemory&) = delete;
  bool ok() const { return ok_; }

 private:
  bool ok_;
};

}  // namespace ringattn::faults
