#include "tests/faults/board.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <stdexcept>

namespace ringattn::faults {
namespace {

constexpr std::size_t kBytes = sizeof(Progress) * kMostProcesses;

}  // namespace

Board::Board() : fd_(::memfd_create("ringattn-faults", MFD_CLOEXEC)) {
  if (fd_ < 0 || ::ftruncate(fd_, kBytes) != 0) throw std::runtime_error("no memory to share with ranks");
  map();
  for (int process = 0; process < kMostProcesses; ++process) ::new (all_ + process) Progress();
}

Board::Board(int fd) : fd_(fd) { map(); }

void Board::map() {
  void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("the memory shared with ranks cannot be mapped");
  all_ = static_cast<Progress*>(memory);
}

Board::~Board() {
  ::munmap(all_, kBytes);
  ::close(fd_);
}

}  // namespace ringattn::faults
