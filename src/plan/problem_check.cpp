#include "plan/problem_check.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace ringattn::plan {
namespace {

constexpr std::int64_t kMaxLength = std::int64_t{1}
                                    << 48;  // of any axis; leaves room for products of positions

std::string shown(std::int64_t value) { return std::to_string(value); }

Status in_range(const char* field, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return {};
  return invalid(std::string(field) + ": " + shown(value) + ", expected " + shown(least) + ".." +
                 shown(most));
}

Status check_dtype(const char* field, std::int32_t value, DType& out) {
  if (value < RINGATTN_DTYPE_F32 || value > RINGATTN_DTYPE_BF16) {
    return invalid(std::string(field) + ": " + shown(value) + ", expected F32 (1), F16 (2) or BF16 (3)");
  }
  out = static_cast<DType>(value);
  return {};
}

Status check_sizes(const ringattn_plan_desc& d, Problem& p) {
  RINGATTN_TRY(in_range("batch", d.batch, 0, kMaxLength));
  RINGATTN_TRY(in_range("seq_q", d.seq_q, 0, kMaxLength));
  RINGATTN_TRY(in_range("seq_k", d.seq_k, 0, kMaxLength));
  RINGATTN_TRY(in_range("heads", d.heads, 1, kMaxLength));
  RINGATTN_TRY(in_range("kv_heads", d.kv_heads, 0, kMaxLength));
  RINGATTN_TRY(in_range("head_dim_qk", d.head_dim_qk, 1, kMaxHeadDim));
  RINGATTN_TRY(in_range("head_dim_v", d.head_dim_v, 0, kMaxHeadDim));
  RINGATTN_TRY(in_range("max_sequences", d.max_sequences, 0, kMaxLength));
  p.batch = d.batch;
  p.seq_q = d.seq_q;
  p.seq_k = d.seq_k;
  p.heads = d.heads;
  p.kv_heads = d.kv_heads == 0 ? d.heads : d.kv_heads;
  p.head_dim_qk = d.head_dim_qk;
  p.head_dim_v = d.head_dim_v == 0 ? d.head_dim_qk : d.head_dim_v;
  p.max_sequences = d.max_sequences == 0 ? std::max<std::int64_t>(1, d.batch) : d.max_sequences;
  if (p.heads % p.kv_heads != 0) {
    return invalid("kv_heads: " + shown(p.kv_heads) + ", expected a divisor of heads (" + shown(p.heads) +
                   ")");
  }
  if (d.batch > 1 && p.max_sequences < d.batch) {
    return invalid("max_sequences: " + shown(p.max_sequences) + ", expected 0 or at least batch (" +
                   shown(d.batch) + ")");
  }
  // Elements of the largest global tensor must stay countable in bytes. Also where there is no row or no
  // token: products of the other sizes are taken alone.
  const std::int64_t seq = std::max(p.seq_q, p.seq_k), widest = std::max(p.head_dim_qk, p.head_dim_v);
  const auto at_least_1 = [](std::int64_t value) { return std::max<std::int64_t>(1, value); };
  const __int128 most = (static_cast<__int128>(1) << 62) / (static_cast<__int128>(8) * widest);
  const __int128 rows = static_cast<__int128>(at_least_1(p.batch)) * at_least_1(seq);
  if (rows > most || rows * p.heads > most) {
    return invalid("batch x seq x heads x head_dim: " + shown(p.batch) + " x " + shown(seq) + " x " +
                   shown(p.heads) + " x " + shown(widest) +
                   " overflow 64 bits, expected a product of at most 2^59 elements");
  }
  return {};
}

Status check_mask(const ringattn_plan_desc& d, Problem& p) {
  constexpr std::uint32_t known =
      RINGATTN_MASK_CAUSAL | RINGATTN_MASK_WINDOW_LEFT | RINGATTN_MASK_WINDOW_RIGHT;
  if ((d.mask & ~known) != 0) {
    return invalid("mask: " + shown(d.mask) +
                   ", expected bits of CAUSAL (1), WINDOW_LEFT (2), WINDOW_RIGHT (4)");
  }
  p.mask = Mask();
  if ((d.mask & RINGATTN_MASK_WINDOW_LEFT) != 0) {
    RINGATTN_TRY(in_range("window_left", d.window_left, 0, kMaxLength));
    p.mask.left = d.window_left;
  }
  if ((d.mask & RINGATTN_MASK_WINDOW_RIGHT) != 0) {
    RINGATTN_TRY(in_range("window_right", d.window_right, 0, kMaxLength));
    p.mask.right = d.window_right;
  }
  if ((d.mask & RINGATTN_MASK_CAUSAL) != 0) {
    if ((d.mask & RINGATTN_MASK_WINDOW_RIGHT) != 0 && d.window_right != 0) {
      return invalid("window_right: " + shown(d.window_right) +
                     ", expected 0 (or no WINDOW_RIGHT) with CAUSAL");
    }
    p.mask.right = 0;
  }
  return {};
}

Status check_run(const char* field, std::int64_t index, const ringattn_run& run, std::int64_t length,
                 PositionRun& out) {
  const std::int64_t stride = run.stride == 0 ? 1 : run.stride;
  const bool sane =
      run.first >= 0 && run.length >= 0 && stride >= 1 && run.first <= length && run.length <= length;
  const bool fits =
      sane && (run.length == 0 ||
               static_cast<__int128>(run.first) + static_cast<__int128>(run.length - 1) * stride < length);
  if (!fits) {
    return invalid(std::string(field) + "[" + shown(index) + "]: first " + shown(run.first) + ", length " +
                   shown(run.length) + ", stride " + shown(run.stride) + ", expected positions within 0.." +
                   shown(length - 1));
  }
  out = {run.first, run.length, stride};
  return {};
}

Status check_runs(const char* field, const ringattn_run* runs, std::int64_t count, std::int64_t length,
                  std::vector<PositionRun>& out) {
  if (count < 0 || count > (std::int64_t{1} << 24)) {
    return invalid(std::string(field) + "_count: " + shown(count) + ", expected 0..16777216");
  }
  if (count > 0 && runs == nullptr)
    return invalid(std::string(field) + ": NULL, expected " + shown(count) + " runs");
  for (std::int64_t i = 0; i < count; ++i) {
    PositionRun run{};
    RINGATTN_TRY(check_run(field, i, runs[i], length, run));
    if (run.length > 0) out.push_back(run);
  }
  return {};
}

Status check_partition(const ringattn_plan_desc& d, std::int32_t rank, std::int32_t world, Problem& p) {
  RINGATTN_TRY(
      in_range("partition", d.partition, RINGATTN_PARTITION_CONTIGUOUS, RINGATTN_PARTITION_EXPLICIT));
  RINGATTN_TRY(in_range("query_cut", d.query_cut, RINGATTN_QUERY_CUT_AUTO, RINGATTN_QUERY_CUT_BY_INDEX));
  RINGATTN_TRY(in_range("scope", d.scope, RINGATTN_SCOPE_CAPACITY, RINGATTN_SCOPE_DOCUMENT));
  p.partition = static_cast<PartitionKind>(d.partition);
  p.scope = static_cast<Scope>(d.scope);
  p.stripe = 1;
  if (p.partition == PartitionKind::striped) {
    RINGATTN_TRY(in_range("stripe", d.stripe, 0, kMaxLength));
    p.stripe = d.stripe == 0 ? 1 : d.stripe;
  } else if (d.stripe != 0) {
    return invalid("stripe: " + shown(d.stripe) + ", expected 0 where partition is not STRIPED");
  }
  if (d.query_cut == RINGATTN_QUERY_CUT_LIKE_KEYS && p.scope != Scope::capacity) {
    return invalid("query_cut: LIKE_KEYS, expected AUTO or BY_INDEX where scope is not CAPACITY");
  }
  p.query_like_keys =
      d.query_cut == RINGATTN_QUERY_CUT_LIKE_KEYS ||
      (d.query_cut == RINGATTN_QUERY_CUT_AUTO && p.scope == Scope::capacity && d.seq_q == d.seq_k);
  if (p.partition != PartitionKind::explicit_runs) {
    if (d.runs_k_count != 0 || d.runs_q_count != 0) {
      return invalid("runs_k_count, runs_q_count: " + shown(d.runs_k_count) + ", " + shown(d.runs_q_count) +
                     ", expected 0 where partition is not EXPLICIT");
    }
    return {};
  }
  if (p.scope != Scope::capacity)
    return invalid("scope: " + shown(d.scope) + ", expected CAPACITY (0) with EXPLICIT");
  if (p.query_like_keys && d.runs_q_count != 0) {
    return invalid("runs_q_count: " + shown(d.runs_q_count) +
                   ", expected 0 where queries are cut like the keys");
  }
  p.runs_k.assign(static_cast<std::size_t>(world), {});
  p.runs_q.assign(static_cast<std::size_t>(world), {});
  RINGATTN_TRY(
      check_runs("runs_k", d.runs_k, d.runs_k_count, d.seq_k, p.runs_k[static_cast<std::size_t>(rank)]));
  return check_runs("runs_q", d.runs_q, d.runs_q_count, d.seq_q, p.runs_q[static_cast<std::size_t>(rank)]);
}

Status check_dtype_grad(const ringattn_plan_desc& d, Problem& p) {
  if (d.reserved != 0) return invalid("reserved: " + shown(d.reserved) + ", expected 0");
  p.dtype_grad = p.dtype;
  if (d.dtype_grad == 0) return {};
  if ((d.flags & RINGATTN_PLAN_BACKWARD) == 0) {
    return invalid("dtype_grad: " + shown(d.dtype_grad) + ", expected 0 without PLAN_BACKWARD");
  }
  RINGATTN_TRY(check_dtype("dtype_grad", d.dtype_grad, p.dtype_grad));
  if (p.dtype_grad == p.dtype || p.dtype_grad == DType::f32) return {};
  return invalid("dtype_grad: " + shown(d.dtype_grad) + ", expected 0, dtype (" + shown(d.dtype) +
                 ") or F32 (1)");
}

Status check_numbers(const ringattn_plan_desc& d, Problem& p) {
  RINGATTN_TRY(check_dtype("dtype", d.dtype, p.dtype));
  p.dtype_out = p.dtype;
  if (d.dtype_out != 0) {
    RINGATTN_TRY(check_dtype("dtype_out", d.dtype_out, p.dtype_out));
    if (p.dtype_out != p.dtype && p.dtype_out != DType::f32) {
      return invalid("dtype_out: " + shown(d.dtype_out) + ", expected 0, dtype (" + shown(d.dtype) +
                     ") or F32 (1)");
    }
  }
  RINGATTN_TRY(check_dtype_grad(d, p));
  RINGATTN_TRY(in_range("accuracy", d.accuracy, RINGATTN_ACCURACY_DEFAULT, RINGATTN_ACCURACY_EXACT));
  p.accuracy = d.accuracy;
  constexpr double kMaxScale = 0x1p127;  // with log2(e) still an fp32 number: scores are fp32
  if (!(d.scale >= 0 && d.scale <= kMaxScale)) {
    return invalid("scale: " + std::to_string(d.scale) +
                   ", expected 0 (= 1/sqrt(head_dim_qk)) or a positive finite number up to 2^127");
  }
  p.scale = d.scale == 0 ? 1.0 / std::sqrt(static_cast<double>(d.head_dim_qk)) : d.scale;
  RINGATTN_TRY(in_range("schedule", d.schedule, RINGATTN_SCHEDULE_AUTO, RINGATTN_SCHEDULE_RING));
  p.schedule = RINGATTN_SCHEDULE_RING;
  constexpr std::uint32_t known =
      RINGATTN_PLAN_TRACE | RINGATTN_PLAN_CALLER_WORKSPACE | RINGATTN_PLAN_BACKWARD;
  if ((d.flags & ~known) != 0) {
    return invalid("flags: " + shown(d.flags) +
                   ", expected bits of PLAN_TRACE (1), PLAN_CALLER_WORKSPACE (2), PLAN_BACKWARD (4)");
  }
  p.flags = d.flags;
  return {};
}

}  // namespace

Status check_problem(const ringattn_plan_desc& desc, std::int32_t rank, std::int32_t world, Problem& out) {
  Problem p;
  RINGATTN_TRY(check_sizes(desc, p));
  RINGATTN_TRY(check_numbers(desc, p));
  RINGATTN_TRY(check_mask(desc, p));
  RINGATTN_TRY(check_partition(desc, rank, world, p));
  out = std::move(p);
  return {};
}

const char* dtype_name(DType dtype) {
  return dtype == DType::f32 ? "f32" : dtype == DType::f16 ? "f16" : "bf16";
}

std::string mask_words(const Problem& problem) {
  const auto side = [](std::int64_t bound) { return bound == kUnbounded ? std::string("*") : shown(bound); };
  const Mask& mask = problem.mask;
  if (mask.left == kUnbounded && mask.right == kUnbounded) return "full";
  if (mask.right == 0) return mask.left == kUnbounded ? "causal" : "causal,window:" + side(mask.left);
  return "window:" + side(mask.left) + ":" + side(mask.right);
}

std::string partition_words(const Problem& problem) {
  switch (problem.partition) {
    case PartitionKind::contiguous:
      return "contiguous";
    case PartitionKind::zigzag:
      return "zigzag";
    case PartitionKind::striped:
      return problem.stripe == 1 ? std::string("striped") : "striped:" + shown(problem.stripe);
    case PartitionKind::explicit_runs:
      return "explicit";
  }
  return "";
}

const char* scope_name(Scope scope) {
  return scope == Scope::capacity ? "capacity" : scope == Scope::call ? "call" : "document";
}

}  // namespace ringattn::plan
