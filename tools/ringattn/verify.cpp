// ringattn verify: problems with random data against fp64, on ranks of this process or, under a launcher, on processes.
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
#include <optional>

#include "commands.h"
#include "error.h"
#include "handles.h"
#include "problem_words.h"
#include "progress.h"
#include "ring.h"
#include "run_self.h"
#include "tests/support/problem_plan.h"
#include "verify_ring.h"

namespace ringattn::tool {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::vector<std::string> words;
  std::string file;
  std::uint64_t seed = 0;
  std::optional<int> processes;
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

std::vector<support::NumberedLine> read_lines(const Options& options) {
  if (options.file.empty() == options.words.empty())
    throw BadInput("verify: expected either a PROBLEM or --file");
  if (options.file.empty()) return {{0, fmt::format("{}", fmt::join(options.words, " "))}};
  std::vector<support::NumberedLine> lines = support::problem_lines(read_text(options.file));
  if (lines.empty()) throw BadInput(fmt::format("{} has no problem", options.file));
  return lines;
}

// All lines are read before the first problem runs, so that a typing error in the last one costs no time.
// `processes` 0 = the ranks of a problem are of this process.
std::vector<Case> read_cases(const Options& options, int processes) {
  std::vector<Case> cases;
  for (const support::NumberedLine& line : read_lines(options)) {
    Case one;
    if (!options.file.empty()) one.where = fmt::format("{}:{}: ", options.file, line.number);
    const std::string text = processes > 0 ? line_for_processes(line.text, processes) : line.text;
    if (const auto error = support::parse_problem(text, one.problem)) throw BadInput(one.where + *error);
    if (processes > 0) require_process_problem(one.problem, processes, one.where);
    cases.push_back(std::move(one));
  }
  return cases;
}

// Can ranks of this process use the problem's transport? "" or why not.
std::string refusal_of_transport(ringattn_context* context, const support::ProblemLine& problem) {
  auto desc = RINGATTN_STRUCT(ringattn_comm_desc);
  desc.world_size = 1;
  desc.transport = problem.transport.empty() ? nullptr : problem.transport.c_str();
  ringattn_comm* comm = nullptr;
  if (ringattn_comm_create_local(context, &desc, &comm) != RINGATTN_OK) return ringattn_last_error();
  ringattn_comm_destroy(comm);
  return "";
}

// What the library says before anything runs: "" or why it refuses the problem.
std::string refusal_of(ringattn_context* context, const support::ProblemLine& problem) {
  const support::ProblemPlan structs(problem);
  if (ringattn_supports(context, &structs.desc(0)) != RINGATTN_OK) return ringattn_last_error();
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

int exit_status_of(const Counts& counts) {
  if (counts.failed > 0) return kExitWrongAnswer;
  return counts.refused > 0 ? kExitBadInput : kExitOk;
}

Context make_context() {
  ringattn_context* context = nullptr;
  check(ringattn_context_create(nullptr, &context));
  return Context(context);
}

// One problem after the other, on the ranks of a launcher where there are any. All ranks go the same way through the
// list: what is refused is so on all of them, and a verdict is told to all.
class Verifier {
 public:
  Verifier(const Options& options, std::optional<Ring> launched)
      : options_(options), launched_(std::move(launched)) {
    if (!launched_) own_context_ = make_context();
  }

  int run(const std::vector<Case>& cases);

 private:
  bool reports() const { return !launched_ || launched_->reports(); }
  support::VerifyResult run_one(const support::ProblemLine& problem) const;
  Outcome judge(const Case& one);

  const Options& options_;
  const std::optional<Ring> launched_;
  Context own_context_;
  Counts counts_;
};

support::VerifyResult Verifier::run_one(const support::ProblemLine& problem) const {
  if (launched_) return verify_on_ring(problem, options_.seed, *launched_);
  support::RunOptions run;
  run.with_d_lse = true;  // the harder problem: something flows into both outputs
  return support::verify(problem, options_.seed, run);
}

Outcome Verifier::judge(const Case& one) {
  support::VerifyResult result;
  result.line = support::to_line(one.problem);
  ringattn_context* context = launched_ ? launched_->context.get() : own_context_.get();
  result.error = refusal_of(context, one.problem);
  if (result.error.empty() && !launched_) result.error = refusal_of_transport(context, one.problem);
  Outcome outcome = Outcome::refused;
  if (result.error.empty()) {
    result = run_one(one.problem);
    outcome = result.ok ? Outcome::passed : Outcome::failed;
  } else if (!options_.keep_going && reports()) {
    throw BadInput(one.where + result.error);
  }
  if (reports()) print_outcome(options_, result, outcome);
  return outcome;
}

int Verifier::run(const std::vector<Case>& cases) {
  const auto start = std::chrono::steady_clock::now();
  for (const Case& one : cases) {
    const Outcome outcome = judge(one);
    ++(outcome == Outcome::passed   ? counts_.passed
       : outcome == Outcome::failed ? counts_.failed
                                    : counts_.refused);
    if (outcome != Outcome::passed && !options_.keep_going) break;
  }
  // A launcher ends all ranks when one fails: the others must not be faster than what rank 0 has to say.
  if (!reports()) return kExitOk;
  print_counts(options_, counts_, cases.size(),
               std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return exit_status_of(counts_);
}

int verify(const Options& options, const Arguments& arguments) {
  if (options.processes) {  // what is wrong with the problems is told once, here
    check_processes(*options.processes, std::nullopt);
    const Context context = make_context();
    for (const Case& one : read_cases(options, *options.processes)) {
      const std::string refusal = options.keep_going ? "" : refusal_of(context.get(), one.problem);
      if (!refusal.empty()) throw BadInput(one.where + refusal);
    }
    return run_self(*options.processes, arguments);
  }
  std::optional<Ring> launched = join_launched_ring(0);
  const std::vector<Case> cases = read_cases(options, launched ? launched->world : 0);
  return Verifier(options, std::move(launched)).run(cases);
}

}  // namespace

void add_verify(CLI::App& app, const Arguments& arguments, Action& action) {
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
  command
      ->add_option("--processes", options->processes,
                   "Start so many processes, each a rank of the ring; ranks in a PROBLEM is then theirs")
      ->type_name("P");
  command->footer(problem_help());
  command->callback([&action, &arguments, options] {
    action = [options, &arguments] { return verify(*options, arguments); };
  });
}

}  // namespace ringattn::tool
