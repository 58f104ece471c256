// PROBLEM on the command line: words that together are one line of the grammar in tests/support/problem_line.h.
#pragma once
#include <string>
#include <vector>

#include "tests/support/problem_line.h"

namespace ringattn::tool {

// Throws BadInput.
support::ProblemLine parse_words(const std::vector<std::string>& words);

// The keys of the grammar, for --help.
const char* problem_help();

}  // namespace ringattn::tool
