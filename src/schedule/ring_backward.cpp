// Gradients on their way. The owner's own part of dK, dV never travels: it is added up at home. A run of
// consecutive distances 1..P-1 at which ranks contribute is a chain: its first rank starts a sum, each next
// one adds its part and hands it on, the last sends it home. Most masks make one run a block, so one transfer
// comes home; where there is a gap (zig-zag with a window), each run comes home by itself, because a hop over
// a gap could close a circle of waits.
//
// Why nothing waits in a circle. Let A(f) be the arrival, anywhere, of a sum whose sender is at distance f,
// and C(d) a rank's attend at distance d. Claim: all complete, by induction over the distance.
//   C(d) needs its K/V, which ring.cpp shows to come if C(e) completes for e <= d - 2; C of smaller distances
//   at this rank (a tile takes blocks in order); and a free buffer for its sum. Two buffers take turns, so
//   the occupant is of a distance e <= d - 2, and is gone with A(e).
//   A(f) needs the sender's sum: C(f) there, and A(f - 1) there. Where the transport copies, it also needs
//   the receiver's one arrival buffer. Arrivals use it in order of f, a passing sum before one that comes
//   home: so the occupant is an A(g) with g < f, or g = f for the passing one. It leaves when it has been
//   added: C(g + 1), so at most C(f + 1), which needs only A(e) with e <= f - 1. A(f) ends, where the
//   transport lends, when it has been added: the same.
//   What comes home is added to a buffer of its own and waits for C(0) alone.
#include "schedule/ring_writer.h"

namespace ringattn::schedule {
namespace {

class BackwardWriter : RingWriter {
 public:
  BackwardWriter(const Problem& problem, const Layout& layout, std::int32_t rank, bool lends, Schedule& out)
      : RingWriter(problem, layout, rank, lends, true, out) {}

  void write() {
    send_own();
    if (needs(rank_, rank_)) {
      home_ = add({.kind = Kind::attend, .block = rank_, .target = kHomeGradient});
    }
    for (std::int32_t distance = 1; distance < world_; ++distance) {
      if (needs(rank_, at(-distance))) contribute(distance);
      come_home(distance - 1);
    }
    come_home(world_ - 1);
    finish();
  }

 private:
  std::uint64_t bytes_of(std::int32_t block) const {
    return gradient_bytes(problem_, layout_.local_keys(block));
  }

  // Receives a sum and adds it to `target` (which `before` has written; -1 = nothing has). Returns the addition.
  std::int32_t receive_sum(std::int32_t from, std::int32_t block, std::int32_t target, std::int32_t before,
                           std::int32_t step) {
    const std::int32_t buffer = out_.lends ? -1 : kArrival;
    const std::int32_t received = add({.kind = Kind::receive,
                                       .gradient = true,
                                       .peer = from,
                                       .block = block,
                                       .buffer = buffer,
                                       .bytes = bytes_of(block),
                                       .step = step});
    if (!out_.lends) wait_for(arrival_free_);
    const std::int32_t added = add({.kind = before < 0 ? Kind::copy : Kind::accumulate,
                                    .gradient = true,
                                    .block = block,
                                    .buffer = buffer,
                                    .target = target,
                                    .source = received,
                                    .bytes = bytes_of(block),
                                    .step = step});
    wait_for(received);
    wait_for(before);
    arrival_free_ = add({.kind = Kind::release,
                         .gradient = true,
                         .peer = out_.lends ? from : -1,
                         .block = block,
                         .buffer = buffer,
                         .source = received,
                         .step = step});
    wait_for(added);
    return added;
  }

  // Everything about the block of another rank that this one sees.
  void contribute(std::int32_t distance) {
    const std::int32_t block = at(-distance);
    const std::int32_t turn = contributions_++ % kSums, target = kFirstSum + turn;
    std::int32_t whole = take(distance, target, sum_free_[turn]);
    const std::int32_t step = out_.operations[static_cast<std::size_t>(whole)].step;
    if (distance > 1 && needs(at(-1), block)) whole = receive_sum(at(-1), block, target, whole, step);
    const bool next_adds = distance + 1 < world_ && needs(at(1), block);
    sum_free_[turn] = add({.kind = Kind::send,
                           .gradient = true,
                           .peer = next_adds ? at(1) : block,
                           .block = block,
                           .buffer = target,
                           .target = target,
                           .bytes = bytes_of(block),
                           .step = step});
    wait_for(whole);
  }

  // The sum of the own block whose last contributor is `distance` ahead, if there is one.
  void come_home(std::int32_t distance) {
    if (distance < 1 || !needs(at(distance), rank_)) return;
    if (distance + 1 < world_ && needs(at(distance + 1), rank_)) return;
    home_ = receive_sum(at(distance), rank_, kHomeGradient, home_, distance);
  }

  void finish() {
    const auto last = static_cast<std::int32_t>(out_.operations.size());
    add({.kind = Kind::finalize});
    for (std::int32_t i = 0; i < last; ++i) {
      if (out_.operations[static_cast<std::size_t>(i)].kind == Kind::attend) wait_for(i);
    }
    add({.kind = Kind::finalize,
         .gradient = true,
         .block = rank_,
         .target = home_ < 0 ? -1 : kHomeGradient,
         .bytes = bytes_of(rank_)});
    wait_for(home_);
  }

  std::int32_t contributions_ = 0;
  std::int32_t sum_free_[kSums] = {-1, -1};  // send of each buffer's occupant
  std::int32_t arrival_free_ = -1;           // release of the arrival buffer's occupant
  std::int32_t home_ = -1;                   // the last that wrote the own block's gradients
};

}  // namespace

void write_backward_ring(const Problem& problem, const Layout& layout, std::int32_t rank, bool lends,
                         Schedule& out) {
  BackwardWriter(problem, layout, rank, lends, out).write();
}

}  // namespace ringattn::schedule
