// ringattn attend: attention over tensors in a file, and its gradients, computed by all ranks of a ring in
// this process.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <memory>
#include <optional>

#include "answer_check.h"
#include "attend_input.h"
#include "commands.h"
#include "error.h"
#include "gradient_check.h"
#include "output_file.h"
#include "problem_words.h"
#include "progress.h"
#include "ring_run.h"
#include "text.h"

namespace ringattn::tool {
namespace {

struct Options {
  std::string in, out;
  int ranks = 1;
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

support::ProblemLine problem_of(const Options& options, const SafetensorsFile& file,
                                const AttendInput& input) {
  const auto word = [](std::string_view key, const auto& value) { return fmt::format("{}={}", key, value); };
  std::string mask = options.mask;
  if (mask.empty()) mask = metadata_or(file, "causal", "0") == "1" ? "causal" : "full";
  std::vector<std::string> words = {word("q", input.q.shape[1]),          word("k", input.k.shape[1]),
                                    word("batch", input.q.shape[0]),      word("heads", input.q.shape[2]),
                                    word("dim", input.q.shape[3]),        word("dtype", input.dtype_name),
                                    word("dtype_out", options.dtype_out), word("mask", mask),
                                    word("partition", options.partition), word("ranks", options.ranks),
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

struct Result {
  Buffer o, lse;
  Buffer d_q, d_k, d_v;  // with --backward
};

// One pass with its line. Of one rank nobody knows how far it is: it has a single block.
void run_pass(const support::ProblemLine& problem, const char* label, RingRun& run,
              double (RingRun::*pass)(Drive, const std::function<void()>&)) {
  Progress progress(stdout, is_terminal(stdout), label);
  const double seconds =
      (run.*pass)(Drive::together, [&] { progress.update(problem.ranks > 1 ? run.part_done() : -1); });
  progress.finish(fmt::format("{} rank{}; {} of it attention", problem.ranks, problem.ranks == 1 ? "" : "s",
                              duration_text(seconds)));
}

// `gradients` is NULL without --backward.
Result compute(const support::ProblemLine& problem, const AttendInput& input,
               const BackwardInput* gradients) {
  RingRun run(problem, false);
  run.scatter(input.q, input.k, input.v);
  if (gradients) run.scatter_gradients(gradients->d_o, gradients->d_lse ? &*gradients->d_lse : nullptr);
  run_pass(problem, "forward", run, &RingRun::forward);
  const std::int64_t batch = problem.batch, queries = problem.queries, heads = problem.heads;
  Result result;
  result.o = Buffer(problem.effective_dtype_out(), batch, queries, heads, problem.effective_dim_v());
  result.lse = Buffer(RINGATTN_DTYPE_F32, batch, heads, queries, 1);
  run.gather(result.o.view(), result.lse.view());
  if (!gradients) return result;
  run_pass(problem, "backward", run, &RingRun::backward);
  const ringattn_dtype dtype = problem.effective_dtype_grad();
  const std::int64_t keys = problem.keys, kv_heads = problem.effective_kv_heads();
  result.d_q = Buffer(dtype, batch, queries, heads, problem.dim);
  result.d_k = Buffer(dtype, batch, keys, kv_heads, problem.dim);
  result.d_v = Buffer(dtype, batch, keys, kv_heads, problem.effective_dim_v());
  run.gather_gradients(result.d_q.view(), result.d_k.view(), result.d_v.view());
  return result;
}

double pairs_of(const std::vector<RowBlock>& blocks) {
  double pairs = 0;
  for (const RowBlock& block : blocks)
    pairs += static_cast<double>(block.count) * static_cast<double>(block.key_count);
  return pairs;
}

// What is computed again in fp64 as a whole must end in reasonable time: an answer without references, and
// gradients always.
void require_checkable(const support::ProblemLine& problem, const AttendInput& input) {
  const bool references = input.o_ref && input.lse_ref;
  if (references && !problem.backward) return;
  constexpr double most = static_cast<double>(kMostCheckedQueries) * kMostCheckedQueries;
  if (problem.batch <= 1 && std::max(problem.queries, problem.keys) <= kMostCheckedQueries) return;
  if (pairs_of(row_blocks(problem, kRowsOfBlock)) <= most) return;
  const std::string why = references      ? "gradients are checked as a whole"
                          : input.o_ref   ? "the file has no lse_ref"
                          : input.lse_ref ? "the file has no o_ref"
                                          : "the file has no o_ref and lse_ref";
  throw BadInput(fmt::format(
      "--check: {} and the sequence is too long for an answer in fp64 (at most {} queries and keys)", why,
      grouped(kMostCheckedQueries)));
}

bool check_result(const support::ProblemLine& problem, const AttendInput& input, const Result& result) {
  Answer answer{input.q, input.k, input.v, result.o.view(), result.lse.view(), input.o_ref, input.lse_ref};
  const std::vector<RowBlock> all = row_blocks(problem, kRowsOfBlock);
  std::vector<RowBlock> blocks = all;
  if (input.o_ref && input.lse_ref) {  // a long answer is judged by rows that include its worst
    blocks = spread(
        all, static_cast<std::size_t>(kMostCheckedQueries / kRowsOfBlock),
        {furthest_query(answer.o, *input.o_ref, false), furthest_query(answer.lse, *input.lse_ref, true)});
  }
  Progress progress(stdout, is_terminal(stdout), "fp64 check");
  const Verdict verdict = check_answer(problem, answer, blocks, [&](double done) { progress.update(done); });
  const char* against = input.o_ref && input.lse_ref ? "o_ref and lse_ref"
                        : input.o_ref                ? "o_ref, and lse in fp64"
                        : input.lse_ref              ? "lse_ref, and o in fp64"
                                                     : "fp64";
  const std::string rows = blocks.size() == all.size()
                               ? fmt::format("all {} rows", grouped(verdict.rows))
                               : fmt::format("{} of {} rows, the worst among them,", grouped(verdict.rows),
                                             grouped(problem.batch * problem.queries));
  progress.finish(fmt::format("{} against {}", rows, against));
  fmt::print("{}\n", to_text(verdict));
  return verdict.ok();
}

bool check_gradients_of(const support::ProblemLine& problem, const AttendInput& input,
                        const BackwardInput& gradients, const Result& result) {
  const GradientAnswer answer{input.q,           input.k,           input.v,           gradients.d_o,
                              gradients.d_lse,   result.d_q.view(), result.d_k.view(), result.d_v.view(),
                              gradients.d_q_ref, gradients.d_k_ref, gradients.d_v_ref};
  std::vector<std::string> references;
  if (gradients.d_q_ref) references.emplace_back("dq_ref");
  if (gradients.d_k_ref) references.emplace_back("dk_ref");
  if (gradients.d_v_ref) references.emplace_back("dv_ref");
  Progress progress(stdout, is_terminal(stdout), "fp64 grads");
  const GradientVerdict verdict =
      check_gradients(problem, answer, [&](double done) { progress.update(done); });
  progress.finish(fmt::format("all of dq, dk, dv against {}",
                              references.empty() ? "fp64"
                              : references.size() == 3
                                  ? fmt::format("{}", fmt::join(references, ", "))
                                  : fmt::format("{}, the others in fp64", fmt::join(references, ", "))));
  fmt::print("{}\n", to_text(verdict));
  return verdict.ok();
}

// Everything is checked, also after the first part that is wrong.
bool check_all(const support::ProblemLine& problem, const AttendInput& input, const BackwardInput* gradients,
               const Result& result) {
  bool ok = check_result(problem, input, result);
  if (gradients) ok &= check_gradients_of(problem, input, *gradients, result);
  fmt::print("{}\n", ok ? "verified" : "NOT verified");
  return ok;
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
                  const Result& result) {
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

int attend(const Options& options) {
  if (options.out.empty() && !options.check) throw BadInput("attend: expected --out, --check or both");
  if (!options.dtype_grad.empty() && !options.backward) {
    throw BadInput(fmt::format("--dtype-grad {}: expected with --backward only", options.dtype_grad));
  }
  const SafetensorsFile file(options.in);
  if (!options.out.empty() && file.is_same_file(options.out)) {
    throw BadInput(fmt::format("--out {} is the input file", options.out));
  }
  const NonFinite policy = options.nan == "allow" ? NonFinite::allow : NonFinite::refuse;
  const AttendInput input = read_attend_input(file, policy);
  const support::ProblemLine problem = problem_of(options, file, input);
  std::optional<BackwardInput> read;
  if (options.backward) read = read_backward_input(file, problem, policy);
  const BackwardInput* gradients = read ? &*read : nullptr;
  if (options.check) require_checkable(problem, input);
  // Opened first: a folder that cannot be written should not cost a run.
  std::optional<OutputFile> out;
  if (!options.out.empty()) out.emplace(options.out);
  fmt::print("problem      {}\n", support::to_line(problem));
  const Result result = compute(problem, input, gradients);
  if (options.check && !check_all(problem, input, gradients, result)) {
    if (out) fmt::print("{} was not written\n", options.out);
    return kExitWrongAnswer;
  }
  if (out) {
    write_result(*out, problem, input, result);
    fmt::print("written      {}\n", options.out);
  }
  return kExitOk;
}

}  // namespace

void add_attend(CLI::App& app, Action& action) {
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
  command->add_option("--ranks", options->ranks, "Ranks of the ring [1]")->type_name("P");
  command->add_option("--threads", options->threads, "Threads that compute [0 = all cores]")->type_name("T");
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
  command->callback([&action, options] { action = [options] { return attend(*options); }; });
}

}  // namespace ringattn::tool
