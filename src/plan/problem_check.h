// From the caller's description to a checked Problem. supports, preview and plan_create all decide here.
#pragma once
#include "base/problem.h"
#include "base/status.h"

namespace ringattn::plan {

// `desc` has been read in full (api/read_struct.h). EXPLICIT: puts this rank's own runs at runs_*[rank] of
// `world` lists.
Status check_problem(const ringattn_plan_desc& desc, std::int32_t rank, std::int32_t world, Problem& out);

// "f32", "causal,window:512", "striped:4" and so on: the words of the command line's grammar.
const char* dtype_name(DType dtype);
std::string mask_words(const Problem& problem);
std::string partition_words(const Problem& problem);
const char* scope_name(Scope scope);

}  // namespace ringattn::plan
