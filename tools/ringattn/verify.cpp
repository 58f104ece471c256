// ringattn verify: problems with random data against fp64.
#include "tests/support/verify.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "error.h"
#include "handles.h"
#include "problem_words.h"
#include "progress.h"
#include "tests/support/problem_plan.h"

namespace ringattn::tool {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::vector<std::string> words;
  std::string file;
  std::uint64_t seed = 0;
  bool json = false;
  bool keep_going = false;
};

struct Case {
  std::string where;  // "problems.txt:12: ", or "" for the command line
  support::ProblemLine problem;
};

std::string read_text(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string text;
  if (stream) text.assign(std::istreambuf_iterator<char>(stream), {});
  if (!stream || stream.bad()) throw BadInput(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  return text;
}

// All lines are read before the first problem runs, so that a typing error in the last one costs no time.
std::vector<Case> read_cases(const Options& options) {
  if (options.file.empty() == options.words.empty())
    throw BadInput("verify: expected either a PROBLEM or --file");
  if (options.file.empty()) return {{"", parse_words(options.words)}};
  std::vector<Case> cases;
  for (const support::NumberedLine& line : support::problem_lines(read_text(options.file))) {
    Case one{fmt::format("{}:{}: ", options.file, line.number), {}};
    if (const auto error = support::parse_problem(line.text, one.problem)) throw BadInput(one.where + *error);
    cases.push_back(std::move(one));
  }
  if (cases.empty()) throw BadInput(fmt::format("{} has no problem", options.file));
  return cases;
}

// What the library says before anything runs: "" or why it refuses the problem or the transport.
std::string refusal_of(ringattn_context* context, const support::ProblemLine& problem) {
  const support::ProblemPlan structs(problem);
  if (ringattn_supports(context, &structs.desc(0)) != RINGATTN_OK) return ringattn_last_error();
  auto desc = RINGATTN_STRUCT(ringattn_comm_desc);
  desc.world_size = 1;
  desc.transport = problem.transport.empty() ? nullptr : problem.transport.c_str();
  ringattn_comm* comm = nullptr;
  if (ringattn_comm_create_local(context, &desc, &comm) != RINGATTN_OK) return ringattn_last_error();
  ringattn_comm_destroy(comm);
  // The values of the call are judged with a plan.
  const ringattn_facts facts = structs.facts(false);
  ringattn_plan* raw_plan = nullptr;
  if (ringattn_plan_preview(context, &structs.desc(0), 0, problem.ranks, &facts, &raw_plan) != RINGATTN_OK) {
    return ringattn_last_error();
  }
  const Plan plan(raw_plan);
  std::int64_t length = 0;
  if (problem.batch > 0 && ringattn_plan_local_length(plan.get(), RINGATTN_AXIS_QUERY, 0, 0, structs.call(),
                                                      &length) != RINGATTN_OK) {
    return ringattn_last_error();
  }
  return "";
}

Json limit_json(const support::LimitResult& limit) {
  const auto number = [](double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); };
  return {{"ok", limit.ok},
          {"max_abs", number(limit.max_abs)},
          {"limit_max", number(limit.limit_max)},
          {"rms", number(limit.rms)},
          {"limit_rms", number(limit.limit_rms)}};
}

enum class Outcome { passed, failed, refused };

void print_outcome(const Options& options, const support::VerifyResult& result, Outcome outcome) {
  if (!options.json) {
    fmt::print("{}\n", outcome == Outcome::refused ? "refused " + result.line + ": " + result.error
                                                   : support::to_text(result));
  } else {
    static constexpr const char* names[] = {"passed", "failed", "refused"};
    Json root = {{"problem", result.line}, {"outcome", names[static_cast<int>(outcome)]}};
    if (!result.error.empty()) root["error"] = result.error;
    if (outcome != Outcome::refused) {
      root["o"] = limit_json(result.o);
      root["lse"] = limit_json(result.lse);
      if (result.backward) {
        root["d_q"] = limit_json(result.d_q);
        root["d_k"] = limit_json(result.d_k);
        root["d_v"] = limit_json(result.d_v);
      }
      root["run_seconds"] = result.run_seconds;
      root["oracle_seconds"] = result.oracle_seconds;
    }
    fmt::print("{}\n", root.dump());
  }
  std::fflush(stdout);
}

struct Counts {
  int passed = 0, failed = 0, refused = 0;
};

void print_counts(const Options& options, const Counts& counts, std::size_t problems, double seconds) {
  const int ran = counts.passed + counts.failed + counts.refused;
  const int left = static_cast<int>(problems) - ran;
  if (options.json) {
    const Json root = {{"problems", problems},      {"passed", counts.passed}, {"failed", counts.failed},
                       {"refused", counts.refused}, {"not_run", left},         {"seconds", seconds}};
    fmt::print("{}\n", root.dump());
    return;
  }
  fmt::print("{} problem{}: {} passed, {} failed, {} refused, {} not run, {}\n", problems,
             problems == 1 ? "" : "s", counts.passed, counts.failed, counts.refused, left,
             duration_text(seconds));
}

Context make_context() {
  ringattn_context* context = nullptr;
  check(ringattn_context_create(nullptr, &context));
  return Context(context);
}

int verify(const Options& options) {
  const std::vector<Case> cases = read_cases(options);
  const auto start = std::chrono::steady_clock::now();
  const Context context = make_context();
  Counts counts;
  for (const Case& one : cases) {
    support::VerifyResult result;
    result.line = support::to_line(one.problem);
    result.error = refusal_of(context.get(), one.problem);
    Outcome outcome = Outcome::refused;
    if (result.error.empty()) {
      support::RunOptions run;
      run.with_d_lse = true;  // the harder problem: something flows into both outputs
      result = support::verify(one.problem, options.seed, run);
      outcome = result.ok ? Outcome::passed : Outcome::failed;
    } else if (!options.keep_going) {
      throw BadInput(one.where + result.error);
    }
    print_outcome(options, result, outcome);
    ++(outcome == Outcome::passed   ? counts.passed
       : outcome == Outcome::failed ? counts.failed
                                    : counts.refused);
    if (outcome == Outcome::failed && !options.keep_going) break;
  }
  print_counts(options, counts, cases.size(),
               std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  if (counts.failed > 0) return kExitWrongAnswer;
  return counts.refused > 0 ? kExitBadInput : kExitOk;
}

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("verify",
                         "Random data through the ring, compared with fp64; with pass=backward the "
                         "gradients too");
  auto options = std::make_shared<Options>();
  command->add_option("problem", options->words, "One problem as key=value words")->type_name("PROBLEM");
  command->add_option("--file", options->file, "A problem a line; # begins a comment")
      ->type_name("PROBLEMS.txt");
  command->add_option("--seed", options->seed, "Seed of the random data [0]")->type_name("S");
  command->add_flag("--json", options->json, "One line of JSON a problem, and one with the counts");
  command->add_flag("--keep-going", options->keep_going,
                    "Do not stop at the first problem that fails or is refused");
  command->footer(problem_help());
  command->callback([&action, options] { action = [options] { return verify(*options); }; });
}

}  // namespace ringattn::tool
