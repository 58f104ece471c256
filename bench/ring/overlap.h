// How much of a transfer a ring step hides. In turns, so that what the machine does meanwhile meets all three: *both* is the
// ring as it is, *compute* the same tiles on keys that are all here, *transfer* the same ring with one query a rank.
#pragma once
#include <nlohmann/json.hpp>

#include "case.h"

namespace ringattn::bench {

// Seconds of each repetition; how the library itself splits them.
struct Samples {
  std::vector<double> whole, tiles, agree, exposed, polls;

  void take(Case& of) {
    whole.push_back(of.time());
    const ringattn_times times = of.times();
    tiles.push_back(static_cast<double>(times.compute_ns) * 1e-9);
    agree.push_back(static_cast<double>(times.agree_ns) * 1e-9);
    exposed.push_back(static_cast<double>(times.exposed_wait_ns) * 1e-9);
    polls.push_back(static_cast<double>(times.poll_ns) * 1e-9);
  }
  nlohmann::json json() const {
    return {{"whole", whole}, {"tiles", tiles}, {"agree", agree}, {"exposed", exposed}, {"polls", polls}};
  }
};

inline nlohmann::json measure_overlap(ringattn_comm* ring, ringattn_comm* alone, std::int32_t world,
                                      const Shape& shape, int pairs) {
  const std::int64_t keys = shape.tokens * world;
  Case both(ring, shape, keys, keys), transfer(ring, shape, world, keys),
      compute(alone, shape, shape.tokens, keys);
  Case meet(ring, {1, 1, 1, 8}, world, world);
  for (int i = 0; i < 2; ++i) both.run(), transfer.run(), compute.run();  // warm
  Samples both_s, transfer_s, compute_s;
  const auto take = [&](Case& of, Samples& into) {
    meet.run();  // ranks that have computed do not end together, and what follows would be charged for that
    into.take(of);
  };
  for (int i = 0; i < pairs; ++i) {
    if (i % 2 == 0) take(both, both_s);
    take(transfer, transfer_s);
    take(compute, compute_s);
    if (i % 2 != 0) take(both, both_s);
  }
  const ringattn_plan_info& info = both.info();
  return {{"tokens_per_rank", shape.tokens},
          {"heads", shape.heads},
          {"kv_heads", shape.kv_heads},
          {"dim", shape.dim},
          {"bytes_received", info.bytes_received},
          {"flops", info.flops},
          {"overlap_flops_per_byte", info.overlap_flops_per_byte},
          {"both", both_s.json()},
          {"transfer", transfer_s.json()},
          {"compute", compute_s.json()}};
}

}  // namespace ringattn::bench
