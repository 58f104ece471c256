#include "answer_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <set>
#include <thread>

#include "reference_judge.h"
#include "tests/support/half.h"
#include "tests/support/host_tensor.h"
#include "tests/support/oracle.h"
#include "tests/support/plain.h"

namespace ringattn::tool {
namespace {

using support::HostTensor;
using support::ProblemLine;

// Element strides of a view, whether it carries them or is dense.
std::array<std::int64_t, 4> strides_of(const ringattn_tensor& tensor) {
  if ((tensor.flags & RINGATTN_TENSOR_STRIDES) != 0) {
    return {tensor.stride[0], tensor.stride[1], tensor.stride[2], tensor.stride[3]};
  }
  const std::int64_t* shape = tensor.shape;
  return {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1};
}

// Tokens [first, first + count) of one row of the batch, as a dense tensor of its own.
HostTensor slice(const ringattn_tensor& tensor, std::int64_t batch_row, std::int64_t first,
                 std::int64_t count) {
  const std::int64_t heads = tensor.shape[2], dim = tensor.shape[3];
  HostTensor out(tensor.dtype, {1, count, heads, dim});
  const auto [batch_stride, seq_stride, head_stride, dim_stride] = strides_of(tensor);
  const auto item = static_cast<std::size_t>(support::dtype_size(tensor.dtype));
  const std::size_t row_bytes = static_cast<std::size_t>(dim) * item;
  std::byte* to = out.data();
  for (std::int64_t token = first; token < first + count; ++token) {
    for (std::int64_t head = 0; head < heads; ++head, to += row_bytes) {
      const std::int64_t at = batch_row * batch_stride + token * seq_stride + head * head_stride;
      std::memcpy(to, static_cast<const std::byte*>(tensor.data) + static_cast<std::size_t>(at) * item,
                  row_bytes);
    }
  }
  return out;
}

template <typename T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// The block as a problem of its own: one sequence, with the offset spelled out.
ProblemLine problem_of(const ProblemLine& problem, const RowBlock& block) {
  ProblemLine part = problem;
  part.batch = 1;
  part.queries = block.count;
  part.keys = block.key_count;
  part.docs.reset();
  part.docs_k.reset();
  part.max_docs = 0;
  part.offset = block.position - block.key_position;
  return part;
}

class Checker {
 public:
  Checker(const ProblemLine& problem, const Answer& answer) : problem_(problem), answer_(answer) {
    oracle_.heads = problem.heads;
    oracle_.dim_v = problem.effective_dim_v();
  }

  void add(const RowBlock& block);
  Verdict finish();

 private:
  void take_references(const RowBlock& block);
  void take_result(const RowBlock& block);
  bool empty(std::int64_t row) const { return oracle_.lse[static_cast<std::size_t>(row)] == -INFINITY; }
  support::LimitResult judge_o(const HostTensor& o) const;
  support::LimitResult judge_lse(const HostTensor& lse) const;
  void name_place(support::LimitResult& limit, const char* format, bool head_first) const;

  const ProblemLine& problem_;
  const Answer& answer_;
  const int workers_ = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  support::OracleResult oracle_;
  support::PlainResult plain_;
  std::vector<std::byte> o_;  // [row, head, dim_v]
  std::vector<float> lse_;    // [row, head]
  std::vector<float> o_ref_, lse_ref_;
  std::vector<QueryPlace> places_;
};

void Checker::add(const RowBlock& block) {
  const ProblemLine part = problem_of(problem_, block);
  const HostTensor q = slice(answer_.q, block.batch_row, block.first, block.count);
  const HostTensor k = slice(answer_.k, block.batch_row, block.key_first, block.key_count);
  const HostTensor v = slice(answer_.v, block.batch_row, block.key_first, block.key_count);
  const support::OracleResult oracle = support::oracle_attention(part, q, k, v, workers_);
  append(oracle_.o, oracle.o);
  append(oracle_.lse, oracle.lse);
  append(oracle_.abs_pv, oracle.abs_pv);
  append(oracle_.abs_score, oracle.abs_score);
  append(oracle_.row_max, oracle.row_max);
  append(oracle_.log_sum, oracle.log_sum);
  const support::PlainResult plain = support::plain_attention(part, q, k, v, workers_);
  append(plain_.o, plain.o);
  append(plain_.lse, plain.lse);
  take_references(block);
  take_result(block);
}

void Checker::take_references(const RowBlock& block) {
  const std::int64_t heads = problem_.heads, dim = problem_.effective_dim_v();
  const std::int64_t first_row = block.batch_row * problem_.queries + block.first;
  for (std::int64_t row = 0; row < block.count; ++row) {
    for (std::int64_t head = 0; head < heads; ++head) {
      if (answer_.lse_ref) {
        const std::int64_t at = (block.batch_row * heads + head) * problem_.queries + block.first + row;
        lse_ref_.push_back(value_at(*answer_.lse_ref, at));
      }
      for (std::int64_t d = 0; answer_.o_ref && d < dim; ++d) {
        const std::int64_t at = ((first_row + row) * heads + head) * dim + d;
        o_ref_.push_back(value_at(*answer_.o_ref, at));
      }
    }
  }
}

void Checker::take_result(const RowBlock& block) {
  const HostTensor o = slice(answer_.o, block.batch_row, block.first, block.count);
  const auto bytes = static_cast<std::size_t>(o.size() * support::dtype_size(o.dtype()));
  o_.insert(o_.end(), o.data(), o.data() + bytes);
  const auto [batch_stride, head_stride, seq_stride, last_stride] = strides_of(answer_.lse);
  for (std::int64_t row = block.first; row < block.first + block.count; ++row) {
    for (std::int64_t head = 0; head < problem_.heads; ++head) {
      lse_.push_back(
          value_at(answer_.lse, block.batch_row * batch_stride + head * head_stride + row * seq_stride));
    }
    places_.push_back({block.batch_row, row});
  }
}

// The limits count rows as they were checked; people want the row of the problem.
void Checker::name_place(support::LimitResult& limit, const char* format, bool head_first) const {
  long long zero = 0, first = 0, second = 0;
  int used = 0;
  if (std::sscanf(limit.worst.c_str(), format, &zero, &first, &second, &used) != 3 || used == 0) return;
  const QueryPlace& place = places_.at(static_cast<std::size_t>(head_first ? second : first));
  const std::string rest = limit.worst.substr(static_cast<std::size_t>(used));
  limit.worst = head_first ? fmt::format("lse[{}, {}, {}{}", place.batch_row, first, place.query, rest)
                           : fmt::format("o[{}, {}, {}{}", place.batch_row, place.query, second, rest);
}

double relative_slack(double abs_score) { return 0x1p-23 * (1 + abs_score); }

support::LimitResult Checker::judge_o(const HostTensor& o) const {
  const std::int64_t heads = problem_.heads, dim = problem_.effective_dim_v();
  ReferenceJudge judge;
  for (std::size_t i = 0; i < o_ref_.size(); ++i) {
    const auto element = static_cast<std::int64_t>(i);
    const std::int64_t row = element / dim;
    const double result = o.get(0, row / heads, row % heads, element % dim);
    const double slack =
        relative_slack(oracle_.abs_score[static_cast<std::size_t>(row)]) * oracle_.abs_pv[i] +
        support::ulp(o.dtype(), oracle_.o[i]);
    judge.add(empty(row), result, o_ref_[i], oracle_.o[i], plain_.o[i], slack);
  }
  return judge.judge([&](std::int64_t element) {
    const std::int64_t row = element / dim;
    return fmt::format("o[0, {}, {}, {}]", row / heads, row % heads, element % dim);
  });
}

support::LimitResult Checker::judge_lse(const HostTensor& lse) const {
  const std::int64_t heads = problem_.heads;
  ReferenceJudge judge;
  for (std::size_t row = 0; row < lse_ref_.size(); ++row) {
    const auto at = static_cast<std::int64_t>(row);
    const double magnitude = 1 + std::fabs(oracle_.row_max[row]) + std::fabs(oracle_.log_sum[row]);
    const double slack = relative_slack(oracle_.abs_score[row]) * magnitude +
                         support::ulp(RINGATTN_DTYPE_F32, oracle_.lse[row]);
    judge.add(empty(at), lse.get(0, at % heads, at / heads, 0), lse_ref_[row], oracle_.lse[row],
              plain_.lse[row], slack);
  }
  return judge.judge(
      [&](std::int64_t row) { return fmt::format("lse[0, {}, {}]", row % heads, row / heads); });
}

Verdict Checker::finish() {
  Verdict verdict;
  verdict.rows = static_cast<std::int64_t>(places_.size());
  oracle_.queries = verdict.rows;
  HostTensor o(problem_.effective_dtype_out(), {1, verdict.rows, problem_.heads, problem_.effective_dim_v()});
  if (!o_.empty()) std::memcpy(o.data(), o_.data(), o_.size());
  HostTensor lse(RINGATTN_DTYPE_F32, {1, problem_.heads, verdict.rows, 1});
  for (std::int64_t row = 0; row < verdict.rows; ++row) {
    for (std::int64_t head = 0; head < problem_.heads; ++head) {
      const float value = lse_[static_cast<std::size_t>(row * problem_.heads + head)];
      std::memcpy(lse.data() + 4 * static_cast<std::size_t>(head * verdict.rows + row), &value, 4);
    }
  }
  verdict.o = answer_.o_ref ? judge_o(o) : support::check_o(o, oracle_, plain_);
  verdict.lse = answer_.lse_ref ? judge_lse(lse) : support::check_lse(lse, oracle_, plain_);
  name_place(verdict.o, "o[%lld, %lld, %lld%n", false);
  name_place(verdict.lse, "lse[%lld, %lld, %lld%n", true);
  return verdict;
}

// Keys that a query at positions [first, first + count) can see, as positions [begin, end).
std::pair<std::int64_t, std::int64_t> reach(const ProblemLine& problem, std::int64_t first,
                                            std::int64_t count, std::int64_t keys) {
  std::int64_t begin = 0, end = keys;
  if ((problem.mask & RINGATTN_MASK_WINDOW_LEFT) != 0 && problem.window_left < first) {
    begin = first - problem.window_left;
  }
  if ((problem.mask & RINGATTN_MASK_CAUSAL) != 0) end = std::min(end, first + count);
  if ((problem.mask & RINGATTN_MASK_WINDOW_RIGHT) != 0 && problem.window_right < keys) {
    end = std::min(end, first + count + problem.window_right);
  }
  begin = std::clamp<std::int64_t>(begin, 0, keys);
  return {begin, std::max(begin, end)};
}

struct RowSequences {
  std::vector<std::int64_t> q, k;
};

RowSequences sequences_of(const ProblemLine& problem, std::int64_t batch_row) {
  if (!problem.docs) return {{problem.queries}, {problem.keys}};
  const std::vector<std::int64_t>& q = *problem.docs;
  const std::vector<std::int64_t>& k = problem.docs_k ? *problem.docs_k : q;
  if (problem.batch <= 1) return {q, k};
  const auto row = static_cast<std::size_t>(batch_row);
  if (row >= q.size()) return {};
  return {{q[row]}, {k[row]}};
}

void add_row(const ProblemLine& problem, std::int64_t batch_row, std::int64_t rows,
             std::vector<RowBlock>& blocks) {
  const RowSequences sequences = sequences_of(problem, batch_row);
  std::int64_t q_start = 0, k_start = 0;
  for (std::size_t s = 0; s < sequences.q.size(); ++s) {
    const std::int64_t length = sequences.q[s], keys = sequences.k[s];
    const std::int64_t offset = problem.offset ? *problem.offset : keys - length;
    for (std::int64_t at = 0; at < length; at += rows) {
      const std::int64_t count = std::min(rows, length - at);
      const auto [begin, end] = reach(problem, offset + at, count, keys);
      blocks.push_back({batch_row, q_start + at, count, offset + at, k_start + begin, end - begin, begin});
    }
    q_start += length;
    k_start += keys;
  }
  for (std::int64_t at = q_start; at < problem.queries; at += rows) {  // padding sees no key
    blocks.push_back({batch_row, at, std::min(rows, problem.queries - at), 0, 0, 0, 0});
  }
}

}  // namespace

std::vector<RowBlock> row_blocks(const ProblemLine& problem, std::int64_t rows) {
  std::vector<RowBlock> blocks;
  for (std::int64_t b = 0; b < problem.batch; ++b) add_row(problem, b, rows, blocks);
  return blocks;
}

std::vector<RowBlock> spread(const std::vector<RowBlock>& blocks, std::size_t most,
                             const std::vector<QueryPlace>& required) {
  if (blocks.size() <= most) return blocks;
  std::set<std::size_t> chosen;
  for (std::size_t i = 0; i < most; ++i)
    chosen.insert(i * (blocks.size() - 1) / std::max<std::size_t>(1, most - 1));
  for (const QueryPlace& place : required) {
    const auto holds = [&](const RowBlock& block) {
      return block.batch_row == place.batch_row && block.first <= place.query &&
             place.query < block.first + block.count;
    };
    const auto found = std::find_if(blocks.begin(), blocks.end(), holds);
    if (found != blocks.end()) chosen.insert(static_cast<std::size_t>(found - blocks.begin()));
  }
  std::vector<RowBlock> result;
  result.reserve(chosen.size());
  for (const std::size_t i : chosen) result.push_back(blocks[i]);
  return result;
}

QueryPlace furthest_query(const ringattn_tensor& result, const ringattn_tensor& reference, bool head_first) {
  const std::int64_t* shape = reference.shape;
  const std::int64_t count = shape[0] * shape[1] * shape[2] * shape[3];
  double most = -1;
  std::int64_t where = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double a = value_at(result, i), b = value_at(reference, i);
    double distance = a == b || (std::isnan(a) && std::isnan(b)) ? 0 : std::fabs(a - b);
    if (std::isnan(distance)) distance = INFINITY;
    if (distance <= most) continue;
    most = distance;
    where = i;
  }
  const std::int64_t row = where / shape[3];
  const std::int64_t batch_row = row / (shape[1] * shape[2]);
  return {batch_row, head_first ? row % shape[2] : row / shape[2] % shape[1]};
}

Verdict check_answer(const ProblemLine& problem, const Answer& answer, const std::vector<RowBlock>& blocks,
                     const std::function<void(double)>& progress) {
  // A block costs about what it has of (query, key) pairs.
  double total = 1, done = 0;
  for (const RowBlock& block : blocks)
    total += static_cast<double>(block.count) * static_cast<double>(block.key_count);
  Checker checker(problem, answer);
  for (const RowBlock& block : blocks) {
    checker.add(block);
    done += static_cast<double>(block.count) * static_cast<double>(block.key_count);
    if (progress) progress(done / total);
  }
  return checker.finish();
}

std::string to_text(const Verdict& verdict) {
  return limit_text("o", verdict.o) + "\n" + limit_text("lse", verdict.lse);
}

}  // namespace ringattn::tool
