// ringattn run: starts the ranks of a ring as processes of this machine.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <string_view>

#include "commands.h"
#include "error.h"
#include "run_process.h"
#include "run_ranks.h"

namespace ringattn::tool {
namespace {

constexpr int kMostRanks = 4096;

struct Options {
  int ranks = 0;
  bool no_prefix = false;
  std::string rendezvous;
  std::vector<std::string> program;
};

// Of loopback; 0 where it is taken.
std::uint16_t bind_port(std::uint16_t port) {
  const Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.is_open()) throw RunFailed(fmt::format("cannot make a socket: {}", std::strerror(errno)));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener.number(), generic, size) != 0 || getsockname(listener.number(), generic, &size) != 0)
    return 0;
  return ntohs(address.sin_port);
}

// Rank 0 binds it a moment later; below the ports of outgoing connections few would take it in between.
std::uint16_t free_port() {
  std::random_device random;
  for (int attempt = 0; attempt < 64; ++attempt) {
    const std::uint16_t port = bind_port(static_cast<std::uint16_t>(16384 + (random() & 0x3fff)));
    if (port != 0) return port;
  }
  const std::uint16_t port = bind_port(0);
  if (port == 0) throw RunFailed("no free port on 127.0.0.1");
  return port;
}

std::string random_secret() {
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    throw RunFailed(fmt::format("getrandom: {}", std::strerror(errno)));
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

// This process's, but for what is set for the ranks.
std::vector<std::string> environment_of(const Options& options) {
  const std::vector<std::string> set = {
      fmt::format("RINGATTN_WORLD_SIZE={}", options.ranks),
      "RINGATTN_RENDEZVOUS=" +
          (options.rendezvous.empty() ? fmt::format("127.0.0.1:{}", free_port()) : options.rendezvous),
      "RINGATTN_SECRET=" + random_secret()};
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view name(*variable, std::strcspn(*variable, "="));
    const auto has_name = [&](const std::string& text) { return text.substr(0, text.find('=')) == name; };
    if (name == "RINGATTN_RANK" || name == "RINGATTN_LOCAL_RANK") continue;
    if (std::none_of(set.begin(), set.end(), has_name)) all.emplace_back(*variable);
  }
  all.insert(all.end(), set.begin(), set.end());
  return all;
}

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
  return run_ranks({options.ranks, !options.no_prefix, options.program, environment_of(options)});
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
