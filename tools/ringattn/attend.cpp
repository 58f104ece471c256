// ringattn attend: attention over tensors in a file, and its gradients, computed by the ranks of a ring: all in this
// process, or each a process that a launcher has started, this one among them.
#include <fmt/format.h>

#include <cctype>
#include <functional>
#include <memory>
#include <optional>

#include "attend_check.h"
#include "attend_input.h"
#include "commands.h"
#include "error.h"
#include "output_file.h"
#include "problem_words.h"
#include "progress.h"
#include "ring_plan.h"
#include "ring_run.h"
#include "run_self.h"
#include "trace_file.h"

namespace ringattn::tool {
namespace {

struct Options {
  std::string in, out, trace;
  std::optional<int> ranks, processes;
  int threads = 0;
  std::string partition = "zigzag";
  std::string mask, docs, docs_k, offset, scale;  // empty = not given
  std::string dtype_out = "same";
  std::string dtype_grad;  // empty = not given
  std::string nan = "refuse";
  bool check = false;
  bool backward = false;
};

// What the file says about its own tensors counts where the command line says nothing.
std::string metadata_or(const SafetensorsFile& file, std::string_view key, const char* otherwise) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? otherwise : found->second;
}

support::ProblemLine problem_of(const Options& options, int ranks, const SafetensorsFile& file,
                                const AttendInput& input) {
  const auto word = [](std::string_view key, const auto& value) { return fmt::format("{}={}", key, value); };
  std::string mask = options.mask;
  if (mask.empty()) mask = metadata_or(file, "causal", "0") == "1" ? "causal" : "full";
  std::vector<std::string> words = {word("q", input.q.shape[1]),          word("k", input.k.shape[1]),
                                    word("batch", input.q.shape[0]),      word("heads", input.q.shape[2]),
                                    word("dim", input.q.shape[3]),        word("dtype", input.dtype_name),
                                    word("dtype_out", options.dtype_out), word("mask", mask),
                                    word("partition", options.partition), word("ranks", ranks),
                                    word("threads", options.threads)};
  if (input.k.shape[2] != input.q.shape[2]) words.push_back(word("kv_heads", input.k.shape[2]));
  if (input.v.shape[3] != input.q.shape[3]) words.push_back(word("dim_v", input.v.shape[3]));
  if (!options.docs.empty()) words.push_back(word("docs", options.docs));
  if (!options.docs_k.empty()) words.push_back(word("docs_k", options.docs_k));
  if (!options.offset.empty()) words.push_back(word("offset", options.offset));
  const std::string scale = options.scale.empty() ? metadata_or(file, "scale", "") : options.scale;
  if (!scale.empty()) words.push_back(word("scale", scale));
  if (options.backward) words.push_back("pass=backward");
  if (!options.dtype_grad.empty()) words.push_back(word("dtype_grad", options.dtype_grad));
  return parse_words(words);
}

// The input file, read and checked. Every rank reads the whole of it.
struct Job {
  Job(const Options& options, int ranks, NonFinite policy);
  const BackwardInput* backward() const { return gradients ? &*gradients : nullptr; }

  SafetensorsFile file;
  AttendInput input;
  support::ProblemLine problem;
  std::optional<BackwardInput> gradients;
};

Job::Job(const Options& options, int ranks, NonFinite policy)
    : file(options.in),
      input(read_attend_input(file, policy)),
      problem(problem_of(options, ranks, file, input)) {
  if (!options.out.empty() && file.is_same_file(options.out))
    throw BadInput(fmt::format("--out {} is the input file", options.out));
  if (options.backward) gradients = read_backward_input(file, problem, policy);
  if (options.check) require_checkable(problem, input);
}

// One pass, with its line where the ring reports. Of one rank nobody knows how far it is: it has a single block.
void run_pass(const Ring& ring, const char* label, RingRun& run,
              double (RingRun::*pass)(Drive, const std::function<void()>&)) {
  if (!ring.reports()) {
    (run.*pass)(Drive::together, {});
    return;
  }
  Progress progress(stdout, is_terminal(stdout), label);
  const double seconds =
      (run.*pass)(Drive::together, [&] { progress.update(ring.world > 1 ? run.part_done() : -1); });
  const char* what = ring.is_whole() ? (ring.world == 1 ? "rank" : "ranks") : "processes";
  progress.finish(fmt::format("{} {}; {} of it attention", ring.world, what, duration_text(seconds)));
}

// Buffers of the whole ring's answer, empty where it does not report.
AttendResult room_for(const support::ProblemLine& problem, const Ring& ring) {
  AttendResult result;
  if (!ring.reports()) return result;
  const std::int64_t batch = problem.batch, queries = problem.queries, heads = problem.heads;
  result.o = Buffer(problem.effective_dtype_out(), batch, queries, heads, problem.effective_dim_v());
  result.lse = Buffer(RINGATTN_DTYPE_F32, batch, heads, queries, 1);
  if (!problem.backward) return result;
  const ringattn_dtype dtype = problem.effective_dtype_grad();
  const std::int64_t keys = problem.keys, kv_heads = problem.effective_kv_heads();
  result.d_q = Buffer(dtype, batch, queries, heads, problem.dim);
  result.d_k = Buffer(dtype, batch, keys, kv_heads, problem.dim);
  result.d_v = Buffer(dtype, batch, keys, kv_heads, problem.effective_dim_v());
  return result;
}

// `trace` is NULL without --trace.
AttendResult compute(const Job& job, const Ring& ring, TraceFile* trace) {
  const AttendInput& input = job.input;
  RingRun run(job.problem, trace != nullptr, ring);
  run.scatter(input.q, input.k, input.v);
  if (const BackwardInput* gradients = job.backward())
    run.scatter_gradients(gradients->d_o, gradients->d_lse ? &*gradients->d_lse : nullptr);
  AttendResult result = room_for(job.problem, ring);
  run_pass(ring, "forward", run, &RingRun::forward);
  if (trace) trace->add(run.traces());
  run.gather(result.o.view(), result.lse.view());
  if (!job.gradients) return result;
  run_pass(ring, "backward", run, &RingRun::backward);
  if (trace) trace->add(run.traces());
  run.gather_gradients(result.d_q.view(), result.d_k.view(), result.d_v.view());
  return result;
}

StoredTensor stored(const char* name, const char* dtype, std::vector<std::int64_t> shape,
                    const Buffer& buffer) {
  return {name, dtype, std::move(shape), buffer.bytes()};
}

// A dtype as the file spells it: that of the input, or F32.
std::string stored_dtype(const support::ProblemLine& problem, const AttendInput& input,
                         ringattn_dtype dtype) {
  std::string name = dtype == problem.dtype ? input.dtype_name : "f32";
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

void write_result(OutputFile& file, const support::ProblemLine& problem, const AttendInput& input,
                  const AttendResult& result) {
  const std::int64_t batch = problem.batch, queries = problem.queries, heads = problem.heads;
  const std::string dtype = stored_dtype(problem, input, problem.effective_dtype_out());
  std::vector<StoredTensor> tensors{
      stored("lse", "F32", {batch, heads, queries}, result.lse),
      stored("o", dtype.c_str(), {batch, queries, heads, problem.effective_dim_v()}, result.o)};
  if (problem.backward) {
    const std::int64_t keys = problem.keys, kv_heads = problem.effective_kv_heads();
    const std::string grad = stored_dtype(problem, input, problem.effective_dtype_grad());
    tensors.push_back(stored("dq", grad.c_str(), {batch, queries, heads, problem.dim}, result.d_q));
    tensors.push_back(stored("dk", grad.c_str(), {batch, keys, kv_heads, problem.dim}, result.d_k));
    tensors.push_back(
        stored("dv", grad.c_str(), {batch, keys, kv_heads, problem.effective_dim_v()}, result.d_v));
  }
  write_safetensors(
      file, tensors,
      {{"problem", support::to_line(problem)}, {"lse", "natural logarithm, [batch, head, seq]"}});
  file.commit();
}

void check_options(const Options& options) {
  if (options.out.empty() && !options.check) throw BadInput("attend: expected --out, --check or both");
  if (!options.dtype_grad.empty() && !options.backward)
    throw BadInput(fmt::format("--dtype-grad {}: expected with --backward only", options.dtype_grad));
  if (!options.trace.empty() && options.trace == options.out)
    throw BadInput(fmt::format("--trace {}: expected another file than --out", options.trace));
  if (options.processes) check_processes(*options.processes, options.ranks);
}

int ranks_of(const Options& options, const std::optional<Ring>& launched) {
  if (!launched) return options.ranks.value_or(1);
  if (options.ranks && *options.ranks != launched->world) {
    throw BadInput(fmt::format("--ranks {}: expected {}, the ranks that the launcher has started",
                               *options.ranks, launched->world));
  }
  return launched->world;
}

// Rank 0 judges and writes. A wrong answer is its exit status alone.
int report(const Options& options, const Job& job, const AttendResult& result, OutputFile* out) {
  if (options.check && !check_all(job.problem, job.input, job.backward(), result)) {
    if (out) fmt::print("{} was not written\n", options.out);
    return kExitWrongAnswer;
  }
  if (out) {
    write_result(*out, job.problem, job.input, result);
    fmt::print("written      {}\n", options.out);
  }
  return kExitOk;
}

int attend(const Options& options, const Arguments& arguments) {
  check_options(options);
  const NonFinite policy = options.nan == "allow" ? NonFinite::allow : NonFinite::refuse;
  if (options.processes) {  // what is wrong with the input is told once, here
    const Job job(options, *options.processes, NonFinite::allow);
    preview_ranks(job.problem, {0}, Detail::figures);
    return run_self(*options.processes, arguments);
  }
  // First of all: ranks that have met see at once when one of them fails.
  std::optional<Ring> launched = join_launched_ring(options.threads);
  const Job job(options, ranks_of(options, launched), policy);
  const Ring ring = launched ? std::move(*launched)
                             : make_local_ring(job.problem.ranks, job.problem.threads, job.problem.transport);
  // Opened before the run: a folder that cannot be written should not cost one.
  std::optional<OutputFile> out;
  std::optional<TraceFile> trace;
  if (!options.out.empty() && ring.reports()) out.emplace(options.out);
  if (!options.trace.empty()) trace.emplace(options.trace, ring);
  if (ring.reports()) fmt::print("problem      {}\n", support::to_line(job.problem));
  const AttendResult result = compute(job, ring, trace ? &*trace : nullptr);
  if (trace) trace->write();
  return ring.reports() ? report(options, job, result, out ? &*out : nullptr) : kExitOk;
}

}  // namespace

void add_attend(CLI::App& app, const Arguments& arguments, Action& action) {
  CLI::App* command = app.add_subcommand(
      "attend", "Attention over the tensors q, k, v of a safetensors file, and its gradients");
  auto options = std::make_shared<Options>();
  command->add_option("input", options->in, "q, k and v as [batch, seq, head, dim] of F32, F16 or BF16")
      ->required()
      ->type_name("IN.safetensors");
  command
      ->add_option(
          "--out", options->out,
          "Write o [batch, seq, head, dim] and lse [batch, head, seq] (F32); with --backward also dq, dk, dv")
      ->type_name("OUT.safetensors");
  command->add_flag(
      "--check", options->check,
      "Compare with o_ref and lse_ref (dq_ref, dk_ref, dv_ref) of the file, or with fp64; exit 1 "
      "beyond the tolerance");
  command->add_flag(
      "--backward", options->backward,
      "Then the gradients dq, dk, dv of q, k, v, from the file's do, like o, and dlse [batch, head, seq] "
      "(F32) where it has one");
  command
      ->add_option("--ranks", options->ranks,
                   "Ranks of the ring, all in this process [1; under a launcher, its processes]")
      ->type_name("P");
  command->add_option("--processes", options->processes, "Start so many processes, each a rank of the ring")
      ->type_name("P");
  command
      ->add_option("--threads", options->threads,
                   "Threads that compute [0 = all cores, of each process its share]")
      ->type_name("T");
  command
      ->add_option("--trace", options->trace,
                   "Write what each rank did when, for ui.perfetto.dev; rank R of several processes writes "
                   "FILE.rankR.json")
      ->type_name("FILE.json");
  command->add_option("--partition", options->partition, "contiguous, zigzag or striped[:STRIPE] [zigzag]")
      ->type_name("NAME");
  command
      ->add_option(
          "--mask", options->mask,
          "full, or causal and window:LEFT[:RIGHT] joined by a comma [causal where the file's metadata "
          "has causal=1, else full]")
      ->type_name("MASK");
  command->add_option("--docs", options->docs, "Lengths of the documents in the row; what follows is padding")
      ->type_name("LEN,LEN,...");
  command->add_option("--docs-k", options->docs_k, "The same for the keys [as --docs]")
      ->type_name("LEN,LEN,...");
  command->add_option("--offset", options->offset, "Position of the first query [keys - queries]")
      ->type_name("POS");
  command
      ->add_option("--scale", options->scale,
                   "Factor of q.k [scale of the file's metadata, else 1/sqrt(dim)]")
      ->type_name("S");
  command->add_option("--dtype-out", options->dtype_out, "same or f32: dtype of o [same]")
      ->type_name("DTYPE");
  command->add_option("--dtype-grad", options->dtype_grad, "same or f32: dtype of dq, dk, dv [same]")
      ->type_name("DTYPE");
  command
      ->add_option("--nan", options->nan, "refuse or allow: NaN and infinity in q, k, v, do, dlse [refuse]")
      ->check(CLI::IsMember({"refuse", "allow"}))
      ->type_name("POLICY");
  command->footer(
      "Under a launcher (ringattn run, mpirun, torchrun, srun) each process is one rank; rank 0 alone "
      "prints, checks and\n"
      "writes OUT.");
  command->callback([&action, &arguments, options] {
    action = [options, &arguments] { return attend(*options, arguments); };
  });
}

}  // namespace ringattn::tool
