// A rank process: does what its driver orders, one order after the other, and answers each.
#pragma once

namespace ringattn::faults {

// Where the driver's end of the channel and the shared memory are in a rank process.
inline constexpr int kChannelDescriptor = 3;
inline constexpr int kBoardDescriptor = 4;

// Returns the exit status of the process.
int worker_main(int process);

}  // namespace ringattn::faults
