// PROBLEM on the command line: words that together are one line of the grammar in tests/support/problem_line.h.
#pragma once
#include <string>
#include <vector>

#include "tests/support/problem_line.h"

namespace ringattn::tool {

// Throws BadInput.
support::ProblemLine parse_words(const std::vector<std::string>& words);

// A line of a problem whose ranks are `processes` processes, with ranks where it names none; and the problem itself, which
// must not ask for what only ranks of one process can be given. `where` begins the messages. Throws BadInput.
std::string line_for_processes(const std::string& line, int processes);
void require_process_problem(const support::ProblemLine& problem, int processes, const std::string& where);

// The keys of the grammar, for --help.
const char* problem_help();

}  // namespace ringattn::tool
