// The ranks of a ring that this process drives: plans, shards of the inputs, executions, the answer, which is gathered
// from all processes.
#pragma once
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "handles.h"
#include "rank_trace.h"
#include "ring.h"
#include "ringattn.h"
#include "tests/support/problem_line.h"
#include "tests/support/problem_plan.h"

namespace ringattn::tool {

// A dense tensor that owns its memory.
class Buffer {
 public:
  Buffer() = default;
  Buffer(ringattn_dtype dtype, std::int64_t batch, std::int64_t axis1, std::int64_t axis2,
         std::int64_t axis3);
  // Outputs are written through the view, so it is not const in spirit.
  ringattn_tensor view() const;
  const std::vector<std::byte>& bytes() const { return memory_; }
  // Its shape with another length of one axis, over other memory, and the bytes of that.
  ringattn_tensor view_like(int axis, std::int64_t length, const void* data) const;
  std::size_t bytes_like(int axis, std::int64_t length) const;

 private:
  ringattn_dtype dtype_ = RINGATTN_DTYPE_F32;
  std::int64_t shape_[4] = {0, 0, 0, 0};
  std::vector<std::byte> memory_;
};

// Views of dense memory, and of an lse tensor [batch, head, seq, 1] as [batch, seq, head, 1].
ringattn_tensor dense_view(ringattn_dtype dtype, const std::int64_t (&shape)[4], const void* data);
ringattn_tensor token_view(const ringattn_tensor& lse);

// Who drives the ranks: the calling thread all of them, which is fastest in one process; or a thread for each
// rank, as if each were a process of its own, so that the times and events of a rank are those of a real
// ring.
enum class Drive { together, thread_per_rank };

class RingRun {
 public:
  // `ring` has the problem's ranks and outlives this. Throws BadInput where the library refuses the problem.
  RingRun(const support::ProblemLine& problem, bool trace, const Ring& ring);

  // Global tensors [batch, seq, head, dim] to the ranks, and the answer back; lse is [batch, head, seq, 1]. To gather is
  // collective; the answer is written where the ring reports, and not looked at elsewhere.
  void scatter(const ringattn_tensor& q, const ringattn_tensor& k, const ringattn_tensor& v);
  void gather(const ringattn_tensor& o, const ringattn_tensor& lse) const;

  // With pass=backward: what flows into o and (d_lse not NULL) into lse, and the gradients back.
  void scatter_gradients(const ringattn_tensor& d_o, const ringattn_tensor* d_lse);
  void gather_gradients(const ringattn_tensor& d_q, const ringattn_tensor& d_k,
                        const ringattn_tensor& d_v) const;

  // One forward (backward, after a forward) of the ranks driven here, as asynchronous requests. `meanwhile` (may be
  // empty) is called about ten times a second on the calling thread. Returns the seconds that it took.
  double forward(Drive drive, const std::function<void()>& meanwhile);
  double backward(Drive drive, const std::function<void()>& meanwhile);

  // The part of the blocks of the execution under way that these ranks have computed with, 0..1. Any thread.
  double part_done() const;

  // What these ranks did in the last execution.
  std::vector<RankTrace> traces() const;

 private:
  struct Shards {
    Buffer q, k, v, o, lse;
    Buffer d_o, d_lse, d_q, d_k, d_v;  // with pass=backward
  };
  // Views of one rank's shards; argument structs point to them.
  struct Views {
    explicit Views(const Shards& shards);
    ringattn_tensor q, k, v, o, lse, d_o, d_lse, d_q, d_k, d_v;
  };
  static void hear_progress(void* user, std::int32_t rank, std::int32_t done, std::int32_t total);
  // The two forms of one execution's call.
  using StartAll = std::function<ringattn_status(ringattn_request**)>;
  using StartOne = std::function<ringattn_status(std::size_t place, ringattn_request**)>;

  void allocate(std::size_t place);
  std::vector<Views> views() const;
  std::vector<ringattn_plan*> plans() const;
  int here() const { return static_cast<int>(plans_.size()); }  // ranks driven here
  // Rows of any rank's shard: those of its longest row of the batch.
  std::int64_t local_rows(int axis, int rank) const;
  // Between the ranks' shards and a global tensor. An lse keeps its tokens on another axis than the others.
  enum class Form { tokens, lse };
  void share(int axis, const ringattn_tensor& global, Buffer Shards::*local, Form form = Form::tokens);
  void collect(int axis, const ringattn_tensor& global, Buffer Shards::*local,
               Form form = Form::tokens) const;
  void collect_from_processes(int axis, const ringattn_tensor& global, const Buffer& own, Form form) const;
  double execute(Drive drive, const StartAll& all, const StartOne& one,
                 const std::function<void()>& meanwhile);
  void run_together(const StartAll& start, const std::function<void()>& meanwhile);
  void run_on_threads(const StartOne& start, const std::function<void()>& meanwhile);

  support::ProblemLine problem_;
  support::ProblemPlan structs_;
  const Ring& ring_;
  // One a rank driven here, in the order of ring_.ranks; the number of one is its place.
  std::vector<Plan> plans_;
  std::vector<Shards> shards_;
  std::unique_ptr<std::atomic<double>[]> done_;  // [rank]
  bool with_d_lse_ = false;
};

}  // namespace ringattn::tool
