// What the forward and the backward ring have in common: who needs which block, and K/V on its way.
#pragma once
#include <cstdint>

#include "schedule/schedule.h"

namespace ringattn::schedule {

class RingWriter {
 public:
  RingWriter(const Problem& problem, const Layout& layout, std::int32_t rank, bool lends, bool backward,
             Schedule& out);

 protected:
  static constexpr std::int32_t kBuffers = 2;

  std::int32_t at(std::int32_t distance) const { return (rank_ + distance + world_) % world_; }
  bool needs(std::int32_t rank, std::int32_t block) const;

  std::int32_t add(Operation operation);
  void wait_for(std::int32_t operation);  // of the operation added last; -1 = nothing

  // To everyone who needs the own block and whose rank before does not have it; the others pass it on.
  void send_own();
  // Receives the block of distance `distance`, passes it on where the next rank needs it too, attends and
  // releases it. Backward: adds to gradient buffer `target` once `target_free` has ended. Returns the attend.
  std::int32_t take(std::int32_t distance, std::int32_t target, std::int32_t target_free);

  const Problem& problem_;
  const Layout& layout_;
  const std::int32_t rank_, world_;
  Schedule& out_;

 private:
  std::uint64_t bytes_of(std::int32_t block) const {
    return block_bytes(problem_, layout_.local_keys(block));
  }

  std::int32_t arrivals_ = 0;
  std::int32_t released_[kBuffers] = {-1, -1};  // release of each buffer's occupant
};

void write_backward_ring(const Problem& problem, const Layout& layout, std::int32_t rank, bool lends,
                         Schedule& out);

}  // namespace ringattn::schedule
