#include "schedule/schedule.h"

namespace ringattn::schedule {

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::pack:
      return "pack";
    case Kind::receive:
      return "receive";
    case Kind::send:
      return "send";
    case Kind::attend:
      return "attend";
    case Kind::merge:
      return "merge";
    case Kind::accumulate:
      return "accumulate";
    case Kind::copy:
      return "copy";
    case Kind::release:
      return "release";
    case Kind::finalize:
      return "finalize";
  }
  return "unknown";
}

std::uint64_t block_bytes(const Problem& problem, std::int64_t local_keys) {
  const std::int64_t elements_of_token = problem.kv_heads * (problem.head_dim_qk + problem.head_dim_v);
  return static_cast<std::uint64_t>(problem.batch) * static_cast<std::uint64_t>(local_keys) *
         static_cast<std::uint64_t>(elements_of_token * size_of(problem.dtype));
}

std::uint64_t gradient_bytes(const Problem& problem, std::int64_t local_keys) {
  const std::int64_t elements_of_token = problem.kv_heads * (problem.head_dim_qk + problem.head_dim_v);
  return static_cast<std::uint64_t>(problem.batch) * static_cast<std::uint64_t>(local_keys) *
         static_cast<std::uint64_t>(elements_of_token) * sizeof(float);
}

}  // namespace ringattn::schedule
