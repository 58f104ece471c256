// One attention problem as one line of text: the grammar shared by the tool, tests/problems and the bench.
//
//   n=300 batch=1 heads=4 kv_heads=2 dim=64 dtype=bf16 mask=causal,window:32 docs=100,150 partition=zigzag ranks=4
//
//   n | q and k     length of both axes, or of each (capacity)        batch heads kv_heads dim dim_v    sizes
//   dtype           f32 f16 bf16              dtype_out  f32 same      accuracy   default exact
//   mask            full, causal, window:LEFT, window:LEFT:RIGHT joined by commas; * = unbounded side
//   docs docs_k     lengths of the call's sequences (batch > 1: of the rows); "none" = no sequence at all
//   max_docs offset scale seed ranks threads  numbers
//   partition       contiguous striped striped:STRIPE zigzag explicit:LEN/LEN/... explicit:random
//   query_cut       auto like_keys by_index   scope      capacity call document
//   layout          bshd bhsd sbhd sliced     transport a name
//   pass            forward backward (forward, then the gradients)     dtype_grad  f32 same, with pass=backward
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ringattn.h"

namespace ringattn::support {

// How a test tensor [batch, seq, head, dim] lies in memory. kSliced: a window inside a larger BSHD array.
enum class Layout { kBshd, kBhsd, kSbhd, kSliced };

struct ProblemLine {
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 0;  // 0 = heads
  std::int64_t dim = 64;
  std::int64_t dim_v = 0;  // 0 = dim
  ringattn_dtype dtype = RINGATTN_DTYPE_F32;
  ringattn_dtype dtype_out = 0;  // 0 = dtype
  std::uint32_t mask = RINGATTN_MASK_FULL;
  std::int64_t window_left = 0;   // counts with RINGATTN_MASK_WINDOW_LEFT
  std::int64_t window_right = 0;  // counts with RINGATTN_MASK_WINDOW_RIGHT
  std::optional<std::vector<std::int64_t>> docs;
  std::optional<std::vector<std::int64_t>> docs_k;  // absent = as docs
  std::int64_t max_docs = 0;                        // 0 = as many as docs has, at least the header's default
  std::optional<std::int64_t> offset;
  std::int32_t partition = RINGATTN_PARTITION_CONTIGUOUS;
  std::int64_t stripe = 0;           // 0 = 1
  std::vector<std::int64_t> pieces;  // explicit:LEN/LEN/...; empty with EXPLICIT = explicit:random
  std::int32_t query_cut = RINGATTN_QUERY_CUT_AUTO;
  std::int32_t scope = RINGATTN_SCOPE_CAPACITY;
  double scale = 0;
  std::int32_t accuracy = RINGATTN_ACCURACY_DEFAULT;
  bool backward = false;          // forward, then the gradients
  ringattn_dtype dtype_grad = 0;  // 0 = dtype; else with backward only
  std::int32_t ranks = 1;
  std::int32_t threads = 1;
  Layout layout = Layout::kBshd;
  std::string transport;  // "" = the library's choice
  std::uint64_t seed = 0;

  std::int64_t effective_kv_heads() const { return kv_heads == 0 ? heads : kv_heads; }
  std::int64_t effective_dim_v() const { return dim_v == 0 ? dim : dim_v; }
  ringattn_dtype effective_dtype_out() const { return dtype_out == 0 ? dtype : dtype_out; }
  ringattn_dtype effective_dtype_grad() const { return dtype_grad == 0 ? dtype : dtype_grad; }
  double effective_scale() const;

  bool operator==(const ProblemLine&) const = default;
};

// Reads a line into `problem`. Returns nothing on success, otherwise one line that names key, value and what was
// expected; `problem` is then unchanged. Only the grammar is judged: whether the library takes the problem is its own word.
std::optional<std::string> parse_problem(std::string_view line, ProblemLine& problem);

// The shortest line that parses to the same problem (defaults are left out, except n / q and k, and ranks).
std::string to_line(const ProblemLine& problem);

// One line of a file of problems, with its number for messages.
struct NumberedLine {
  int number;
  std::string text;
};

// The lines of a file's text without comments (# to the end of the line) and blank lines.
std::vector<NumberedLine> problem_lines(std::string_view file_text);

}  // namespace ringattn::support
