// What the ranks of this process did, for ui.perfetto.dev: one file, or one a process.
#pragma once
#include <string>
#include <vector>

#include "output_file.h"
#include "rank_trace.h"
#include "ring.h"

namespace ringattn::tool {

class TraceFile {
 public:
  // Where each rank is a process, `path` gets its number: trace.json becomes trace.rank2.json.
  TraceFile(const std::string& path, const Ring& ring);

  // Of one execution more.
  void add(const std::vector<RankTrace>& traces);
  void write();

 private:
  OutputFile file_;
  std::vector<RankTrace> traces_;
};

// "a/trace.json", 2 -> "a/trace.rank2.json"; without an extension it comes last.
std::string path_of_rank(const std::string& path, int rank);

}  // namespace ringattn::tool
