// ringattn run: starts the ranks of a ring as processes of this machine.
#include <fmt/format.h>

#include <memory>

#include "commands.h"
#include "error.h"
#include "rank_environment.h"
#include "run_ranks.h"

namespace ringattn::tool {
namespace {

struct Options {
  int ranks = 0;
  bool no_prefix = false;
  std::string rendezvous;
  std::vector<std::string> program;
};

void check_options(const Options& options) {
  if (options.ranks < 1 || options.ranks > kMostRanks)
    throw BadInput(fmt::format("-n {}: expected 1 to {} ranks", options.ranks, kMostRanks));
  const std::string& place = options.rendezvous;
  if (!place.empty() &&
      (place.rfind(':') == std::string::npos || place.rfind(':') == 0 || place.back() == ':'))
    throw BadInput(fmt::format("--rendezvous \"{}\": expected host:port or [v6]:port", place));
  if (options.program.empty() || options.program.front().empty())
    throw BadInput("no program: expected ringattn run -n N -- program args...");
}

int run_program(const Options& options) {
  check_options(options);
  return run_ranks({options.ranks, !options.no_prefix, options.program,
                    rank_environment(options.ranks, options.rendezvous)});
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("run", "Start the ranks of a ring as processes of this machine");
  auto options = std::make_shared<Options>();
  command->add_option("-n,--ranks", options->ranks, "How many ranks, 1 to 4096")->required();
  command->add_flag("--no-prefix", options->no_prefix,
                    "Leave the ranks' output alone: no \"[rank] \" before each line");
  command->add_option("--rendezvous", options->rendezvous,
                      "host:port where the ranks meet (default: a free port of 127.0.0.1)");
  command->add_option("program", options->program, "After --: the program and its arguments");
  command->footer(
      "Each rank is a process with RINGATTN_RANK, RINGATTN_WORLD_SIZE, RINGATTN_LOCAL_RANK, "
      "RINGATTN_RENDEZVOUS and\n"
      "RINGATTN_SECRET set, which ringattn_comm_create_from_environment reads. SIGINT, SIGTERM and SIGHUP go "
      "to all.\n"
      "When one fails the rest get SIGTERM, five seconds later SIGKILL.\n\n"
      "Exit status: 0 all succeeded; otherwise that of the first that failed, 128 + its signal;\n"
      "2 bad input or no such program, 3 the system refused a process.");
  command->callback([&action, options] { action = [options] { return run_program(*options); }; });
}

}  // namespace ringattn::tool
