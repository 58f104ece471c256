// The schedule's operations: which one may begin, and what ending it sets free.
#include <algorithm>

#include "base/clock.h"
#include "ring/execution.h"

namespace ringattn::ring {

using schedule::Kind;
using schedule::Operation;

void Execution::link_operations() {
  // Turns "after" lists round, by counting: successors of i are successors_[first[i] .. first[i + 1]).
  const std::vector<Operation>& operations = schedule_.operations;
  const std::size_t count = operations.size();
  std::fill_n(successor_first_.begin(), count + 1, 0);
  for (const std::int32_t before : schedule_.after) ++successor_first_[static_cast<std::size_t>(before) + 1];
  for (std::size_t i = 0; i < count; ++i) successor_first_[i + 1] += successor_first_[i];
  std::copy_n(successor_first_.begin(), count, waiting_.begin());  // borrowed as the place to write next
  for (std::size_t i = 0; i < count; ++i) {
    for (const std::int32_t before : schedule_.after_of(operations[i])) {
      std::int32_t& place = waiting_[static_cast<std::size_t>(before)];
      successors_[static_cast<std::size_t>(place++)] = static_cast<std::int32_t>(i);
    }
  }
  positions_.clear();
  attends_ = 0;
  std::fill(receive_operation_.begin(), receive_operation_.end(), -1);
  std::int32_t finalize = -1;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t index = static_cast<std::int32_t>(i);
    transfers_[i].pending = false;
    transfers_[i].loan = 0;
    if (operations[i].kind == Kind::attend) {
      ++attends_;
      operation_position_[i] = static_cast<std::int32_t>(positions_.size());
      const std::int64_t keys = layout_.local_keys(operations[i].block);
      const std::int64_t part = backward_ ? plan_.kernel->backward.keys_per_task : keys;
      for (std::int64_t key = 0; key < keys; key += part)
        positions_.push_back({index, key, key + part >= keys});
    }
    if (operations[i].kind == Kind::finalize && !operations[i].gradient) finalize = index;
    if (operations[i].kind == Kind::receive && !operations[i].gradient)
      receive_operation_[static_cast<std::size_t>(operations[i].block)] = index;
  }
  positions_.push_back({finalize, 0, true});
}

void Execution::begin(std::int32_t index) {
  const Operation& operation = schedule_.operations[static_cast<std::size_t>(index)];
  switch (operation.kind) {
    case Kind::receive:
    case Kind::send:
      begin_transfer(index);
      return;
    case Kind::attend:
      if (queue_.tiles() == 0) {
        complete(index);
        return;
      }
      for (std::int32_t position = operation_position_[static_cast<std::size_t>(index)];; ++position) {
        queue_.open(position);
        if (positions_[static_cast<std::size_t>(position)].last) return;
      }
    case Kind::finalize:
      if (operation.gradient) {
        open_moves(index);
      } else if (queue_.tiles() == 0) {
        complete(index);
      }
      return;
    case Kind::pack:
    case Kind::accumulate:
    case Kind::copy:
      open_moves(index);
      return;
    case Kind::release: {
      const std::int32_t receive = operation.gradient
                                       ? operation.source
                                       : receive_operation_[static_cast<std::size_t>(operation.block)];
      comm_.give_back(transfers_[static_cast<std::size_t>(receive)]);
      complete(index);
      return;
    }
    case Kind::merge:
      stop({RINGATTN_ERR_INTERNAL,
            std::string("the executor met an operation it does not know: ") + name_of(operation.kind)});
      return;
  }
}

void Execution::complete(std::int32_t index) {
  --operations_left_;
  const std::size_t i = static_cast<std::size_t>(index);
  if (schedule_.operations[i].kind == Kind::attend) {
    --attends_left_;
    tell_progress();
  }
  if (schedule_.operations[i].kind == Kind::finalize && schedule_.operations[i].gradient)
    key_gradients_written_ = true;
  for (std::int32_t s = successor_first_[i]; s < successor_first_[i + 1]; ++s) {
    const std::int32_t next = successors_[static_cast<std::size_t>(s)];
    if (--waiting_[static_cast<std::size_t>(next)] == 0) begin(next);
  }
}

void Execution::drain_operations() {
  std::int32_t position = 0;
  while (queue_.take_finished(&position)) {
    const Position& passed = positions_[static_cast<std::size_t>(position)];
    if (passed.last) complete(passed.operation);
  }
  std::int32_t moved = 0;
  while (moves_.take_finished(&moved)) complete(moved);
  while (!ended_operations_.empty()) {
    const std::int32_t index = ended_operations_.back();
    ended_operations_.pop_back();
    transfer_ended(index);
  }
}

void Execution::begin_transfer(std::int32_t index) {
  const Operation& operation = schedule_.operations[static_cast<std::size_t>(index)];
  comm::Transfer& transfer = transfers_[static_cast<std::size_t>(index)];
  transfer.on_done = on_transfer_done;
  transfer.owner = this;
  transfer.index = index;
  const std::size_t block = static_cast<std::size_t>(operation.block);
  const bool own = operation.block == plan_.rank;
  void* data = nullptr;
  std::uint64_t bytes = operation.bytes;
  if (operation.gradient) {
    // A sum lies in wire form wherever it is: where the transport lends, its very memory is lent.
    if (operation.buffer >= 0) data = workspace_ + plan_.backward.gradients[operation.buffer];
  } else if (plan_.lends) {
    // Only where the K/V lie is passed on, not the K/V: the memory of the owner stays as it is until the
    // last borrower releases it.
    if (operation.kind == Kind::send) data = own ? &own_view_ : const_cast<BlockView*>(lent_views_[block]);
    bytes = sizeof(BlockView);
  } else if (own) {
    data = workspace_ + layout_of_workspace().packed;
  } else {
    data = workspace_ + layout_of_workspace().receive[operation.buffer];
  }
  posted_ns_[static_cast<std::size_t>(index)] = now_ns();
  const std::int32_t kind = operation.kind == Kind::send ? RINGATTN_TRANSFER_SEND : RINGATTN_TRANSFER_RECEIVE;
  comm_.post(kind, operation.peer,
             comm::tag_of(sequence_, operation.gradient ? comm::TagKind::gradient : comm::TagKind::block,
                          static_cast<std::uint64_t>(block)),
             data, bytes, transfer);
}

void Execution::on_transfer_done(comm::Transfer& transfer) {
  static_cast<Execution*>(transfer.owner)->ended_operations_.push_back(transfer.index);
}

void Execution::transfer_ended(std::int32_t index) {
  const Operation& operation = schedule_.operations[static_cast<std::size_t>(index)];
  const comm::Transfer& transfer = transfers_[static_cast<std::size_t>(index)];
  if (transfer.status != RINGATTN_OK) return;  // check_alive finds the reason and stops the whole
  const std::uint64_t now = now_ns(), posted = posted_ns_[static_cast<std::size_t>(index)];
  const bool receive = operation.kind == Kind::receive;
  trace_.add(receive ? RINGATTN_EVENT_RECEIVE : RINGATTN_EVENT_SEND, -1, operation.peer, operation.block,
             index, posted, now, operation.bytes);
  if (receive) {
    times_.transfer_ns += now - posted;
    times_.bytes_received += operation.bytes;
    const std::size_t block = static_cast<std::size_t>(operation.block);
    if (operation.gradient) {
      // its addition looks at the transfer itself
    } else if (plan_.lends) {
      lent_views_[block] = static_cast<const BlockView*>(transfer.data);
      blocks_[block] = *lent_views_[block];
    } else {
      blocks_[block] = wire_view(workspace_ + layout_of_workspace().receive[operation.buffer],
                                 layout_.local_keys(operation.block));
    }
  } else {
    times_.bytes_sent += operation.bytes;
  }
  complete(index);
}

BlockView Execution::wire_view(const std::byte* data, std::int64_t rows) const {
  const Problem& p = plan_.problem;
  const std::int64_t k_head = rows * p.head_dim_qk, v_head = rows * p.head_dim_v;
  const std::byte* v = data + p.batch * p.kv_heads * k_head * size_of(p.dtype);
  return {data, v, {p.kv_heads * k_head, p.head_dim_qk, k_head}, {p.kv_heads * v_head, p.head_dim_v, v_head}};
}

void Execution::open_moves(std::int32_t index) {
  const std::int64_t parts = parts_of(schedule_.operations[static_cast<std::size_t>(index)]);
  if (parts == 0) {
    complete(index);
  } else {
    moves_.open(index, parts);
  }
}

bool Execution::whole() { return queue_.all_passed() && (!backward_ || key_gradients_written_); }

void Execution::tell_progress() {
  if (tensors_.progress == nullptr) return;
  tensors_.progress(tensors_.progress_user, plan_.rank, attends_ - attends_left_, attends_);
}

void Execution::release_loans() {
  // A block that is being passed on is read by the next borrower through this loan: it goes back when that
  // one has released it.
  ended_operations_.clear();
  digests_.release_loans();
  if (records_ != nullptr) records_->release_loans();
  for (std::size_t i = 0; i < schedule_.operations.size(); ++i) {
    const Operation& operation = schedule_.operations[i];
    comm::Transfer& transfer = transfers_[i];
    if (operation.kind != Kind::receive || transfer.pending || transfer.loan == 0) continue;
    bool passed_on = false;
    for (std::size_t j = 0; j < schedule_.operations.size() && !operation.gradient; ++j) {
      const Operation& other = schedule_.operations[j];
      passed_on = passed_on || (other.kind == Kind::send && !other.gradient &&
                                other.block == operation.block && transfers_[j].pending);
    }
    if (!passed_on) comm_.give_back(transfer);
  }
}

std::int32_t Execution::waits_for() const {
  const Phase phase = phase_.load(std::memory_order_relaxed);
  if (phase == Phase::digests) return digests_.waits_for();
  if (phase == Phase::records) return records_->waits_for();
  std::int32_t sends_to = -1;
  for (std::size_t i = 0; i < schedule_.operations.size(); ++i) {
    if (!transfers_[i].pending) continue;
    const Operation& operation = schedule_.operations[i];
    if (operation.kind == Kind::receive) return operation.peer;
    if (sends_to < 0) sends_to = operation.peer;
  }
  // Where all blocks have moved: the word of the agreement is under way until its receiver looks.
  return sends_to >= 0 || comm_.pending() == 0 ? sends_to : digests_.not_taken_by();
}

}  // namespace ringattn::ring
