#include "tests/support/problem_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

namespace ringattn::support {
namespace {

constexpr std::int64_t kAnyMost = std::numeric_limits<std::int64_t>::max();

struct Word {
  std::string_view name;
  std::int64_t value;
};

constexpr Word kDtypes[] = {
    {"f32", RINGATTN_DTYPE_F32}, {"f16", RINGATTN_DTYPE_F16}, {"bf16", RINGATTN_DTYPE_BF16}};
constexpr Word kOutDtypes[] = {{"same", 0}, {"f32", RINGATTN_DTYPE_F32}};
constexpr Word kQueryCuts[] = {{"auto", RINGATTN_QUERY_CUT_AUTO},
                               {"like_keys", RINGATTN_QUERY_CUT_LIKE_KEYS},
                               {"by_index", RINGATTN_QUERY_CUT_BY_INDEX}};
constexpr Word kScopes[] = {{"capacity", RINGATTN_SCOPE_CAPACITY},
                            {"call", RINGATTN_SCOPE_CALL},
                            {"document", RINGATTN_SCOPE_DOCUMENT}};
constexpr Word kAccuracies[] = {{"default", RINGATTN_ACCURACY_DEFAULT}, {"exact", RINGATTN_ACCURACY_EXACT}};
constexpr Word kLayouts[] = {{"bshd", static_cast<std::int64_t>(Layout::kBshd)},
                             {"bhsd", static_cast<std::int64_t>(Layout::kBhsd)},
                             {"sbhd", static_cast<std::int64_t>(Layout::kSbhd)},
                             {"sliced", static_cast<std::int64_t>(Layout::kSliced)}};
constexpr Word kPasses[] = {{"forward", 0}, {"backward", 1}};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

template <typename Number>
bool read_number(std::string_view text, Number& number) {
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  return error == std::errc() && end == last && !text.empty();
}

// A reader of one value. It returns "" or what it expected.
using Reader = std::function<std::string(std::string_view, ProblemLine&)>;

template <typename Field>
Reader integer(Field ProblemLine::*field, std::int64_t least, std::int64_t most) {
  return [=](std::string_view text, ProblemLine& problem) -> std::string {
    std::int64_t number = 0;
    if (!read_number(text, number) || number < least || number > most) {
      if (most == kAnyMost) return "an integer of at least " + std::to_string(least);
      return "an integer from " + std::to_string(least) + " to " + std::to_string(most);
    }
    problem.*field = static_cast<Field>(number);
    return "";
  };
}

template <typename Field, std::size_t kCount>
Reader word(Field ProblemLine::*field, const Word (&words)[kCount]) {
  return [field, &words](std::string_view text, ProblemLine& problem) -> std::string {
    std::string expected;
    for (const Word& candidate : words) {
      if (candidate.name == text) {
        problem.*field = static_cast<Field>(candidate.value);
        return "";
      }
      expected += (expected.empty() ? "" : ", ") + std::string(candidate.name);
    }
    return expected;
  };
}

std::string read_lengths(std::string_view text, char separator, std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> read;
  for (const std::string_view part : split(text, separator)) {
    std::int64_t length = 0;
    if (!read_number(part, length) || length < 0) {
      return std::string("lengths of at least 0 joined by '") + separator + "'";
    }
    read.push_back(length);
  }
  lengths = std::move(read);
  return "";
}

Reader documents(std::optional<std::vector<std::int64_t>> ProblemLine::*field) {
  return [field](std::string_view text, ProblemLine& problem) -> std::string {
    std::vector<std::int64_t> lengths;
    if (text != "none") {
      const std::string expected = read_lengths(text, ',', lengths);
      if (!expected.empty()) return expected + ", or none";
    }
    problem.*field = std::move(lengths);
    return "";
  };
}

std::string read_window(std::string_view text, ProblemLine& problem) {
  const std::vector<std::string_view> parts = split(text, ':');
  const std::string expected = "window:LEFT or window:LEFT:RIGHT with sides of at least 0 or *";
  if (parts.size() < 2 || parts.size() > 3) return expected;
  for (std::size_t side = 1; side < parts.size(); ++side) {
    if (parts[side] == "*") continue;
    std::int64_t bound = 0;
    if (!read_number(parts[side], bound) || bound < 0) return expected;
    (side == 1 ? problem.window_left : problem.window_right) = bound;
    problem.mask |= side == 1 ? RINGATTN_MASK_WINDOW_LEFT : RINGATTN_MASK_WINDOW_RIGHT;
  }
  return "";
}

std::string read_mask(std::string_view text, ProblemLine& problem) {
  const std::string expected = "full, or causal and window:LEFT[:RIGHT], each once, joined by a comma";
  std::set<std::string_view> seen;
  for (const std::string_view part : split(text, ',')) {
    const std::string_view kind = part.substr(0, part.find(':'));
    if (!seen.insert(kind).second) return expected;
    if (kind == "window") {
      const std::string window_expected = read_window(part, problem);
      if (!window_expected.empty()) return window_expected;
    } else if (part == "causal") {
      problem.mask |= RINGATTN_MASK_CAUSAL;
    } else if (part != "full") {
      return expected;
    }
  }
  return seen.count("full") != 0 && seen.size() > 1 ? expected : "";
}

std::string read_partition(std::string_view text, ProblemLine& problem) {
  const std::string expected =
      "contiguous, striped, striped:STRIPE, zigzag, explicit:LEN/LEN/... or explicit:random";
  const std::string_view kind = text.substr(0, text.find(':'));
  const bool has_rest = kind.size() < text.size();
  const std::string_view rest = has_rest ? text.substr(kind.size() + 1) : std::string_view();
  if (kind == "contiguous" && !has_rest) {
    problem.partition = RINGATTN_PARTITION_CONTIGUOUS;
  } else if (kind == "zigzag" && !has_rest) {
    problem.partition = RINGATTN_PARTITION_ZIGZAG;
  } else if (kind == "striped") {
    if (has_rest && (!read_number(rest, problem.stripe) || problem.stripe < 1)) return expected;
    problem.partition = RINGATTN_PARTITION_STRIPED;
  } else if (kind == "explicit" && has_rest) {
    if (rest != "random" && !read_lengths(rest, '/', problem.pieces).empty()) return expected;
    problem.partition = RINGATTN_PARTITION_EXPLICIT;
  } else {
    return expected;
  }
  return "";
}

std::string read_scale(std::string_view text, ProblemLine& problem) {
  return read_number(text, problem.scale) ? "" : "a number, 0 = 1/sqrt(dim)";
}

std::string read_seed(std::string_view text, ProblemLine& problem) {
  return read_number(text, problem.seed) ? "" : "an integer from 0 to 18446744073709551615";
}

std::string read_offset(std::string_view text, ProblemLine& problem) {
  std::int64_t offset = 0;
  if (!read_number(text, offset)) return "an integer, which may be negative";
  problem.offset = offset;
  return "";
}

std::string read_both_lengths(std::string_view text, ProblemLine& problem) {
  const std::string expected = integer(&ProblemLine::queries, 0, kAnyMost)(text, problem);
  problem.keys = problem.queries;
  return expected;
}

std::string read_transport(std::string_view text, ProblemLine& problem) {
  problem.transport = std::string(text);
  return text.empty() ? "the name of a transport" : "";
}

const std::vector<std::pair<std::string_view, Reader>>& readers() {
  static const std::vector<std::pair<std::string_view, Reader>> table = {
      {"n", read_both_lengths},
      {"q", integer(&ProblemLine::queries, 0, kAnyMost)},
      {"k", integer(&ProblemLine::keys, 0, kAnyMost)},
      {"batch", integer(&ProblemLine::batch, 0, kAnyMost)},
      {"heads", integer(&ProblemLine::heads, 1, kAnyMost)},
      {"kv_heads", integer(&ProblemLine::kv_heads, 1, kAnyMost)},
      {"dim", integer(&ProblemLine::dim, 1, kAnyMost)},
      {"dim_v", integer(&ProblemLine::dim_v, 1, kAnyMost)},
      {"dtype", word(&ProblemLine::dtype, kDtypes)},
      {"dtype_out", word(&ProblemLine::dtype_out, kOutDtypes)},
      {"mask", read_mask},
      {"docs", documents(&ProblemLine::docs)},
      {"docs_k", documents(&ProblemLine::docs_k)},
      {"max_docs", integer(&ProblemLine::max_docs, 1, kAnyMost)},
      {"offset", read_offset},
      {"partition", read_partition},
      {"query_cut", word(&ProblemLine::query_cut, kQueryCuts)},
      {"scope", word(&ProblemLine::scope, kScopes)},
      {"scale", read_scale},
      {"accuracy", word(&ProblemLine::accuracy, kAccuracies)},
      {"ranks", integer(&ProblemLine::ranks, 1, 4096)},
      {"threads", integer(&ProblemLine::threads, 0, 1024)},
      {"layout", word(&ProblemLine::layout, kLayouts)},
      {"pass", word(&ProblemLine::backward, kPasses)},
      {"dtype_grad", word(&ProblemLine::dtype_grad, kOutDtypes)},
      {"transport", read_transport},
      {"seed", read_seed},
  };
  return table;
}

std::string all_keys() {
  std::string keys;
  for (const auto& [key, reader] : readers()) keys += (keys.empty() ? "" : " ") + std::string(key);
  return keys;
}

template <std::size_t kCount>
std::string name_of(const Word (&words)[kCount], std::int64_t value) {
  for (const Word& word : words) {
    if (word.value == value) return std::string(word.name);
  }
  return std::to_string(value);
}

// What no single value can tell.
std::optional<std::string> check_together(const std::set<std::string_view>& seen,
                                          const ProblemLine& problem) {
  const auto given = [&](std::string_view key) { return seen.count(key) != 0; };
  if (given("n") && (given("q") || given("k"))) return "n together with q or k: expected n alone, or q and k";
  if (!given("n") && !(given("q") && given("k"))) return "the length is missing: expected n, or q and k";
  if (problem.docs_k && !problem.docs) return "docs_k without docs: expected both, or docs alone";
  if (problem.docs_k && problem.docs_k->size() != problem.docs->size()) {
    return "docs_k has " + std::to_string(problem.docs_k->size()) + " lengths: expected " +
           std::to_string(problem.docs->size()) + ", as docs has";
  }
  if (given("dtype_grad") && !problem.backward) {
    return "dtype_grad=" + name_of(kOutDtypes, problem.dtype_grad) +
           " without pass=backward: expected both, or no dtype_grad";
  }
  if (!problem.pieces.empty() && problem.pieces.size() != static_cast<std::size_t>(problem.ranks)) {
    return "partition=explicit has " + std::to_string(problem.pieces.size()) + " pieces: expected " +
           std::to_string(problem.ranks) + ", one a rank";
  }
  return std::nullopt;
}

std::string joined(const std::vector<std::int64_t>& lengths, char separator) {
  if (lengths.empty()) return "none";
  std::string text;
  for (const std::int64_t length : lengths) {
    if (!text.empty()) text += separator;
    text += std::to_string(length);
  }
  return text;
}

std::string mask_text(const ProblemLine& problem) {
  std::string text = (problem.mask & RINGATTN_MASK_CAUSAL) != 0 ? "causal" : "";
  const bool left = (problem.mask & RINGATTN_MASK_WINDOW_LEFT) != 0;
  const bool right = (problem.mask & RINGATTN_MASK_WINDOW_RIGHT) != 0;
  if (left || right) {
    text += text.empty() ? "window:" : ",window:";
    text += left ? std::to_string(problem.window_left) : "*";
    if (right) text += ":" + std::to_string(problem.window_right);
  }
  return text.empty() ? "full" : text;
}

std::string partition_text(const ProblemLine& problem) {
  switch (problem.partition) {
    case RINGATTN_PARTITION_STRIPED:
      return problem.stripe == 0 ? "striped" : "striped:" + std::to_string(problem.stripe);
    case RINGATTN_PARTITION_ZIGZAG:
      return "zigzag";
    case RINGATTN_PARTITION_EXPLICIT:
      return "explicit:" + (problem.pieces.empty() ? "random" : joined(problem.pieces, '/'));
    default:
      return "contiguous";
  }
}

std::string shortest(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(std::begin(text), std::end(text), value);
  return error == std::errc() ? std::string(text, end) : "?";
}

}  // namespace

double ProblemLine::effective_scale() const {
  return scale == 0 ? 1.0 / std::sqrt(static_cast<double>(dim)) : scale;
}

std::optional<std::string> parse_problem(std::string_view line, ProblemLine& problem) {
  ProblemLine read;
  std::set<std::string_view> seen;
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  for (std::size_t at = line.find_first_not_of(kSpace); at != std::string_view::npos;
       at = line.find_first_not_of(kSpace, at)) {
    const std::string_view pair = line.substr(at, line.find_first_of(kSpace, at) - at);
    at += pair.size();
    const std::size_t equals = pair.find('=');
    const std::string_view key = pair.substr(0, equals);
    const auto& table = readers();
    const auto reader =
        std::find_if(table.begin(), table.end(), [&](const auto& entry) { return entry.first == key; });
    if (equals == std::string_view::npos) return "\"" + std::string(pair) + "\": expected key=value";
    if (reader == table.end()) {
      return std::string(pair) + ": unknown key \"" + std::string(key) + "\"; expected one of " + all_keys();
    }
    if (!seen.insert(key).second)
      return std::string(pair) + ": key \"" + std::string(key) + "\" expected only once";
    const std::string expected = reader->second(pair.substr(equals + 1), read);
    if (!expected.empty()) return std::string(pair) + ": expected " + expected;
  }
  const std::optional<std::string> error = check_together(seen, read);
  if (!error) problem = std::move(read);
  return error;
}

std::string to_line(const ProblemLine& problem) {
  static const ProblemLine kDefault;
  std::string line;
  const auto add = [&](std::string_view key, const std::string& value) {
    line += (line.empty() ? "" : " ") + std::string(key) + "=" + value;
  };
  const auto add_if = [&](std::string_view key, auto value, auto standard) {
    if (value != standard) add(key, std::to_string(value));
  };
  if (problem.queries == problem.keys) {
    add("n", std::to_string(problem.queries));
  } else {
    add("q", std::to_string(problem.queries));
    add("k", std::to_string(problem.keys));
  }
  add_if("batch", problem.batch, kDefault.batch);
  add_if("heads", problem.heads, kDefault.heads);
  add_if("kv_heads", problem.kv_heads, kDefault.kv_heads);
  add_if("dim", problem.dim, kDefault.dim);
  add_if("dim_v", problem.dim_v, kDefault.dim_v);
  if (problem.dtype != kDefault.dtype) add("dtype", name_of(kDtypes, problem.dtype));
  if (problem.dtype_out != 0) add("dtype_out", name_of(kOutDtypes, problem.dtype_out));
  if (problem.mask != RINGATTN_MASK_FULL) add("mask", mask_text(problem));
  if (problem.docs) add("docs", joined(*problem.docs, ','));
  if (problem.docs_k) add("docs_k", joined(*problem.docs_k, ','));
  add_if("max_docs", problem.max_docs, kDefault.max_docs);
  if (problem.offset) add("offset", std::to_string(*problem.offset));
  if (problem.partition != kDefault.partition) add("partition", partition_text(problem));
  if (problem.query_cut != 0) add("query_cut", name_of(kQueryCuts, problem.query_cut));
  if (problem.scope != 0) add("scope", name_of(kScopes, problem.scope));
  if (problem.scale != 0) add("scale", shortest(problem.scale));
  if (problem.accuracy != 0) add("accuracy", name_of(kAccuracies, problem.accuracy));
  if (problem.backward) add("pass", "backward");
  if (problem.dtype_grad != 0) add("dtype_grad", name_of(kOutDtypes, problem.dtype_grad));
  add("ranks", std::to_string(problem.ranks));
  add_if("threads", problem.threads, kDefault.threads);
  if (problem.layout != kDefault.layout)
    add("layout", name_of(kLayouts, static_cast<std::int64_t>(problem.layout)));
  if (!problem.transport.empty()) add("transport", problem.transport);
  add_if("seed", problem.seed, kDefault.seed);
  return line;
}

std::vector<NumberedLine> problem_lines(std::string_view file_text) {
  std::vector<NumberedLine> lines;
  int number = 0;
  for (const std::string_view line : split(file_text, '\n')) {
    ++number;
    const std::string_view content = line.substr(0, line.find('#'));
    const std::size_t first = content.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) continue;
    const std::size_t last = content.find_last_not_of(" \t\r");
    lines.push_back({number, std::string(content.substr(first, last - first + 1))});
  }
  return lines;
}

}  // namespace ringattn::support
