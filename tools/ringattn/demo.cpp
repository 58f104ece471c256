// ringattn demo: one ring attention from random data to a checked answer and a picture of what overlapped what.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "answer_check.h"
#include "commands.h"
#include "error.h"
#include "output_file.h"
#include "perfetto.h"
#include "problem_words.h"
#include "progress.h"
#include "ring_run.h"
#include "tests/support/random_data.h"
#include "text.h"
#include "timeline_svg.h"

namespace ringattn::tool {
namespace {

struct Options {
  int ranks = 4;
  std::int64_t tokens = 4096;
  int threads = -1;  // not given
  std::uint64_t seed = 1;
  std::string out_dir = ".";
};

// Every rank is driven by a thread of its own, as in a real ring; where there are no more cores than ranks, that is all the
// threads there should be.
int threads_of(const Options& options) {
  if (options.threads >= 0) return options.threads;
  return options.ranks >= static_cast<int>(std::thread::hardware_concurrency()) ? 1 : 0;
}

support::ProblemLine problem_of(const Options& options, std::int64_t tokens) {
  return parse_words({fmt::format("n={}", tokens),
                      "heads=8 kv_heads=2 dim=64 dtype=bf16 mask=causal partition=zigzag",
                      fmt::format("ranks={} threads={}", options.ranks, threads_of(options))});
}

// A thread a rank shows a real ring best, but hundreds of threads would only show the scheduler of the system.
Drive drive_of(const Options& options) {
  constexpr int most_threads = 64;
  return options.ranks <= most_threads ? Drive::thread_per_rank : Drive::together;
}

// Work of a causal problem, in (query, key) pairs of one head.
double pairs(std::int64_t tokens) {
  return 0.5 * static_cast<double>(tokens) * static_cast<double>(tokens + 1);
}

// A shorter run first: it wakes the threads, and tells how fast this machine is, which the bar's time needs.
double seconds_per_pair(const Options& options) {
  Progress progress(stdout, is_terminal(stdout), "warm-up");
  const std::int64_t tokens =
      std::min<std::int64_t>(options.tokens, std::clamp<std::int64_t>(options.tokens / 2, 512, 4096));
  const support::ProblemLine problem = problem_of(options, tokens);
  const support::Inputs inputs = support::random_inputs(problem, options.seed);
  const Ring ring = make_local_ring(problem.ranks, problem.threads, problem.transport);
  RingRun run(problem, false, ring);
  run.scatter(inputs.q.view(), inputs.k.view(), inputs.v.view());
  const double seconds = run.forward(drive_of(options), [&] { progress.update(-1); });
  progress.finish(fmt::format("{} tokens", grouped(tokens)));
  return seconds / std::max(1.0, pairs(tokens));
}

support::Inputs make_data(const Options& options, const support::ProblemLine& problem) {
  Progress progress(stdout, is_terminal(stdout), "data");
  support::Inputs inputs = support::random_inputs(problem, options.seed);
  const double bytes = 2.0 * static_cast<double>(inputs.q.size() + inputs.k.size() + inputs.v.size());
  progress.finish(fmt::format("q, k, v of normal random numbers, {}", bytes_text(bytes)));
  return inputs;
}

// Seconds of the forward pass, and its line.
double run_forward(const support::ProblemLine& problem, Drive drive, RingRun& run, double expected_seconds) {
  Progress progress(stdout, is_terminal(stdout), "forward");
  const double seconds =
      run.forward(drive, [&] { progress.update(std::min(0.99, progress.seconds() / expected_seconds)); });
  progress.finish(
      fmt::format("{} ranks, {} visible pairs a head", problem.ranks, count_text(pairs(problem.queries))));
  return seconds;
}

Verdict check_demo(const support::ProblemLine& problem, const Answer& answer) {
  Progress progress(stdout, is_terminal(stdout), "fp64 check");
  const std::vector<RowBlock> all = row_blocks(problem, kRowsOfBlock);
  const auto most = static_cast<std::size_t>(kMostCheckedQueries / kRowsOfBlock);
  Verdict verdict =
      check_answer(problem, answer, spread(all, most, {}), [&](double done) { progress.update(done); });
  progress.finish(fmt::format("{} of {} rows, all heads", grouped(verdict.rows), grouped(problem.queries)));
  return verdict;
}

std::string milliseconds(std::uint64_t ns) { return fmt::format("{:.2f} ms", static_cast<double>(ns) / 1e6); }

void print_times(const std::vector<RankTrace>& traces) {
  fmt::print("\ntime by part (compute and transfer are sums over workers and blocks)\n");
  fmt::print("{:>5} {:>11} {:>11} {:>11} {:>11} {:>13} {:>10}\n", "rank", "total", "agree", "compute",
             "transfer", "exposed wait", "received");
  for (const RankTrace& trace : traces) {
    const ringattn_times& times = trace.times;
    fmt::print("{:>5} {:>11} {:>11} {:>11} {:>11} {:>13} {:>10}\n", trace.rank, milliseconds(times.total_ns),
               milliseconds(times.agree_ns), milliseconds(times.compute_ns), milliseconds(times.transfer_ns),
               milliseconds(times.exposed_wait_ns), bytes_text(static_cast<double>(times.bytes_received)));
  }
}

TimelineText caption(const support::ProblemLine& problem, const Verdict& verdict, double seconds) {
  return {
      fmt::format("Ring attention on {} ranks, {} tokens: {:.0f} ms", problem.ranks, grouped(problem.queries),
                  1000 * seconds),
      fmt::format(
          "causal, zig-zag, {} heads on {} K/V heads, dim {}, bf16; largest error against fp64 {:.2g}, "
          "limit {:.2g}",
          problem.heads, problem.effective_kv_heads(), problem.dim, verdict.o.max_abs, verdict.o.limit_max)};
}

std::string path_in(const std::string& folder, const char* name) {
  return folder.empty() || folder == "." ? name : folder + (folder.back() == '/' ? "" : "/") + name;
}

int demo(const Options& options) {
  if (options.tokens < 1) throw BadInput(fmt::format("--tokens {}: expected at least 1", options.tokens));
  const support::ProblemLine problem = problem_of(options, options.tokens);
  // Opened first: a folder that cannot be written should not cost a run.
  const std::string picture_path = path_in(options.out_dir, "demo-timeline.svg");
  const std::string trace_path = path_in(options.out_dir, "demo-trace.json");
  OutputFile picture(picture_path), trace(trace_path);

  fmt::print(
      "exact attention over {} tokens on {} ranks: causal, zig-zag, {} heads, {} K/V heads, dim {}, bf16\n\n",
      grouped(problem.queries), problem.ranks, problem.heads, problem.effective_kv_heads(), problem.dim);
  const double per_pair = seconds_per_pair(options);
  const support::Inputs inputs = make_data(options, problem);
  const Ring ring = make_local_ring(problem.ranks, problem.threads, problem.transport);
  RingRun run(problem, true, ring);
  run.scatter(inputs.q.view(), inputs.k.view(), inputs.v.view());
  const double seconds =
      run_forward(problem, drive_of(options), run, std::max(1e-3, per_pair * pairs(problem.queries)));
  const Buffer o(problem.dtype, 1, problem.queries, problem.heads, problem.effective_dim_v());
  const Buffer lse(RINGATTN_DTYPE_F32, 1, problem.heads, problem.queries, 1);
  run.gather(o.view(), lse.view());

  const Verdict verdict = check_demo(problem, {inputs.q.view(), inputs.k.view(), inputs.v.view(), o.view(),
                                               lse.view(), std::nullopt, std::nullopt});
  fmt::print("\n{}\n", to_text(verdict));
  const std::vector<RankTrace> traces = run.traces();
  print_times(traces);
  picture.write(timeline_svg(traces, caption(problem, verdict, seconds)));
  picture.commit();
  trace.write(perfetto_json(traces));
  trace.commit();
  fmt::print(
      "\n{}: {} rows of o and lse {} twice the error of a plain bf16 implementation; wrote {} and {} "
      "(open it in ui.perfetto.dev)\n",
      verdict.ok() ? "verified" : "NOT verified", grouped(verdict.rows),
      verdict.ok() ? "within" : "are not within", picture_path, trace_path);
  return verdict.ok() ? kExitOk : kExitWrongAnswer;
}

}  // namespace

void add_demo(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "demo", "Random data on several ranks, checked against fp64, with a picture of the run");
  auto options = std::make_shared<Options>();
  command->add_option("--ranks", options->ranks, "Ranks of the ring [4]")->type_name("P");
  command->add_option("--tokens", options->tokens, "Length of the sequence [4096]")->type_name("N");
  command
      ->add_option(
          "--threads", options->threads,
          "Threads of the context, 0 = all cores [1 where there are no more cores than ranks, else 0]")
      ->type_name("T");
  command->add_option("--seed", options->seed, "Seed of the random data [1]")->type_name("S");
  command->add_option("--out-dir", options->out_dir, "Folder of demo-timeline.svg and demo-trace.json [.]")
      ->type_name("FOLDER");
  command->callback([&action, options] { action = [options] { return demo(*options); }; });
}

}  // namespace ringattn::tool
