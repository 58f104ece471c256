// What a rank says of itself in the agreement: its verdict, and its values by name, so that a difference
// can be named.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/problem.h"
#include "base/status.h"

namespace ringattn::plan {

struct Record {
  ringattn_status verdict = RINGATTN_OK;
  std::string reason;                                       // of a refusal
  std::vector<std::pair<std::string, std::string>> fields;  // equal on all ranks
  std::vector<PositionRun> runs_q, runs_k;                  // this rank's own (EXPLICIT); not compared
};

std::string encode(const Record& record);
bool decode(std::string_view text, Record& out);

// What rank `own` is to return: its own refusal; PEER_REFUSED with the first refusing rank and its reason;
// RANK_MISMATCH with field, rank and both values (the same on all ranks); or OK.
Status judge(std::span<const Record> records, std::int32_t own);

// Every field of a problem that must be equal on all ranks, by its name in ringattn_plan_desc.
void add_problem_fields(const Problem& problem, Record& record);

}  // namespace ringattn::plan
