#include "attend_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "answer_check.h"
#include "error.h"
#include "gradient_check.h"
#include "progress.h"
#include "text.h"

namespace ringattn::tool {
namespace {

double pairs_of(const std::vector<RowBlock>& blocks) {
  double pairs = 0;
  for (const RowBlock& block : blocks)
    pairs += static_cast<double>(block.count) * static_cast<double>(block.key_count);
  return pairs;
}

bool check_result(const support::ProblemLine& problem, const AttendInput& input, const AttendResult& result) {
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
                        const BackwardInput& gradients, const AttendResult& result) {
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

}  // namespace

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

bool check_all(const support::ProblemLine& problem, const AttendInput& input, const BackwardInput* gradients,
               const AttendResult& result) {
  bool ok = check_result(problem, input, result);
  if (gradients) ok &= check_gradients_of(problem, input, *gradients, result);
  fmt::print("{}\n", ok ? "verified" : "NOT verified");
  return ok;
}

}  // namespace ringattn::tool
