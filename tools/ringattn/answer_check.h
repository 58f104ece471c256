// An answer against fp64, row block by row block so that progress can be shown, within the limits of D21: twice the
// error of a plain implementation in the input's dtype (tests/support/limits.h).
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ringattn.h"
#include "tests/support/limits.h"
#include "tests/support/problem_line.h"

namespace ringattn::tool {

// Consecutive queries of one row of the batch that belong to one sequence, or to the padding behind the last one.
struct RowBlock {
  std::int64_t batch_row = 0;
  std::int64_t first = 0, count = 0;          // queries, by index in the row
  std::int64_t position = 0;                  // of the first query in its sequence
  std::int64_t key_first = 0, key_count = 0;  // keys that its mask can reach, by index in the row
  std::int64_t key_position = 0;              // of the first of these keys
};

// Covers every query of the problem once.
std::vector<RowBlock> row_blocks(const support::ProblemLine& problem, std::int64_t rows);

// `most` of the blocks, evenly spread; those that hold a query of `required` (batch row, query) are always among them.
struct QueryPlace {
  std::int64_t batch_row, query;
};
std::vector<RowBlock> spread(const std::vector<RowBlock>& blocks, std::size_t most,
                             const std::vector<QueryPlace>& required);

// The query whose result is furthest from a reference of the same shape, dense; a value that is finite on one side only
// is furthest. `head_first`: the axes are those of lse, [batch, head, seq, 1].
QueryPlace furthest_query(const ringattn_tensor& result, const ringattn_tensor& reference, bool head_first);

// Views of global tensors; all are borrowed. Where there is a reference, the result is compared with it; the limits
// always come from the fp64 answer computed here, so that a wrong reference cannot widen them.
struct Answer {
  ringattn_tensor q, k, v;
  ringattn_tensor o, lse;                         // lse [batch, head, seq, 1]
  std::optional<ringattn_tensor> o_ref, lse_ref;  // F32, dense
};

struct Verdict {
  support::LimitResult o, lse;
  std::int64_t rows = 0;  // queries that were checked
  bool ok() const { return o.ok && lse.ok; }
};

// `progress` (may be empty) is told the part that is done.
Verdict check_answer(const support::ProblemLine& problem, const Answer& answer,
                     const std::vector<RowBlock>& blocks, const std::function<void(double)>& progress);

// The most that a full check in fp64 takes on in reasonable time: queries of one row of the batch.
inline constexpr std::int64_t kMostCheckedQueries = 8192;
inline constexpr std::int64_t kRowsOfBlock = 128;

// Two lines for people: error beside limit, of o and of lse.
std::string to_text(const Verdict& verdict);

}  // namespace ringattn::tool
