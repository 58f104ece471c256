#include "tests/support/verify.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "tests/support/oracle.h"
#include "tests/support/plain.h"

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

}  // namespace

VerifyResult verify_inputs(const ProblemLine& problem, const Inputs& inputs, const RunOptions& options) {
  VerifyResult result;
  result.line = to_line(problem);
  const RunResult run = run_ring(problem, inputs, options);
  result.run_seconds = run.seconds;
  if (!run.ok()) {
    result.error = run.error();
    return result;
  }
  const auto start = std::chrono::steady_clock::now();
  const int workers = oracle_workers(problem);
  const OracleResult oracle = oracle_attention(problem, inputs.q, inputs.k, inputs.v, workers);
  const PlainResult plain = plain_attention(problem, inputs.q, inputs.k, inputs.v, workers);
  result.oracle_seconds = seconds_since(start);
  result.o = check_o(run.o, oracle, plain);
  result.lse = check_lse(run.lse, oracle, plain);
  if (!result.o.ok) result.error = result.o.worst;
  if (!result.lse.ok) result.error += (result.error.empty() ? "" : "; ") + result.lse.worst;
  result.ok = result.error.empty();
  return result;
}

VerifyResult verify(const ProblemLine& problem, std::uint64_t seed, const RunOptions& options) {
  return verify_inputs(problem, random_inputs(problem, seed), options);
}

std::string to_text(const VerifyResult& result) {
  if (!result.ok) return "FAIL " + result.line + ": " + result.error;
  return "ok   " + errors_text("o", result.o) + "  " + errors_text("lse", result.lse) + "  " + result.line;
}

}  // namespace ringattn::support
