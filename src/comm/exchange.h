// What ranks say to each other before anything moves: a digest of the call's values, and the records behind
// it where digests differ.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/comm.h"

namespace ringattn::comm {

// Least and greatest of a digest over all ranks, in ceil(log16 P) rounds: in round k a rank sends what it
// knows to the ranks at distances i * 16^k ahead (i = 1..15) and hears from as many behind. Min and max do
// not mind hearing something twice, so any P works. Advances by step only, and allocates only in its
// constructor.
class DigestExchange {
 public:
  explicit DigestExchange(Comm& comm);
  void start(std::uint64_t sequence, std::uint64_t digest);
  bool step();  // after poll: true when it has ended
  bool equal() const { return known_.least == known_.greatest; }
  std::int32_t waits_for() const;
  // After it has ended: a rank that has not yet taken this one's word, -1 = none.
  std::int32_t not_taken_by() const;
  void release_loans();  // of a call that ends early: what has arrived and was not looked at goes home

 private:
  static constexpr std::int32_t kRadix = 16;
  struct Range {
    std::uint64_t least, greatest;
  };
  void post_round();

  Comm& comm_;
  std::uint64_t sequence_ = 0;
  std::int64_t distance_ = 1;  // 16^round
  std::int32_t round_ = 0;
  Range known_{};
  std::vector<Range> sent_;      // by round: lent until its receivers give it back
  std::vector<Range> received_;  // by partner of this round
  std::vector<Transfer> sends_, receives_;
  std::int32_t partners_ = 0;  // of this round
  std::int32_t sends_used_ = 0;
};

// Every rank's record to every rank. Allocates; used at plan time and where something is wrong.
class RecordExchange {
 public:
  RecordExchange(Comm& comm, std::uint64_t sequence, std::string own);
  bool step();
  const std::vector<std::string>& records() const { return records_; }
  std::int32_t waits_for() const;
  void release_loans();  // as above

 private:
  void post_records();
  bool all_done(const std::vector<Transfer>& transfers) const;

  Comm& comm_;
  std::uint64_t sequence_;
  std::uint64_t own_size_;
  std::string own_;
  bool sizes_known_ = false;
  std::vector<std::uint64_t> sizes_;
  std::vector<std::string> records_;
  std::vector<Transfer> size_sends_, size_receives_, sends_, receives_;
};

}  // namespace ringattn::comm
