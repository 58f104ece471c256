// What a process holds of the system: descriptors, threads, shared memory.
#pragma once
#include <cstdint>

#include "tests/faults/messages.h"

namespace ringattn::faults {

struct Holdings {
  int descriptors = 0;
  int threads = 0;
  int shared_memory = 0;          // mappings of files of /dev/shm
  std::int64_t resident_kib = 0;  // no part of more_than: pages come and go

  // Waits a moment for as few threads as `most`: the kernel lists one for a while after it was joined.
  static Holdings now(int most_threads = 0);
  Message reply() const;
  static Holdings from(const Message& message);
  // "" or what there is more of than before.
  std::string more_than(const Holdings& before) const;
};

}  // namespace ringattn::faults
