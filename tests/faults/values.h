// The inputs of one problem and what must come out of them, known without the library: fp64 oracle and the limits of
// tests/support. No two executions in a row have equal inputs, so that bytes of an earlier one are seen.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/oracle.h"
#include "tests/support/oracle_backward.h"
#include "tests/support/plain.h"
#include "tests/support/plain_backward.h"
#include "tests/support/problem_line.h"
#include "tests/support/random_data.h"
#include "tests/support/rank_tensors.h"

namespace ringattn::faults {

// Which tokens of a row a rank owns: the same in every row of the batch, as there are no lengths.
struct Owned {
  std::vector<std::int64_t> queries, keys;
};

class Values {
 public:
  // `problem` is that of the ring. Every row of its batch has the same numbers, up to factors, so one row is enough for
  // the oracle however much is sent.
  explicit Values(const support::ProblemLine& problem);

  const support::ProblemLine& problem() const { return problem_; }

  // The shards for execution `number`: forward reads q, k, v; backward also o and lse, which come from the oracle, not
  // from a forward of the library.
  void fill(support::RankTensors& tensors, const Owned& owned, std::uint64_t number) const;
  void fill_results(support::RankTensors& tensors, const Owned& owned, std::uint64_t number) const;

  // "" or the worst wrong element of this rank's shards.
  std::string check_forward(const support::RankTensors& tensors, const Owned& owned,
                            std::uint64_t number) const;
  std::string check_backward(const support::RankTensors& tensors, const Owned& owned,
                             std::uint64_t number) const;

 private:
  support::ProblemLine problem_, row_;
  support::Inputs inputs_;  // of one row
  support::OracleResult oracle_;
  support::PlainResult plain_;
  support::HostTensor o_, lse_;  // the oracle's, rounded: what backward is given
  support::OracleGradients gradients_;
  support::PlainGradients plain_gradients_;
};

}  // namespace ringattn::faults
