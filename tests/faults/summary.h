// Counts over many faults, and their report.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "tests/faults/outcome.h"

namespace ringattn::faults {

class Summary {
 public:
  void add(const Outcome& outcome);
  bool ok() const { return failed_ == 0; }
  // A table of counts and times per kind and transport, then one line of totals.
  std::string text() const;

 private:
  struct Row {
    int count = 0, failed = 0;
    std::vector<double> detect_ms, leave_ms;
  };
  std::map<std::string, Row> rows_;  // by "transport kind"
  int count_ = 0, failed_ = 0;
  int hangs_ = 0, wrong_ = 0, unnamed_ = 0, left_ = 0, broken_ = 0;
};

}  // namespace ringattn::faults
