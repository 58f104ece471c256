// One rank's run of a plan: agrees with its peers, then walks the schedule. Posts every transfer that is
// ready, hands out ready tiles, folds what has ended back into the schedule. Knows no topology. All memory
// is taken in the constructor.
//
// poll, idle and stop are for one thread at a time (the one that advances the request, or a worker on its
// behalf); draw and run for any worker.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/call.h"
#include "base/memory.h"
#include "base/tensor.h"
#include "comm/comm.h"
#include "comm/exchange.h"
#include "plan/plan.h"
#include "plan/record.h"
#include "ring/move_queue.h"
#include "ring/tile_queue.h"
#include "trace/trace.h"

namespace ringattn::ring {

// What one call works on. Forward: q, k, v in, o and (if wanted) lse out. Backward: all of these and d_o and
// (if given) d_lse in, d_q, d_k, d_v out.
struct Tensors {
  TensorView q, k, v, o, lse, d_o, d_lse, d_q, d_k, d_v;
  bool has_lse = false, has_d_lse = false;
  ringattn_progress_fn progress = nullptr;
  void* progress_user = nullptr;
};

// Where a block's K and V lie. A lending transport lends this, and with it the tensors behind it.
struct BlockView {
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  std::int64_t k_stride[3] = {0, 0, 0};  // batch, seq, head; in elements
  std::int64_t v_stride[3] = {0, 0, 0};
};

class Execution {
 public:
  Execution(const plan::Plan& plan, comm::Comm& comm, std::uint64_t plan_number);

  // Cuts the problem for the values of a call. Nothing has been sent yet.
  Status prepare(bool backward);
  Call& call() { return call_; }  // filled in by the caller before prepare
  const schedule::Layout& layout() const { return layout_; }

  // From here on the execution is under way until ended(). `refusal` not OK: this rank refuses and only
  // takes part in the agreement. agreed = the caller has compared all ranks in memory already.
  void start(const Tensors& tensors, std::byte* workspace, Status refusal, bool agreed);
  std::uint64_t digest() const;  // of the operation and the values of the call
  plan::Record record(const Status& refusal) const;

  void poll(bool between_tiles = false);
  void idle();  // nothing to compute: tell the peers, and watch the one that is waited for
  void allow_own_tiles();
  void stop(Status why);

  bool draw(Task& task) { return moves_.draw(task) || queue_.draw(task); }
  // Does a part of the task. True: there is more of it (`task` may have moved on to its next position).
  bool run(Task& task, std::int32_t worker);
  void put_back(const Task& task);

  bool ended() const { return phase_.load(std::memory_order_acquire) == Phase::ended; }
  bool agreeing() const {
    const Phase phase = phase_.load(std::memory_order_acquire);
    return phase == Phase::digests || phase == Phase::records;
  }
  std::int64_t ready() const { return queue_.ready() + moves_.ready(); }
  std::int64_t width() const { return queue_.width() + moves_.ready(); }  // workers that may find something
  double task_flops() const { return task_flops_; }                       // of an average tile and block

  const Status& result() const { return result_; }
  comm::Comm& comm() { return comm_; }
  const plan::Plan& plan() const { return plan_; }
  ringattn_times times() const;  // of the last that has ended; any thread
  bool under_way() const {
    const Phase phase = phase_.load(std::memory_order_acquire);
    return phase != Phase::idle && phase != Phase::ended;
  }
  const trace::Trace& trace() const { return trace_; }
  std::uint64_t bytes_held() const;

  Execution* next_part = nullptr;  // of the same request

 private:
  enum class Phase { idle, digests, records, running, stopping, ended };
  struct alignas(kAlignment) Worker {
    std::int64_t packed_tile = -1;  // whose queries its scratch holds
    std::uint64_t compute_ns = 0, tiles = 0;
    std::int64_t lo[kernels::kMaxBackwardLanes], hi[kernels::kMaxBackwardLanes];
    std::int64_t row_lo[kernels::kMaxBackwardLanes], row_hi[kernels::kMaxBackwardLanes];
  };
  struct TilePlace {
    std::int64_t batch, kv_head, first;
    int lanes;
    int real_lanes;  // the rest is padding
  };
  struct Progress {                             // of a tile
    std::int64_t segment = 0, key = 0;          // forward: inside its position
    std::int64_t seen_begin = 0, seen_end = 0;  // backward: keys of `block` that the tile sees lie in here
    std::int32_t block = -1;
    bool begun = false;
  };
  // What a tile does at one position: forward, the whole block of an attend; backward, a range of its keys.
  struct Position {
    std::int32_t operation;
    std::int64_t first_key;
    bool last;  // of its operation
  };

  // execution.cpp: phases
  void check_alive(bool at_once = false);
  bool abandoned_by(std::int32_t peer);
  std::string place() const;
  void step_agreement();
  void begin_running();
  void end_if_quiet();
  void end(Status result);
  void account_idle(bool idle_now);

  // operations.cpp: the schedule
  void link_operations();
  void drain_operations();
  void begin(std::int32_t operation);
  void complete(std::int32_t operation);
  void begin_transfer(std::int32_t index);
  void transfer_ended(std::int32_t index);
  void open_moves(std::int32_t index);
  void release_loans();
  bool whole();  // every output has been written
  void tell_progress();
  BlockView wire_view(const std::byte* data, std::int64_t rows) const;
  std::int32_t waits_for() const;
  static void on_transfer_done(comm::Transfer& transfer);

  // moves.cpp: memory that is moved, in parts
  std::int64_t parts_of(const schedule::Operation& operation) const;
  // Each does one part and returns the bytes it has written.
  void run_move(const Task& task, std::int32_t worker);
  std::int64_t pack_rows(std::int64_t first, std::int64_t last) const;
  std::int64_t write_key_gradients(bool any, std::int64_t first, std::int64_t last) const;
  std::int64_t add_arrived(const schedule::Operation& operation, std::int64_t part) const;

  // gradient_tiles.cpp: the work of backward
  void run_gradient(const Task& task, Worker& worker, std::byte* scratch);
  void attend_gradient(const Task& task, const TilePlace& place, std::int64_t begin, std::int64_t end,
                       Worker& worker, std::byte* scratch);
  void look_at_block(const TilePlace& place, std::int32_t block, Worker& worker, Progress& progress) const;
  kernels::GradientTile gradient_tile(const TilePlace& place) const;
  kernels::KeyGradients key_gradients(std::int32_t target, std::int32_t block, std::int64_t batch,
                                      std::int64_t kv_head) const;
  void finalize_gradient(const Task& task);

  // tiles.cpp: the work of forward
  const plan::Workspace& layout_of_workspace() const { return backward_ ? plan_.backward : plan_.forward; }
  const schedule::Operation& operation_of(const Task& task) const;
  void see_range(const TilePlace& place, Worker& worker, kernels::KeyRange& range) const;
  void point_to_block(const TilePlace& place, std::int32_t block, kernels::KeyRange& range) const;
  TilePlace place_of(std::int64_t tile) const;
  bool run_attend(Task& task, Worker& worker, std::byte* scratch);
  bool intervals(const TilePlace& place, const schedule::Shard& keys, std::int64_t segment, Worker& worker,
                 kernels::KeyRange& range) const;
  void run_finalize(const Task& task);
  std::byte* state_of(std::int64_t tile) const;

  const plan::Plan& plan_;
  comm::Comm& comm_;
  const std::uint64_t plan_number_;
  std::atomic<Phase> phase_{Phase::idle};

  Call call_;
  schedule::Layout layout_;
  schedule::Schedule schedule_;
  std::uint64_t prepared_digest_ = 0;
  bool backward_ = false;
  bool prepared_ = false;

  Tensors tensors_;
  std::byte* workspace_ = nullptr;
  Status refusal_, result_, why_;
  std::uint64_t sequence_ = 0;
  comm::DigestExchange digests_;
  std::unique_ptr<comm::RecordExchange> records_;

  // By operation.
  std::vector<std::int32_t> waiting_, successor_first_, successors_, ended_operations_, operation_position_;
  std::vector<comm::Transfer> transfers_;
  std::vector<std::uint64_t> posted_ns_;
  std::int32_t operations_left_ = 0;
  std::int32_t attends_ = 0, attends_left_ = 0;
  bool key_gradients_written_ = false;
  std::vector<Position> positions_;
  // By block.
  std::vector<BlockView> blocks_;
  std::vector<const BlockView*> lent_views_;
  std::vector<std::int32_t> receive_operation_;  // of K/V; -1 = not received
  BlockView own_view_;

  TileQueue queue_;
  MoveQueue moves_;
  std::vector<Progress> progress_;  // by tile
  std::vector<Worker> workers_;
  std::int64_t tiles_per_row_ = 0;
  double task_flops_ = 0;

  trace::Trace trace_;
  ringattn_times times_{};
  mutable std::mutex last_times_mutex_;
  ringattn_times last_times_{};
  std::uint64_t start_ns_ = 0, agreed_ns_ = 0, idle_since_ns_ = 0;
};

}  // namespace ringattn::ring
