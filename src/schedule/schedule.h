// A schedule: what one rank does in one execution, as plain data. No device, transport, thread or time is
// in it.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/call.h"
#include "base/problem.h"
#include "base/status.h"
#include "schedule/layout.h"

namespace ringattn::schedule {

enum class Kind : std::int32_t {
  pack,     // copy the own K/V into the send buffer in wire form (copying transports that send at all)
  receive,  // block `block` from `peer` into receive buffer `buffer` (lends: no buffer, -1)
  send,     // block `block` to `peer`
  // fold block `block` into the state; tiles of one query tile are folded in the order of the attends
  attend,
  merge,       // combine partial states (decode)
  accumulate,  // backward: add an arrived sum of gradients to `target`
  copy,        // backward: the same where nothing has been added before
  release,  // lends: give the block back to the peer it came from; copies: the receive buffer is free again
  finalize  // forward: write O and lse; backward: write dQ; with `gradient`: write dK and dV from `target`
};
const char* name_of(Kind kind);

// Buffers of dK, dV sums, fp32, in wire form (backward). Home collects the own block's; two others take turns
// with the blocks of other ranks; where the transport copies, one more holds what arrives.
inline constexpr std::int32_t kHomeGradient = 0, kFirstSum = 1, kSums = 2, kArrival = 3;

struct Operation {
  Kind kind;
  bool gradient = false;  // of a send, receive, release: the block's dK and dV instead of its K and V
  std::int32_t peer = -1;
  std::int32_t block = -1;  // rank that owns the K/V
  std::int32_t buffer =
      -1;  // receive buffer that holds or takes the block; -1 = the caller's own tensors, or lent
  // backward: the gradient buffer that an attend, accumulate or copy adds to, or that is sent or finalized;
  // of a finalize also -1: nobody contributes
  std::int32_t target = -1;
  std::int32_t source = -1;  // of an accumulate, copy or gradient release: the receive it belongs to
  std::uint64_t bytes = 0;   // of a transfer or a pack
  std::int32_t step = 0;     // of an attend: 0 for the own block, then in order; otherwise the step it serves
  std::int32_t after_first = 0,
               after_count = 0;  // operations that must have ended before: after[after_first...]
};

struct Schedule {
  std::int32_t rank = 0, world = 1;
  std::int32_t receive_buffers = 0;  // of K/V that it uses
  bool lends = false;
  bool backward = false;
  std::vector<Operation> operations;  // an operation comes after all that it waits for
  std::vector<std::int32_t> after;

  std::span<const std::int32_t> after_of(const Operation& operation) const {
    return {after.data() + operation.after_first, static_cast<std::size_t>(operation.after_count)};
  }
};

// Bytes of rank's K/V block on the wire: [batch, kv_heads, local_keys, head_dim_qk] then the same of V, in
// the input dtype.
std::uint64_t block_bytes(const Problem& problem, std::int64_t local_keys);
// Of its dK and dV, in fp32: the same order.
std::uint64_t gradient_bytes(const Problem& problem, std::int64_t local_keys);

// Ring pass-KV, one way. With distance d = (r - j) mod P of rank r from owner j: block j comes to every
// rank r that sees any of it, once. It comes from rank r - 1 if that rank has it (owner or needs it too),
// otherwise from the owner itself; so nobody carries a block that it does not need, every hop is as early
// as can be, and two receive buffers suffice: see ring.cpp for the proof. Attends are in order of distance.
// Reserve sizes `out` for any call; generate then allocates nothing.
// Backward: K/V goes the same way. A rank adds its part of dK, dV to the sum that comes from rank r - 1 if
// that one contributes too, and hands it to rank r + 1 if that one does, otherwise home to the owner, who
// adds what comes home to its own part in order of distance: see ring_backward.cpp.
// Reserve sizes `out` for any call, forward and (if wanted) backward; generate then allocates nothing.
void reserve_ring(std::int32_t world, bool backward, Schedule& out);
void generate_ring(const Problem& problem, const Layout& layout, std::int32_t rank, bool lends, bool backward,
                   Schedule& out);

// Proves a whole set of schedules (index = rank) against a layout: shards cover both axes exactly once;
// every visible pair is attended exactly once; sends match receives in peer, block and bytes; a block is
// held when it is used; no buffer is overwritten, and nothing lent returned, while it may still be read;
// operations only wait for earlier ones and the set runs to its end with rendezvous sends (no deadlock);
// bytes and buffers are as promised. OK or INTERNAL with the first violation in words.
Status verify(const Problem& problem, const Call& call, const Layout& layout,
              std::span<const Schedule> schedules);

}  // namespace ringattn::schedule
