// Rings of processes to which something happens. One program for all: `worker` is a rank process, `soak` runs any number
// of random faults, anything else are GoogleTest's own arguments.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "tests/faults/batch.h"
#include "tests/faults/soak.h"
#include "tests/faults/worker.h"

int main(int count, char** arguments) {
  using namespace ringattn::faults;
  if (count == 3 && std::strcmp(arguments[1], "worker") == 0) return worker_main(std::atoi(arguments[2]));
  if (count >= 2 && std::strcmp(arguments[1], "soak") == 0) return soak_main(count - 2, arguments + 2);
  ::testing::InitGoogleTest(&count, arguments);
  own_shared_memory();
  return RUN_ALL_TESTS();
}
