#include "trace_file.h"

#include <fmt/format.h>

#include <filesystem>

#include "perfetto.h"

namespace ringattn::tool {

std::string path_of_rank(const std::string& path, int rank) {
  std::filesystem::path named(path);
  named.replace_extension(fmt::format("rank{}{}", rank, named.extension().string()));
  return named.string();
}

TraceFile::TraceFile(const std::string& path, const Ring& ring)
    : file_(ring.is_whole() ? path : path_of_rank(path, ring.ranks.front())) {}

void TraceFile::add(const std::vector<RankTrace>& traces) {
  if (traces_.empty()) {
    traces_ = traces;
    return;
  }
  for (std::size_t i = 0; i < traces.size(); ++i) {
    const std::vector<ringattn_event>& events = traces[i].events;
    traces_[i].events.insert(traces_[i].events.end(), events.begin(), events.end());
  }
}

void TraceFile::write() {
  file_.write(perfetto_json(traces_));
  file_.commit();
}

}  // namespace ringattn::tool
