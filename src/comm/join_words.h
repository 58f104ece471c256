// What ranks say to each other while they form a ring, as text: one item a line, "NAME VALUE"; an address follows
// as raw bytes after an empty line.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace ringattn::comm {

struct Offer {  // a transport that a rank knows
  std::string name;
  std::int32_t score = 0;
  std::string why_not;
};

struct Introduction {
  std::int32_t rank = 0, world = 0;
  std::string wish;
  std::string who;  // "host node7, pid 4711"
  std::vector<Offer> offers;
  std::string group, secret;  // random bytes; those of rank 0 count
};
std::string encode(const Introduction& introduction);
bool decode(const std::string& text, Introduction& out);

// How one step has gone at a rank, with what it gives to the others.
struct Outcome {
  Status status;
  std::string data;
};
std::string encode(const Outcome& outcome);
bool decode(const std::string& text, Outcome& out);

// What this rank is to return when `outcomes` are those of all ranks: its own failure, or the first other one.
Status judge(const std::vector<Outcome>& outcomes, std::int32_t own, const char* what);

// The transport that all ranks take, or the same failure on all of them.
Status agree_on_transport(const std::vector<Introduction>& ranks, std::string& name);

}  // namespace ringattn::comm
