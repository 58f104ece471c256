// A scripted transport between threads of one process: slow, out of order, failing or silent on demand.
//
// The tables go into ringattn_transport_register or are used directly. A ring follows the script that was set
// when its first rank opened; the counts are those of the whole process since the last fake_script().
#pragma once
#include <cstdint>

#include "ringattn/transport.h"

namespace ringattn::test {

struct FakeScript {
  std::uint64_t seed = 1;
  std::uint32_t max_delay_us = 0;  // a completion is handed out 0..max_delay_us after the transfer has ended
  bool reorder = false;            // completions come in random order

  // Rank `fail_rank` fails at its `fail_transfer`-th transfer (from 1; 0 = never): its post is refused and
  // its link is dead from then on, or, with fail_completion, that one transfer ends with the status. Other
  // ranks are not told.
  std::int32_t fail_rank = -1;
  std::uint64_t fail_transfer = 0;
  ringattn_status fail_status = RINGATTN_ERR_TRANSPORT;
  bool fail_completion = false;

  std::int32_t silent_rank = -1;  // what this rank sends is taken and never arrives
};

struct FakeCounts {
  std::uint64_t posts = 0;          // calls of post
  std::uint64_t sends = 0;          // transfers
  std::uint64_t receives = 0;       //
  std::uint64_t sent_bytes = 0;     //
  std::uint64_t max_in_flight = 0;  // the most transfers that one link had posted and not yet got back
  std::uint64_t open_loans = 0;     // handed out and not yet released
};

// Sets the script for rings opened from now on, and the counts to zero.
void fake_script(const FakeScript& script);
FakeCounts fake_counts();

const ringattn_transport_v1* fake_lend();  // named "fake_lend": lends, as `local` does
const ringattn_transport_v1* fake_copy();  // named "fake_copy": copies into the receive's buffer, as tcp does

}  // namespace ringattn::test
