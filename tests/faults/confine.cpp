#include "tests/faults/confine.h"

#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "tests/faults/batch.h"

namespace ringattn::faults {
namespace {

std::string text_of_errno(const char* what) { return std::string(what) + ": " + std::strerror(errno); }

std::string forbid_memory_of_others() {
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program = {sizeof code / sizeof code[0], code};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0)
    return "";
  return text_of_errno("seccomp");
}

std::string become(unsigned user) {
  if (::setgroups(0, nullptr) != 0 || ::setresgid(user, user, user) != 0 ||
      ::setresuid(user, user, user) != 0)
    return text_of_errno("setresuid");
  // A process that has changed its user may be looked into by root alone; one that this user has started may not.
  ::prctl(PR_SET_DUMPABLE, 1);
  if (::access("/proc/self/exe", R_OK) == 0) return "";
  return text_of_errno("this program's file, as another user");
}

}  // namespace

std::string give_up(const std::string& what, unsigned number) {
  if (what == "memory") return forbid_memory_of_others();
  if (what == "user") return become(number);
  if (what == "shm") return own_shared_memory() ? "" : text_of_errno("mount");
  return what + ": expected memory, user or shm";
}

SmallSharedMemory::SmallSharedMemory(const std::string& size) : ok_(resize_own_shared_memory(size)) {}
SmallSharedMemory::~SmallSharedMemory() {
  if (ok_) resize_own_shared_memory("1g");
}

}  // namespace ringattn::faults
