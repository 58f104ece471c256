#include "tests/support/verify.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "tests/support/oracle.h"
#include "tests/support/oracle_backward.h"
#include "tests/support/plain.h"
#include "tests/support/plain_backward.h"

namespace ringattn::support {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Threads for the oracle: starting them pays only where there is work for milliseconds.
int oracle_workers(const ProblemLine& problem) {
  const double work = static_cast<double>(problem.batch) * static_cast<double>(problem.heads) *
                      static_cast<double>(problem.queries) * static_cast<double>(problem.keys);
  return work < 1e5 ? 1 : std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 8);
}

std::string errors_text(const char* name, const LimitResult& limit) {
  char text[160];
  std::snprintf(text, sizeof text, "%s max %.2e (limit %.2e) rms %.2e (limit %.2e)", name, limit.max_abs,
                limit.limit_max, limit.rms, limit.limit_rms);
  return text;
}

void check_gradients(const ProblemLine& problem, const Inputs& inputs, const HostTensor* d_lse,
                     const PlainResult& forward, const RunResult& run, VerifyResult& result) {
  const int workers = oracle_workers(problem);
  const OracleGradients oracle =
      oracle_backward(problem, inputs.q, inputs.k, inputs.v, inputs.d_o, d_lse, workers, {}, &run.o);
  const PlainGradients plain =
      plain_backward(problem, inputs.q, inputs.k, inputs.v, forward, inputs.d_o, d_lse, workers);
  result.d_q = check_gradient("d_q", run.d_q, oracle.d_q, plain.d_q);
  result.d_k = check_gradient("d_k", run.d_k, oracle.d_k, plain.d_k);
  result.d_v = check_gradient("d_v", run.d_v, oracle.d_v, plain.d_v);
}

}  // namespace

VerifyResult verify_inputs(const ProblemLine& problem, const Inputs& inputs, const RunOptions& options) {
  VerifyResult result;
  result.line = to_line(problem);
  result.backward = problem.backward;
  const RunResult run = run_ring(problem, inputs, options);
  result.run_seconds = run.seconds + run.backward_seconds;
  if (!run.ok()) {
    result.error = run.error();
    return result;
  }
  const auto start = std::chrono::steady_clock::now();
  const int workers = oracle_workers(problem);
  const OracleResult oracle = oracle_attention(problem, inputs.q, inputs.k, inputs.v, workers);
  const PlainResult plain = plain_attention(problem, inputs.q, inputs.k, inputs.v, workers);
  result.o = check_o(run.o, oracle, plain);
  result.lse = check_lse(run.lse, oracle, plain);
  if (problem.backward) {
    check_gradients(problem, inputs, options.with_d_lse ? &inputs.d_lse : nullptr, plain, run, result);
  }
  result.oracle_seconds = seconds_since(start);
  for (const LimitResult* limit : {&result.o, &result.lse, &result.d_q, &result.d_k, &result.d_v}) {
    if (!limit->ok) result.error += (result.error.empty() ? "" : "; ") + limit->worst;
  }
  result.ok = result.error.empty();
  return result;
}

VerifyResult verify(const ProblemLine& problem, std::uint64_t seed, const RunOptions& options) {
  return verify_inputs(problem, random_inputs(problem, seed), options);
}

std::string to_text(const VerifyResult& result) {
  if (!result.ok) return "FAIL " + result.line + ": " + result.error;
  std::string text = "ok   " + errors_text("o", result.o) + "  " + errors_text("lse", result.lse);
  if (result.backward) {
    text += "  " + errors_text("d_q", result.d_q) + "  " + errors_text("d_k", result.d_k) + "  " +
            errors_text("d_v", result.d_v);
  }
  return text + "  " + result.line;
}

}  // namespace ringattn::support
