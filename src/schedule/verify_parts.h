// The single proofs of verify, each about one property; later ones rely on what earlier ones have shown.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace ringattn::schedule {

struct Subject {
  const Problem& problem;
  const Call& call;
  const Layout& layout;
  std::span<const Schedule> schedules;
};

// "schedule: rank 3, operation 7 (send of block 2 to rank 4): <what>"
Status violation(const Schedule& schedule, std::size_t operation, const std::string& what);
Status violation(std::int32_t rank, const std::string& what);

// Which operations have always ended when another one starts: the ancestors of each, as bits.
class Ancestors {
 public:
  explicit Ancestors(const Schedule& schedule) : words_((schedule.operations.size() + 63) / 64) {
    bits_.resize(words_ * schedule.operations.size());
    for (std::size_t i = 0; i < schedule.operations.size(); ++i) {
      for (const std::int32_t before : schedule.after_of(schedule.operations[i])) {
        const auto j = static_cast<std::size_t>(before);
        for (std::size_t w = 0; w < words_; ++w) bits_[i * words_ + w] |= bits_[j * words_ + w];
        bits_[i * words_ + j / 64] |= std::uint64_t{1} << (j % 64);
      }
    }
  }
  bool before(std::size_t earlier, std::size_t later) const {
    return (bits_[later * words_ + earlier / 64] >> (earlier % 64) & 1) != 0;
  }

 private:
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

Status verify_shards(
    const Subject& subject);  // both axes covered exactly once, shards in order and within capacity
Status verify_form(const Subject& subject);       // numbers in range, waits only for earlier operations
Status verify_work(const Subject& subject);       // every visible pair attended exactly once
Status verify_transfers(const Subject& subject);  // sends match receives
// K/V held while used, buffers and lent memory safe
Status verify_memory(const Schedule& schedule, const Ancestors& ancestors);
// Backward: the same of the sums of dK, dV, and each whole before it is handed on
Status verify_sums(const Schedule& schedule, const Ancestors& ancestors);
Status verify_gradients(const Subject& subject);  // backward: every part comes home exactly once
Status verify_progress(const Subject& subject);   // no deadlock

}  // namespace ringattn::schedule
