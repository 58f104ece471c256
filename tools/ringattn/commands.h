// The subcommands. Each function adds one to the application; when the command line chooses it, `action` is set to
// what it does. An action returns the exit status and may throw what error.h declares.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace ringattn::tool {

using Action = std::function<int()>;
// The command line without the program's name, for those that run it again in other processes; outlives the action.
using Arguments = std::vector<std::string>;

void add_info(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_attend(CLI::App& app, const Arguments& arguments, Action& action);
void add_verify(CLI::App& app, const Arguments& arguments, Action& action);
void add_demo(CLI::App& app, Action& action);
void add_run(CLI::App& app, Action& action);

}  // namespace ringattn::tool
