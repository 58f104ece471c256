// Runs one fault from the start of its processes to their end, and what came of it.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "tests/faults/fault.h"
#include "tests/faults/process.h"

namespace ringattn::faults {

// How long things may take. What is measured is told besides; limits are for machines that do much else.
struct Limits {
  std::int64_t detect_ms =
      10'000;  // from the fault to the last survivor's answer; for stop: after the deadline
  std::chrono::milliseconds silence{45'000};  // nobody answers and no rank gets on: a hang
  std::chrono::milliseconds whole{300'000};
};

struct Outcome {
  Fault fault;
  std::vector<std::string> wrong;  // a successful execution with wrong numbers
  std::vector<std::string>
      unnamed;  // an error with another status, or without the rank and host that it must name
  std::vector<std::string> left;    // what a survivor still holds
  std::vector<std::string> broken;  // anything else that must not be
  bool hang = false;
  double detect_ms = -1;  // the slowest survivor; -1 = nobody had to detect anything
  double leave_ms = -1;   // the slowest destruction of plan and comm afterwards
  std::string example;    // a survivor's status and message

  bool ok() const { return wrong.empty() && unnamed.empty() && left.empty() && broken.empty() && !hang; }
  std::string text() const;  // what is wrong, and how to repeat it
};

Outcome run_fault(const Fault& fault, const Limits& limits = {});

}  // namespace ringattn::faults
