#include "tests/faults/summary.h"

#include <algorithm>
#include <cstdio>

namespace ringattn::faults {
namespace {

std::string times_text(std::vector<double> times) {
  if (times.empty()) return "        -          -          -";
  std::sort(times.begin(), times.end());
  const auto at = [&](double part) {
    return times[static_cast<std::size_t>(part * static_cast<double>(times.size() - 1))];
  };
  char text[64];
  std::snprintf(text, sizeof text, "%9.1f  %9.1f  %9.1f", at(0.5), at(0.99), times.back());
  return text;
}

}  // namespace

void Summary::add(const Outcome& outcome) {
  Row& row = rows_[outcome.fault.transport + " " + name_of(outcome.fault.kind)];
  ++row.count;
  ++count_;
  if (outcome.detect_ms >= 0) row.detect_ms.push_back(outcome.detect_ms);
  if (outcome.leave_ms >= 0) row.leave_ms.push_back(outcome.leave_ms);
  hangs_ += outcome.hang ? 1 : 0;
  wrong_ += outcome.wrong.empty() ? 0 : 1;
  unnamed_ += outcome.unnamed.empty() ? 0 : 1;
  left_ += outcome.left.empty() ? 0 : 1;
  broken_ += outcome.broken.empty() || outcome.hang ? 0 : 1;
  row.failed += outcome.ok() ? 0 : 1;
  failed_ += outcome.ok() ? 0 : 1;
}

std::string Summary::text() const {
  std::string text =
      "transport fault     count failed   seen after ms: median, 99%, slowest    leaving ms: slowest\n";
  for (const auto& [name, row] : rows_) {
    const std::size_t space = name.find(' ');
    const double slowest =
        row.leave_ms.empty() ? 0 : *std::max_element(row.leave_ms.begin(), row.leave_ms.end());
    char line[200];
    std::snprintf(line, sizeof line, "%-9s %-9s %5d %6d   %s   %9.1f\n", name.substr(0, space).c_str(),
                  name.substr(space + 1).c_str(), row.count, row.failed, times_text(row.detect_ms).c_str(),
                  slowest);
    text += line;
  }
  char totals[300];
  std::snprintf(totals, sizeof totals,
                "%d faults: %d hangs, %d wrong results, %d unnamed errors, %d left something behind, %d "
                "otherwise broken\n",
                count_, hangs_, wrong_, unnamed_, left_, broken_);
  return text + totals;
}

}  // namespace ringattn::faults
