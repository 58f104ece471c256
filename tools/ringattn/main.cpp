// ringattn: the command line of libringattn. It uses public functions of the library only.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>

#include "commands.h"
#include "error.h"
#include "output_file.h"
#include "text.h"

namespace ringattn::tool {
namespace {

constexpr const char* kCommands = "info, plan, attend, verify, demo or run";

std::string version_text() {
  const std::uint32_t version = ringattn_version();
  return fmt::format("ringattn {}.{}.{}", version >> 16, (version >> 8) & 0xff, version & 0xff);
}

int report(int status, std::string_view message) {
  fmt::print(stderr, "ringattn: {}\n", one_line(message));
  return status;
}

int run(int argc, char** argv) {
  CLI::App app("Exact attention over a sequence that is sharded across ranks.", "ringattn");
  app.set_version_flag("--version", version_text());
  app.footer(
      "A PROBLEM is a list of key=value words, for example\n"
      "  n=8192 heads=9 kv_heads=3 dim=64 dtype=bf16 mask=causal,window:512 docs=100,900 partition=zigzag "
      "ranks=4\n"
      "`ringattn plan --help` lists the keys.\n\n"
      "Exit status: 0 done, 1 computed but out of tolerance, 2 bad input, 3 the run failed.");
  const Arguments arguments(argv + std::min(argc, 1), argv + argc);
  Action action;
  add_info(app, action);
  add_plan(app, action);
  add_attend(app, arguments, action);
  add_verify(app, arguments, action);
  add_demo(app, action);
  add_run(app, action);

  // CLI11 would list every word that follows as unexpected, not the one that is wrong.
  const std::string first = argc > 1 ? argv[1] : "";
  const auto is_first = [&](const CLI::App* command) { return command->get_name() == first; };
  if (!first.empty() && first[0] != '-' && app.get_subcommands(is_first).empty()) {
    return report(kExitBadInput,
                  fmt::format("unknown command \"{}\": expected {} (see --help)", first, kCommands));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wish) {  // --help, --version: printed by CLI11
    return app.exit(wish);
  } catch (const CLI::ParseError& error) {
    return report(kExitBadInput, error.what());
  }
  if (!action) return report(kExitBadInput, fmt::format("expected a subcommand: {} (see --help)", kCommands));
  const int status = action();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw RunFailed("cannot write to standard output");
  return status;
}

}  // namespace
}  // namespace ringattn::tool

int main(int argc, char** argv) {
  using namespace ringattn::tool;
  install_signal_handlers();
  try {
    return run(argc, argv);
  } catch (const BadInput& error) {
    return report(kExitBadInput, error.what());
  } catch (const RunFailed& error) {
    return report(kExitRunFailed, error.what());
  } catch (const std::length_error&) {  // a container that no memory could hold
    return report(kExitRunFailed, "out of memory");
  } catch (const std::bad_alloc&) {
    return report(kExitRunFailed, "out of memory");
  } catch (const std::exception& error) {
    return report(kExitRunFailed, error.what());
  }
}
