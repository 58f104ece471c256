// All ranks of a ring in this process: plans, shards of the inputs, one execution, the gathered answer.
#pragma once
#include <cstddef>
#include <functional>
#include <vector>

#include "handles.h"
#include "rank_trace.h"
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

 private:
  ringattn_dtype dtype_ = RINGATTN_DTYPE_F32;
  std::int64_t shape_[4] = {0, 0, 0, 0};
  std::vector<std::byte> memory_;
};

// Views of dense memory, and of an lse tensor [batch, head, seq, 1] as [batch, seq, head, 1].
ringattn_tensor dense_view(ringattn_dtype dtype, const std::int64_t (&shape)[4], const void* data);
ringattn_tensor token_view(const ringattn_tensor& lse);

// Who drives the ranks: the calling thread all of them, which is fastest in one process; or a thread for each rank, as
// if each were a process of its own, so that the times and events of a rank are those of a real ring.
enum class Drive { together, thread_per_rank };

class RingRun {
 public:
  // Throws BadInput where the library refuses the problem.
  RingRun(const support::ProblemLine& problem, bool trace);

  // Global tensors [batch, seq, head, dim] to the ranks, and the answer back; lse is [batch, head, seq, 1].
  void scatter(const ringattn_tensor& q, const ringattn_tensor& k, const ringattn_tensor& v);
  void gather(const ringattn_tensor& o, const ringattn_tensor& lse) const;

  // One forward of all ranks, as asynchronous requests. `meanwhile` (may be empty) is called about ten times a second
  // on the calling thread. Returns the seconds that it took.
  double forward(Drive drive, const std::function<void()>& meanwhile);

  ringattn_times times(int rank) const;
  std::vector<RankTrace> traces() const;

 private:
  struct Shards {
    Buffer q, k, v, o, lse;
  };
  // One execution's arguments, and the views that they point to.
  struct Arguments {
    std::vector<ringattn_tensor> views;
    std::vector<ringattn_forward_args> args;
    std::vector<ringattn_plan*> plans;
  };
  void allocate(int rank);
  Arguments arguments() const;
  void forward_together(const Arguments& arguments, const std::function<void()>& meanwhile);
  void forward_on_threads(const Arguments& arguments, const std::function<void()>& meanwhile);

  support::ProblemLine problem_;
  support::ProblemPlan structs_;
  Context context_;
  std::vector<Comm> comms_;
  std::vector<Plan> plans_;
  std::vector<Shards> shards_;
};

}  // namespace ringattn::tool
