// The phases of an execution: agreement, run, end.
#include "ring/execution.h"

#include <span>

#include "base/clock.h"
#include "base/digest.h"

namespace ringattn::ring {
namespace {

constexpr std::size_t kMostEvents = std::size_t{1} << 20;

// Room for what one execution does where every shard has one segment; the rest is counted as dropped.
std::size_t events_for(const plan::Plan& plan, std::size_t operations) {
  const __int128 tiles = static_cast<__int128>(plan.most_tiles) * plan.most_positions;
  const __int128 megabytes = schedule::gradient_bytes(plan.problem, plan.most_capacity_k) >> 20;
  const __int128 moves = (megabytes + 2) * (2 * plan.world + 2);
  const __int128 wanted = tiles + moves + 4 * static_cast<__int128>(operations) + 64;
  return wanted < static_cast<__int128>(kMostEvents) ? static_cast<std::size_t>(wanted) : kMostEvents;
}

}  // namespace

Execution::Execution(const plan::Plan& plan, comm::Comm& comm, std::uint64_t plan_number)
    : plan_(plan), comm_(comm), plan_number_(plan_number), digests_(comm) {
  const std::size_t world = static_cast<std::size_t>(plan.world);
  call_.sequences.reserve(static_cast<std::size_t>(plan.problem.max_sequences));
  layout_.reserve(plan.problem, plan.world);
  schedule::reserve_ring(plan.world, plan.problem.backward(), schedule_);
  const std::size_t operations = schedule_.operations.capacity();
  waiting_.resize(operations);
  successor_first_.resize(operations + 1);
  successors_.resize(schedule_.after.capacity());
  ended_operations_.reserve(operations);
  operation_position_.resize(operations);
  transfers_.resize(operations);
  posted_ns_.resize(operations);
  positions_.reserve(static_cast<std::size_t>(plan.most_positions));
  blocks_.resize(world);
  lent_views_.resize(world);
  receive_operation_.resize(world);
  queue_.reserve(plan.most_tiles, static_cast<std::int32_t>(plan.most_positions));
  moves_.reserve(static_cast<std::int32_t>(operations));
  progress_.resize(static_cast<std::size_t>(plan.most_tiles));
  workers_.resize(static_cast<std::size_t>(plan.workers));
  if ((plan.problem.flags & RINGATTN_PLAN_TRACE) != 0) trace_.reserve(events_for(plan, operations));
}

Status Execution::prepare(bool backward) {
  backward_ = backward;
  const std::uint64_t value = digest();
  if (prepared_ && value == prepared_digest_) return {};
  prepared_ = false;
  RINGATTN_TRY(layout_.build(plan_.problem, plan_.world, call_));
  schedule::generate_ring(plan_.problem, layout_, plan_.rank, plan_.lends, backward, schedule_);
  link_operations();
  prepared_digest_ = value;
  prepared_ = true;
  return {};
}

std::uint64_t Execution::digest() const {
  Digest digest;
  digest.add(std::uint64_t{backward_ ? 2u : 1u})
      .add(plan_number_)
      .add(static_cast<std::uint64_t>(call_.rows));
  for (const Sequence& s : call_.sequences) {
    const std::int64_t words[] = {s.q_length, s.k_length, s.offset};
    digest.add(words);
  }
  return digest.value();
}

plan::Record Execution::record(const Status& refusal) const {
  plan::Record record;
  record.verdict = refusal.code();
  record.reason = refusal.message();
  const auto add = [&](const std::string& name, std::int64_t value) {
    record.fields.emplace_back(name, std::to_string(value));
  };
  record.fields.emplace_back("collective call", backward_ ? "backward" : "forward");
  add("plan (by order of creation)", static_cast<std::int64_t>(plan_number_));
  add("call.sequences", static_cast<std::int64_t>(call_.sequences.size()));
  std::int64_t end_q = 0, end_k = 0;
  for (std::size_t s = 0; s < call_.sequences.size(); ++s) {
    const Sequence& sequence = call_.sequences[s];
    end_q += sequence.q_length;
    end_k += sequence.k_length;
    add("call.cu_q[" + std::to_string(s + 1) + "]", end_q);
    add("call.cu_k[" + std::to_string(s + 1) + "]", end_k);
    add("call.query_offset (sequence " + std::to_string(s) + ")", sequence.offset);
  }
  return record;
}

void Execution::start(const Tensors& tensors, std::byte* workspace, Status refusal, bool agreed) {
  tensors_ = tensors;
  workspace_ = workspace;
  refusal_ = std::move(refusal);
  result_ = Status();
  why_ = Status();
  records_.reset();
  sequence_ = comm_.sequence();
  times_ = ringattn_times{};
  start_ns_ = now_ns();
  idle_since_ns_ = 0;
  trace_.clear();
  for (Worker& worker : workers_) {
    worker.packed_tile = -1;
    worker.compute_ns = worker.tiles = 0;
  }
  const bool runs = refusal_.ok();
  const std::int64_t rows = runs ? tensors_.o.shape[1] : 0;
  tiles_per_row_ = plan_.tiles_per_row(rows, backward_);
  const std::int64_t tiles = plan_.problem.batch * plan_.problem.kv_heads * tiles_per_row_;
  for (std::int64_t tile = 0; tile < tiles; ++tile) progress_[static_cast<std::size_t>(tile)] = Progress();
  queue_.start(tiles, runs ? static_cast<std::int32_t>(positions_.size()) : 0, plan_.lends || backward_,
               backward_ ? tiles_per_row_ : 0);
  moves_.start();
  key_gradients_written_ = false;
  const std::int64_t keys = backward_ ? std::min(plan_.most_capacity_k, plan_.kernel->backward.keys_per_task)
                                      : plan_.most_capacity_k;
  task_flops_ = 2.0 * static_cast<double>(plan_.lanes(backward_)) * static_cast<double>(keys) *
                static_cast<double>(plan_.problem.head_dim_qk + plan_.problem.head_dim_v);
  // Before any tile can be drawn: those of the own block may run while the ranks still agree.
  own_view_ = BlockView{tensors_.k.data,
                        tensors_.v.data,
                        {tensors_.k.stride[0], tensors_.k.stride[1], tensors_.k.stride[2]},
                        {tensors_.v.stride[0], tensors_.v.stride[1], tensors_.v.stride[2]}};
  blocks_[static_cast<std::size_t>(plan_.rank)] = own_view_;
  phase_.store(Phase::digests, std::memory_order_release);
  // A refusal has a digest of its own, so that everybody comes to the records.
  const std::uint64_t own =
      refusal_.ok() ? digest() : Digest().add(static_cast<std::uint64_t>(comm_.rank())).value() ^ digest();
  if (agreed || plan_.world == 1) {
    if (refusal_.ok()) {
      begin_running();
    } else {
      stop(refusal_);
    }
    return;
  }
  digests_.start(sequence_, own);
}

void Execution::step_agreement() {
  if (phase_.load(std::memory_order_relaxed) == Phase::digests) {
    if (!digests_.step()) return;
    if (comm_.dead() || comm_.canceled_here(sequence_)) return;  // check_alive knows the reason
    if (digests_.equal()) {
      begin_running();
      return;
    }
    records_ = std::make_unique<comm::RecordExchange>(comm_, sequence_, plan::encode(record(refusal_)));
    phase_.store(Phase::records, std::memory_order_release);
  }
  if (!records_->step()) return;
  std::vector<plan::Record> records(static_cast<std::size_t>(plan_.world));
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    if (!plan::decode(records_->records()[rank], records[rank])) {
      stop({RINGATTN_ERR_TRANSPORT, "rank " + std::to_string(rank) + " sent a record that cannot be read"});
      return;
    }
  }
  Status verdict = plan::judge(records, plan_.rank);
  if (verdict.ok()) verdict = {RINGATTN_ERR_INTERNAL, "digests differ but records do not"};
  stop(std::move(verdict));
}

void Execution::begin_running() {
  agreed_ns_ = now_ns();
  times_.agree_ns = agreed_ns_ - start_ns_;
  trace_.add(RINGATTN_EVENT_AGREE, -1, -1, -1, 0, start_ns_, agreed_ns_, 0);
  phase_.store(Phase::running, std::memory_order_release);
  const std::int32_t count = static_cast<std::int32_t>(schedule_.operations.size());
  operations_left_ = count;
  // Finalize is a position of each tile's own chain: open from now on, as outputs may be written.
  queue_.open(static_cast<std::int32_t>(positions_.size()) - 1);
  attends_left_ = attends_;
  tell_progress();
  for (std::int32_t index = 0; index < count; ++index) {
    waiting_[static_cast<std::size_t>(index)] =
        schedule_.operations[static_cast<std::size_t>(index)].after_count;
  }
  for (std::int32_t index = 0; index < count; ++index) {
    if (schedule_.operations[static_cast<std::size_t>(index)].after_count == 0) begin(index);
  }
}

void Execution::allow_own_tiles() {
  if (!agreeing() || !refusal_.ok() || positions_.size() < 2) return;
  const schedule::Operation& first = schedule_.operations[static_cast<std::size_t>(positions_[0].operation)];
  if (first.block != plan_.rank || first.after_count != 0) return;
  std::int32_t position = 0;
  do queue_.open(position);
  while (!positions_[static_cast<std::size_t>(position++)].last);
}

void Execution::poll(bool between_tiles) {
  const std::uint64_t start = between_tiles ? now_ns() : 0;
  const Phase phase = phase_.load(std::memory_order_relaxed);
  if (phase == Phase::idle || phase == Phase::ended) return;
  comm_.poll();
  check_alive();
  if (agreeing()) step_agreement();
  if (phase_.load(std::memory_order_relaxed) == Phase::running) {
    drain_operations();
    if (between_tiles) times_.poll_ns += now_ns() - start;
    if (operations_left_ == 0 && comm_.pending() == 0) end(Status());
  }
  if (phase_.load(std::memory_order_relaxed) == Phase::stopping) end_if_quiet();
  const bool computing = ready() > 0 || queue_.running() > 0 || moves_.running() > 0;
  account_idle(!ended() && !computing);
  if (!ended() && computing) comm_.tell(-1, false);
}

void Execution::check_alive(bool at_once) {
  if (phase_.load(std::memory_order_relaxed) == Phase::stopping) return;
  if (comm_.dead()) {
    Status dead = comm_.end_dead();
    dead = {dead.code(), dead.message() + "; " + place()};
    stop(refusal_.ok() ? std::move(dead) : refusal_);  // who refuses says why, whoever hears of it
    return;
  }
  std::int32_t rank = 0;
  if (!comm_.newly_canceled(sequence_, &rank, at_once)) return;
  // What has been computed whole stays whole: only memory that others still read is waited for.
  if (phase_.load(std::memory_order_relaxed) == Phase::running && refusal_.ok() && whole()) {
    why_ = Status();
  } else if (!refusal_.ok()) {
    why_ = refusal_;
  } else {
    why_ = {RINGATTN_ERR_CANCELED, "canceled by rank " + std::to_string(rank)};
  }
  comm_.cancel(sequence_);
  queue_.close();
  moves_.close();
  comm_.withdraw(sequence_);
  phase_.store(Phase::stopping, std::memory_order_release);
}

void Execution::stop(Status why) {
  why_ = std::move(why);
  queue_.close();
  moves_.close();
  phase_.store(Phase::stopping, std::memory_order_release);
}

void Execution::end_if_quiet() {
  if (queue_.running() != 0 || moves_.running() != 0) return;
  // First whatever has come, then giving it back: nothing of this call may be left when it ends.
  comm_.poll();
  release_loans();
  if (comm_.pending() == 0) end(why_);
}

void Execution::end(Status result) {
  account_idle(false);
  result_ = std::move(result);
  const std::uint64_t now = now_ns();
  times_.total_ns = now - start_ns_;
  for (const Worker& worker : workers_) {
    times_.compute_ns += worker.compute_ns;
    times_.tiles += worker.tiles;
    if (worker.tiles > 0) ++times_.workers;
  }
  {
    const std::lock_guard lock(last_times_mutex_);
    last_times_ = times_;
  }
  comm_.leave_call();
  if (range_of(result_.code()) == StatusRange::comm && comm_.log().wants(RINGATTN_LOG_ERROR)) {
    comm_.log().write(RINGATTN_LOG_ERROR,
                      "rank " + std::to_string(plan_.rank) + (backward_ ? ": backward" : ": forward") +
                          " ended with " + ringattn_status_name(result_.code()) + ": " + result_.message());
  }
  phase_.store(Phase::ended, std::memory_order_release);
}

void Execution::account_idle(bool idle_now) {
  if (idle_now) {
    if (idle_since_ns_ == 0) idle_since_ns_ = now_ns();
    return;
  }
  if (idle_since_ns_ == 0) return;
  const std::uint64_t now = now_ns();
  times_.exposed_wait_ns += now - idle_since_ns_;
  trace_.add(RINGATTN_EVENT_WAIT, -1, -1, -1, 0, idle_since_ns_, now, 0);
  idle_since_ns_ = 0;
}

void Execution::idle() {
  if (ended() || !under_way()) return;
  check_alive(true);
  const Phase phase = phase_.load(std::memory_order_relaxed);
  if (phase == Phase::stopping) end_if_quiet();
  if (ended()) return;
  const std::int32_t peer = waits_for();
  if (peer >= 0 && phase != Phase::stopping && abandoned_by(peer)) return;
  comm_.tell(peer, true);
  if (peer >= 0) {
    comm_.watch(peer);
  } else {
    comm_.stop_watching();
  }
}

bool Execution::abandoned_by(std::int32_t peer) {
  // A beat tells the last 65 calls a rank may have canceled. Who has canceled one beyond that while this
  // rank, after one more poll, still waits for it in this one, has most likely canceled this one too. That it is in a
  // later call alone says nothing: what it sent before may still be on its way.
  if (!comm_.canceled_long_after(peer, sequence_)) return false;
  poll();
  const Phase phase = phase_.load(std::memory_order_relaxed);
  if (phase == Phase::ended || phase == Phase::stopping || waits_for() != peer) return true;
  comm_.withdraw(sequence_);
  stop({RINGATTN_ERR_CANCELED, "canceled by rank " + std::to_string(peer)});
  return true;
}

// Where this rank stands, for the message of what has ended the ring.
std::string Execution::place() const {
  const std::string rank = "rank " + std::to_string(plan_.rank);
  const std::string call = backward_ ? "backward" : "forward";
  if (agreeing()) return rank + " was agreeing on " + call;
  std::int32_t ended = attends_ - attends_left_, step = 0, last = 0;
  for (const schedule::Operation& operation : schedule_.operations) {
    if (operation.kind != schedule::Kind::attend) continue;
    last = operation.step;
    if (ended-- >= 0) step = last;
  }
  return rank + " was in step " + std::to_string(step + 1) + " of " + std::to_string(last + 1) + " of " +
         call;
}

ringattn_times Execution::times() const {
  const std::lock_guard lock(last_times_mutex_);
  return last_times_;
}

std::uint64_t Execution::bytes_held() const {
  const auto bytes = [](const auto& list) {
    return static_cast<std::uint64_t>(std::span(list.data(), list.capacity()).size_bytes());
  };
  return layout_.bytes() + queue_.bytes() + moves_.bytes() + trace_.bytes() + bytes(call_.sequences) +
         bytes(schedule_.operations) + bytes(schedule_.after) + bytes(waiting_) + bytes(successor_first_) +
         bytes(successors_) + bytes(ended_operations_) + bytes(operation_position_) + bytes(transfers_) +
         bytes(posted_ns_) + bytes(positions_) + bytes(blocks_) + bytes(lent_views_) +
         bytes(receive_operation_) + bytes(progress_) + bytes(workers_);
}

}  // namespace ringattn::ring
