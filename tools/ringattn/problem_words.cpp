#include "problem_words.h"

#include <fmt/format.h>

#include <sstream>

#include "error.h"

namespace ringattn::tool {

support::ProblemLine parse_words(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + word;
  support::ProblemLine problem;
  if (const auto error = support::parse_problem(line, problem)) throw BadInput(*error);
  return problem;
}

std::string line_for_processes(const std::string& line, int processes) {
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (word.compare(0, 6, "ranks=") == 0) return line;
  }
  return fmt::format("{} ranks={}", line, processes);
}

void require_process_problem(const support::ProblemLine& problem, int processes, const std::string& where) {
  if (problem.ranks != processes) {
    throw BadInput(fmt::format("{}ranks={}: expected {}, the processes that there are, or no ranks", where,
                               problem.ranks, processes));
  }
  if (problem.threads != 1) {
    throw BadInput(
        fmt::format("{}threads={}: expected no threads, as each process takes its share of the cores", where,
                    problem.threads));
  }
  if (!problem.transport.empty()) {
    throw BadInput(
        fmt::format("{}transport={}: expected RINGATTN_TRANSPORT={} instead, as ranks are processes", where,
                    problem.transport, problem.transport));
  }
  if (problem.layout != support::Layout::kBshd)
    throw BadInput(where + "layout: expected bshd, as ranks are processes, whose shards are dense");
}

const char* problem_help() {
  return "Keys of a PROBLEM (defaults in brackets):\n"
         "  n=LENGTH, or q=LENGTH k=LENGTH         queries and keys, over all ranks\n"
         "  batch [1]  heads [1]  kv_heads [heads]  dim [64]  dim_v [dim]\n"
         "  dtype=f32|f16|bf16 [f32]               dtype_out=same|f32 [same]\n"
         "  mask=full|causal[,window:LEFT[:RIGHT]] [full]; * = that side is not bounded\n"
         "  docs=LEN,LEN,...|none  docs_k=...       sequences of the row (batch > 1: one a row)  "
         "max_docs=COUNT\n"
         "  offset=POSITION                        of the first query [keys - queries]\n"
         "  partition=contiguous|striped[:STRIPE]|zigzag|explicit:LEN/LEN/...|explicit:random [contiguous]\n"
         "  query_cut=auto|like_keys|by_index [auto]  scope=capacity|call|document [capacity]\n"
         "  scale=NUMBER [1/sqrt(dim)]             accuracy=default|exact [default]\n"
         "  pass=forward|backward [forward]        dtype_grad=same|f32 [same], with pass=backward\n"
         "  ranks [1]  threads [1], 0 = all cores   transport=NAME  layout=bshd|bhsd|sbhd|sliced  seed [0]";
}

}  // namespace ringattn::tool
