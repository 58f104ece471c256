// The subcommands. Each function adds one to the application; when the command line chooses it, `action` is set to
// what it does. An action returns the exit status and may throw what error.h declares.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>

namespace ringattn::tool {

using Action = std::function<int()>;

void add_info(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_attend(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);
void add_demo(CLI::App& app, Action& action);
void add_run(CLI::App& app, Action& action);

}  // namespace ringattn::tool
