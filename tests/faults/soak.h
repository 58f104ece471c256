// Any number of random faults, from the command line, with a summary at the end.
#pragma once

namespace ringattn::faults {

// The arguments after "soak". Returns the exit status: 0 where nothing went wrong.
int soak_main(int count, char** arguments);

}  // namespace ringattn::faults
