#include "plan/call_check.h"

#include <string>

namespace ringattn::plan {
namespace {

std::string shown(std::int64_t value) { return std::to_string(value); }

Status check_cumulative(const char* field, const std::int64_t* cu, std::int64_t n, std::int64_t capacity,
                        const char* capacity_name, bool one_row) {
  if (cu[0] != 0) return invalid(std::string("call.") + field + "[0]: " + shown(cu[0]) + ", expected 0");
  const auto where = [&](std::int64_t s) {
    return std::string("call.") + field + "[" + shown(s + 1) + "]: " + shown(cu[s + 1]);
  };
  for (std::int64_t s = 0; s < n; ++s) {
    if (cu[s + 1] < cu[s]) {
      return invalid(where(s) + ", expected at least the entry before it (" + shown(cu[s]) + ")");
    }
    // One row holds all sequences together; in a batch each row holds one.
    const std::int64_t used = one_row ? cu[s + 1] : cu[s + 1] - cu[s];
    if (used > capacity) {
      return invalid(where(s) + ", " + shown(used) + " tokens in a row, expected at most " + capacity_name +
                     " (" + shown(capacity) + ")");
    }
  }
  return {};
}

Status check_sequences(const Problem& problem, const ringattn_call& call) {
  const std::int64_t n = call.sequences;
  if (n < 0 || n > problem.max_sequences) {
    return invalid("call.sequences: " + shown(n) + ", expected 0..max_sequences (" +
                   shown(problem.max_sequences) + ")");
  }
  if (problem.batch > 1 && n != problem.batch) {
    return invalid("call.sequences: " + shown(n) + ", expected batch (" + shown(problem.batch) +
                   "): several documents in a row need batch = 1");
  }
  if (n == 0) return {};
  if (call.cu_q == nullptr) return invalid("call.cu_q: NULL, expected " + shown(n + 1) + " entries");
  const bool one_row = problem.batch <= 1;
  RINGATTN_TRY(check_cumulative("cu_q", call.cu_q, n, problem.seq_q, "seq_q", one_row));
  const std::int64_t* cu_k = call.cu_k == nullptr ? call.cu_q : call.cu_k;
  return check_cumulative(call.cu_k == nullptr ? "cu_q (for keys)" : "cu_k", cu_k, n, problem.seq_k, "seq_k",
                          one_row);
}

}  // namespace

Status check_call(const Problem& problem, const ringattn_call* call, Call& out) {
  const std::uint32_t flags = call == nullptr ? 0 : call->flags;
  if ((flags & ~std::uint32_t{RINGATTN_CALL_SEQUENCES | RINGATTN_CALL_QUERY_OFFSET}) != 0) {
    return invalid("call.flags: " + shown(flags) +
                   ", expected bits of CALL_SEQUENCES (1), CALL_QUERY_OFFSET (2)");
  }
  const bool has_offset = (flags & RINGATTN_CALL_QUERY_OFFSET) != 0;
  constexpr std::int64_t kMaxOffset = std::int64_t{1} << 48;
  if (has_offset && (call->query_offset < -kMaxOffset || call->query_offset > kMaxOffset)) {
    return invalid("call.query_offset: " + shown(call->query_offset) + ", expected -2^48..2^48");
  }
  out.sequences.clear();
  out.rows = 1;
  if ((flags & RINGATTN_CALL_SEQUENCES) == 0) {
    out.sequences.push_back({0, problem.seq_q, 0, problem.seq_k,
                             has_offset ? call->query_offset : problem.seq_k - problem.seq_q});
    return {};
  }
  RINGATTN_TRY(check_sequences(problem, *call));
  const bool in_rows = problem.batch > 1;
  out.rows = in_rows ? problem.batch : 1;
  const std::int64_t* cu_k = call->cu_k == nullptr ? call->cu_q : call->cu_k;
  for (std::int64_t s = 0; s < call->sequences; ++s) {
    Sequence sequence{};
    sequence.q_length = call->cu_q[s + 1] - call->cu_q[s];
    sequence.k_length = cu_k[s + 1] - cu_k[s];
    sequence.q_start = in_rows ? 0 : call->cu_q[s];
    sequence.k_start = in_rows ? 0 : cu_k[s];
    sequence.offset = has_offset ? call->query_offset : sequence.k_length - sequence.q_length;
    out.sequences.push_back(sequence);
  }
  return {};
}

}  // namespace ringattn::plan
