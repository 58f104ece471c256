// ringattn run: starts the ranks of a ring as processes of this machine, and of others through a remote shell.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>

#include "commands.h"
#include "error.h"
#include "rank_environment.h"
#include "remote_shell.h"
#include "run_hosts.h"
#include "run_ranks.h"

namespace ringattn::tool {
namespace {

// BatchMode: a question for a password would come from a process that may not read the terminal.
constexpr const char* kRemoteShell = "ssh -x -o BatchMode=yes";

constexpr const char* kFooter =
    R"(Each rank is a process with RINGATTN_RANK, RINGATTN_WORLD_SIZE, RINGATTN_LOCAL_RANK, RINGATTN_RENDEZVOUS and
RINGATTN_SECRET set, which ringattn_comm_create_from_environment reads. SIGINT, SIGTERM and SIGHUP go to all.
When one fails the rest get SIGTERM, five seconds later SIGKILL.

--host-list a:2,b:2 gives ranks 0 and 1 to host a and ranks 2 and 3 to b. Hosts other than this machine are
reached by the remote shell, one for each rank, and need no ringattn: the working directory is the same as here,
and the environment is theirs, with all RINGATTN_... variables of this one and those that -x names.
Ranks on several hosts meet at the first one: on a free port if it is this machine, else on port 21117.

Exit status: 0 all succeeded; otherwise that of the first that failed, 128 + its signal;
2 bad input or no such program, 3 the system refused a process, 255 also a host that ssh cannot reach.)";

struct Options {
  std::optional<int> ranks;
  bool no_prefix = false;
  std::string rendezvous;
  std::optional<std::string> host_list;
  std::string remote_shell = kRemoteShell;
  std::vector<std::string> exported;
  std::vector<std::string> program;
};

std::vector<std::string> split(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

void check_options(const Options& options) {
  if (!options.ranks && !options.host_list) throw BadInput("no ranks: expected -n N or --host-list a,b:2");
  if (options.ranks && (*options.ranks < 1 || *options.ranks > kMostRanks))
    throw BadInput(fmt::format("-n {}: expected 1 to {} ranks", *options.ranks, kMostRanks));
  const std::string& place = options.rendezvous;
  if (!place.empty() &&
      (place.rfind(':') == std::string::npos || place.rfind(':') == 0 || place.back() == ':'))
    throw BadInput(fmt::format("--rendezvous \"{}\": expected host:port or [v6]:port", place));
  if (split(options.remote_shell).empty())
    throw BadInput(
        fmt::format("--remote-shell \"{}\": expected a program such as ssh", options.remote_shell));
  for (const std::string& name : options.exported) {
    if (!is_variable_name(name))
      throw BadInput(fmt::format("-x \"{}\": expected the name of an environment variable", name));
  }
  if (options.program.empty() || options.program.front().empty())
    throw BadInput("no program: expected ringattn run -n N -- program args...");
}

int run_program(const Options& options) {
  check_options(options);
  std::vector<HostEntry> hosts;
  if (options.host_list) hosts = parse_host_list(*options.host_list);
  RanksToRun what;
  what.seats = hosts.empty() ? seats_here(*options.ranks) : seats_on(hosts, options.ranks);
  what.prefix = !options.no_prefix;
  what.program = options.program;
  what.environment = rank_environment(static_cast<int>(what.seats.size()),
                                      meeting_place(hosts, what.seats, options.rendezvous));
  if (!hosts.empty()) what.folder = std::filesystem::current_path().string();
  what.remote_shell = split(options.remote_shell);
  what.exported = options.exported;
  return run_ranks(what);
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("run", "Start the ranks of a ring as processes of this machine, and of others");
  auto options = std::make_shared<Options>();
  command->add_option("-n,--ranks", options->ranks,
                      "How many ranks, 1 to 4096 (default: the slots of --host-list)");
  command->add_flag("--no-prefix", options->no_prefix,
                    "Leave the ranks' output alone: no \"[rank] \" before each line");
  command->add_option("--rendezvous", options->rendezvous,
                      "host:port where the ranks meet (default: a free port of 127.0.0.1)");
  CLI::Option* hosts =
      command->add_option("--host-list", options->host_list,
                          "Where the ranks run, in order: host or host:slots, joined by commas");
  command
      ->add_option("--remote-shell", options->remote_shell,
                   "Starts a command on another host; gets the host and the command as two more arguments")
      ->needs(hosts)
      ->capture_default_str();
  command
      ->add_option("-x,--export", options->exported, "One more variable of this environment for other hosts")
      ->needs(hosts)
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("program", options->program, "After --: the program and its arguments");
  command->footer(kFooter);
  command->callback([&action, options] { action = [options] { return run_program(*options); }; });
}

}  // namespace ringattn::tool
