// Ring pass-KV. Why two receive buffers suffice and nobody deadlocks, though a transfer needs both sides:
//
// Let (r, d) be the arrival at rank r of the block of rank r - d, where r needs it. Claim: each completes.
// Proof by induction over d; assume it for all smaller distances, at all ranks.
//   The sender has the block. Either it is the owner, whose memory (or send buffer, packed before all else)
//   is always there; or it is rank r - 1, which needs the block too: then (r - 1, d - 1) completes, and
//   sending on waits for nothing but that arrival.
//   The receiver has a buffer. Arrivals come in order of distance and take turns with two buffers, so the
//   occupant before is an arrival (r, e) with e <= d - 2, or there is none. The occupant is gone once it has
//   been attended, which waits for nothing but (r, e), and has been sent on, which is the arrival
//   (r + 1, e + 1). Both distances are below d, so both complete.
// With one buffer e may be d - 1, and sending on is (r + 1, d): all ranks then wait in a circle.
// Where the transport lends there are no buffers to wait for. A send then ends with the borrower's release,
// which waits for the borrower's own sends of the block, at larger distances; the last sends to nobody.
#include <algorithm>

#include "schedule/ring_writer.h"
#include "schedule/visible.h"

namespace ringattn::schedule {

RingWriter::RingWriter(const Problem& problem, const Layout& layout, std::int32_t rank, bool lends,
                       bool backward, Schedule& out)
    : problem_(problem), layout_(layout), rank_(rank), world_(layout.world()), out_(out) {
  out.rank = rank;
  out.world = world_;
  out.receive_buffers = 0;
  out.lends = lends;
  out.backward = backward;
  out.operations.clear();
  out.after.clear();
}

bool RingWriter::needs(std::int32_t rank, std::int32_t block) const {
  for (std::int64_t row = 0; row < layout_.rows() && problem_.batch > 0; ++row) {
    if (any_visible(layout_.queries(rank, row), layout_.keys(block, row), problem_.mask)) return true;
  }
  return false;
}

std::int32_t RingWriter::add(Operation operation) {
  operation.after_first = static_cast<std::int32_t>(out_.after.size());
  out_.operations.push_back(operation);
  return static_cast<std::int32_t>(out_.operations.size()) - 1;
}

void RingWriter::wait_for(std::int32_t operation) {
  if (operation < 0) return;
  out_.after.push_back(operation);
  ++out_.operations.back().after_count;
}

void RingWriter::send_own() {
  std::int32_t packed = -1;
  bool had = false;
  for (std::int32_t distance = 1; distance < world_; ++distance) {
    const bool needed = needs(at(distance), rank_);
    if (needed && !had) {
      if (packed < 0 && !out_.lends)
        packed = add({.kind = Kind::pack, .block = rank_, .bytes = bytes_of(rank_)});
      add({.kind = Kind::send, .peer = at(distance), .block = rank_, .bytes = bytes_of(rank_)});
      wait_for(packed);
    }
    had = needed;
  }
}

std::int32_t RingWriter::take(std::int32_t distance, std::int32_t target, std::int32_t target_free) {
  const std::int32_t block = at(-distance);
  const bool before_has = distance == 1 || needs(at(-1), block);
  const bool pass_on = distance + 1 < world_ && needs(at(1), block);
  const std::int32_t from = before_has ? at(-1) : block;
  const std::int32_t buffer = out_.lends ? -1 : arrivals_ % kBuffers, step = ++arrivals_;
  const std::uint64_t bytes = bytes_of(block);
  const std::int32_t received = add(
      {.kind = Kind::receive, .peer = from, .block = block, .buffer = buffer, .bytes = bytes, .step = step});
  if (!out_.lends) {
    wait_for(released_[buffer]);
    out_.receive_buffers = std::max(out_.receive_buffers, buffer + 1);
  }
  std::int32_t sent = -1;
  if (pass_on) {  // as soon as it is here, whatever is computed meanwhile
    sent = add(
        {.kind = Kind::send, .peer = at(1), .block = block, .buffer = buffer, .bytes = bytes, .step = step});
    wait_for(received);
  }
  const std::int32_t attended =
      add({.kind = Kind::attend, .block = block, .buffer = buffer, .target = target, .step = step});
  wait_for(received);
  wait_for(target_free);
  const std::int32_t released = add({.kind = Kind::release,
                                     .peer = out_.lends ? from : -1,
                                     .block = block,
                                     .buffer = buffer,
                                     .step = step});
  wait_for(attended);
  wait_for(sent);
  if (!out_.lends) released_[buffer] = released;
  return attended;
}

namespace {

class ForwardWriter : RingWriter {
 public:
  ForwardWriter(const Problem& problem, const Layout& layout, std::int32_t rank, bool lends, Schedule& out)
      : RingWriter(problem, layout, rank, lends, false, out) {}

  void write() {
    send_own();
    if (needs(rank_, rank_)) add({.kind = Kind::attend, .block = rank_});
    for (std::int32_t distance = 1; distance < world_; ++distance) {
      if (needs(rank_, at(-distance))) take(distance, -1, -1);
    }
    const auto last = static_cast<std::int32_t>(out_.operations.size());
    add({.kind = Kind::finalize});
    for (std::int32_t i = 0; i < last; ++i) {
      if (out_.operations[static_cast<std::size_t>(i)].kind == Kind::attend) wait_for(i);
    }
  }
};

}  // namespace

// Forward, per other rank: send of the own block, receive, send on, attend, release; and pack, own attend,
// finalize. Edges: one each of the first four, two of a release, one of finalize, and finalize's on the own
// attend. Backward adds, per other rank: receive, accumulate, release and send of a sum that passes, and the
// first three of one that comes home. Edges: an attend's on its target, one of each receive and release, two of each
// accumulate and send, one of the last finalize; and a pair for the own attend.
void reserve_ring(std::int32_t world, bool backward, Schedule& out) {
  const auto others = static_cast<std::size_t>(world - 1);
  out.operations.reserve((backward ? 12 : 5) * others + (backward ? 5 : 3));
  out.after.reserve((backward ? 21 : 7) * others + (backward ? 4 : 1));
}

void generate_ring(const Problem& problem, const Layout& layout, std::int32_t rank, bool lends, bool backward,
                   Schedule& out) {
  if (backward) {
    write_backward_ring(problem, layout, rank, lends, out);
  } else {
    ForwardWriter(problem, layout, rank, lends, out).write();
  }
}

}  // namespace ringattn::schedule
