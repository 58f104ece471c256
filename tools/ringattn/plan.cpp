// ringattn plan: what a problem costs on every rank, before anything runs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "error.h"
#include "output_file.h"
#include "plan_svg.h"
#include "problem_words.h"
#include "ring_plan.h"
#include "text.h"

namespace ringattn::tool {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::vector<std::string> words;
  int rank = -1;  // -1 = all
  bool json = false;
  std::string picture;
};

double balance_of(const ringattn_plan_info& info) {
  return info.pairs_mean > 0 ? info.pairs_max / info.pairs_mean : 1;
}

// The threshold of the whole ring is that of its most demanding rank.
double threshold_of(const RingPlan& plan) {
  double least = INFINITY;
  for (const ringattn_plan_info& info : plan.infos) least = std::min(least, info.overlap_flops_per_byte);
  return least;
}

Json figures_of(const ringattn_plan_info& info, bool backward) {
  Json figures = {{"rank", info.rank},
                  {"steps", info.steps},
                  {"local_q", info.local_q},
                  {"local_k", info.local_k},
                  {"bytes_sent", info.bytes_sent},
                  {"bytes_received", info.bytes_received},
                  {"pairs", info.pairs},
                  {"flops", info.flops},
                  {"workspace_bytes", info.workspace_bytes},
                  {"plan_bytes", info.plan_bytes}};
  if (backward) {
    figures["backward_bytes_sent"] = info.backward_bytes_sent;
    figures["backward_bytes_received"] = info.backward_bytes_received;
    figures["backward_flops"] = info.backward_flops;
  }
  // JSON has no infinity: null = nothing is received, so nothing has to be hidden.
  figures["overlap_flops_per_byte"] =
      std::isfinite(info.overlap_flops_per_byte) ? Json(info.overlap_flops_per_byte) : Json(nullptr);
  return figures;
}

void print_json(const support::ProblemLine& problem, const RingPlan& plan, bool with_operations) {
  const ringattn_plan_info& first = plan.infos.front();
  const double threshold = threshold_of(plan);
  Json root = {{"problem", support::to_line(problem)}, {"world_size", problem.ranks}};
  if (!plan.kernel.empty()) root["kernel"] = plan.kernel;
  root["balance"] = {
      {"max", first.pairs_max}, {"mean", first.pairs_mean}, {"max_over_mean", balance_of(first)}};
  root["overlap_flops_per_byte"] = std::isfinite(threshold) ? Json(threshold) : Json(nullptr);
  for (const ringattn_plan_info& info : plan.infos) {
    root["ranks"].push_back(figures_of(info, problem.backward));
  }
  if (with_operations) root["plan"] = Json::parse(plan.description);
  fmt::print("{}\n", root.dump());
}

void print_table(const RingPlan& plan) {
  fmt::print("{:>5} {:>6} {:>12} {:>12} {:>10} {:>10} {:>10} {:>9} {:>10} {:>10}\n", "rank", "steps",
             "queries", "keys", "sent", "received", "pairs", "of mean", "workspace", "plan");
  for (const ringattn_plan_info& info : plan.infos) {
    const double share = info.pairs_mean > 0 ? info.pairs / info.pairs_mean : 1;
    fmt::print("{:>5} {:>6} {:>12} {:>12} {:>10} {:>10} {:>10} {:>9.4f} {:>10} {:>10}\n", info.rank,
               info.steps, grouped(info.local_q), grouped(info.local_k),
               bytes_text(static_cast<double>(info.bytes_sent)),
               bytes_text(static_cast<double>(info.bytes_received)), count_text(info.pairs), share,
               bytes_text(static_cast<double>(info.workspace_bytes)),
               bytes_text(static_cast<double>(info.plan_bytes)));
  }
}

// What the gradients add. Their steps and pairs are forward's; the workspace above serves both passes.
void print_backward(const RingPlan& plan) {
  fmt::print("\nbackward: K and V go round once more, with dK and dV in fp32\n");
  fmt::print("{:>5} {:>10} {:>10} {:>10} {:>12}\n", "rank", "sent", "received", "flops", "of forward's");
  for (const ringattn_plan_info& info : plan.infos) {
    fmt::print("{:>5} {:>10} {:>10} {:>10} {:>12.2f}\n", info.rank,
               bytes_text(static_cast<double>(info.backward_bytes_sent)),
               bytes_text(static_cast<double>(info.backward_bytes_received)), count_text(info.backward_flops),
               info.flops > 0 ? info.backward_flops / info.flops : 1);
  }
}

void print_overlap(double threshold) {
  if (!std::isfinite(threshold)) {
    fmt::print("overlap  nothing is received, so there is no transfer to hide\n");
    return;
  }
  // For a link of its own, what a rank of one Tflop/s needs: a number to compare with a data sheet.
  fmt::print(
      "overlap  transfers are hidden where a rank's (compute flop/s) / (link byte/s) is at most {}:\n"
      "         a rank that computes 1 Tflop/s needs a link of at least {}/s\n",
      count_text(threshold), threshold > 0 ? bytes_text(1e12 / threshold) : "infinitely many B");
}

void print_text(const support::ProblemLine& problem, const RingPlan& plan) {
  const ringattn_plan_info& first = plan.infos.front();
  fmt::print("problem  {}\n", support::to_line(problem));
  if (!plan.kernel.empty()) fmt::print("kernel   {}\n", plan.kernel);
  fmt::print("\n");
  print_table(plan);
  if (plan.infos.size() > 1 && plan.infos.size() < static_cast<std::size_t>(problem.ranks)) {
    fmt::print("      {} of {} ranks; --rank R shows another\n", plan.infos.size(), problem.ranks);
  }
  if (problem.backward) print_backward(plan);
  fmt::print("\nbalance  work max/mean = {:.4f} (busiest rank {} pairs, mean {}; batch and heads counted)\n",
             balance_of(first), count_text(first.pairs_max), count_text(first.pairs_mean));
  print_overlap(threshold_of(plan));
  if (problem.transport != "local") {
    fmt::print("memory   with a transport that copies; transport=local lends and needs less\n");
  }
}

// Figures of one rank need the work of all, so time grows with the cube of the ranks: of many, a sample is shown.
std::vector<int> shown_ranks(int ranks) {
  constexpr std::int64_t whole = 256;
  const std::int64_t square = static_cast<std::int64_t>(ranks) * ranks;
  const auto count = std::min<std::int64_t>(ranks, std::max<std::int64_t>(3, whole * whole * whole / square));
  std::vector<int> shown;
  for (std::int64_t i = 0; i < count; ++i) {
    shown.push_back(static_cast<int>(count == 1 ? 0 : i * (ranks - 1) / (count - 1)));
  }
  return shown;
}

int run_plan(const Options& options) {
  const support::ProblemLine problem = parse_words(options.words);
  if (options.rank >= problem.ranks) {
    throw BadInput(fmt::format("--rank {}: expected less than ranks={}", options.rank, problem.ranks));
  }
  const bool drawn = !options.picture.empty();
  if (drawn && !options.picture.ends_with(".svg")) {
    throw BadInput(fmt::format("--picture {}: expected the name of an .svg file", options.picture));
  }
  if (drawn && problem.ranks > kMostPicturedRanks) {
    throw BadInput(fmt::format("--picture: ranks={} are too many to draw, at most {}", problem.ranks,
                               kMostPicturedRanks));
  }
  constexpr int few = 32;
  const std::vector<int> shown = shown_ranks(problem.ranks);
  RingPlan plan;
  if (drawn || options.rank < 0) {
    plan =
        preview_ranks(problem, shown, drawn || problem.ranks <= few ? Detail::operations : Detail::figures);
  }
  if (drawn) write_text_file(options.picture, plan_svg(plan, support::to_line(problem)));
  if (options.rank >= 0) plan = preview_ranks(problem, {options.rank}, Detail::operations);
  if (options.json) {
    print_json(problem, plan, options.rank >= 0);
  } else {
    print_text(problem, plan);
    if (drawn) fmt::print("picture  {}\n", options.picture);
  }
  return kExitOk;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("plan", "Steps, bytes, work and memory of a problem on every rank; runs nothing");
  auto options = std::make_shared<Options>();
  command->add_option("problem", options->words, "The problem as key=value words")
      ->required()
      ->type_name("PROBLEM");
  command->add_option("--rank", options->rank, "Only this rank; with --json its operations too")
      ->check(CLI::NonNegativeNumber)
      ->type_name("R");
  command->add_flag("--json", options->json, "One line of JSON");
  command->add_option("--picture", options->picture, "Write an SVG of every rank's steps and transfers")
      ->type_name("FILE.svg");
  command->footer(problem_help());
  command->callback([&action, options] { action = [options] { return run_plan(*options); }; });
}

}  // namespace ringattn::tool
