// The schedule's operations: which one may begin, and what ending it sets free.
#include <algorithm>
#include <cstring>

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
  position_operation_.clear();
  std::fill(receive_operation_.begin(), receive_operation_.end(), -1);
  std::int32_t finalize = -1;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t index = static_cast<std::int32_t>(i);
    transfers_[i].pending = false;
    transfers_[i].loan = 0;
    if (operations[i].kind == Kind::attend) {
      operation_position_[i] = static_cast<std::int32_t>(position_operation_.size());
      position_operation_.push_back(index);
    }
    if (operations[i].kind == Kind::finalize) finalize = index;
    if (operations[i].kind == Kind::receive)
      receive_operation_[static_cast<std::size_t>(operations[i].block)] = index;
  }
  position_operation_.push_back(finalize);
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
      queue_.open(operation_position_[static_cast<std::size_t>(index)]);
      return;
    case Kind::finalize:
      if (queue_.tiles() == 0) complete(index);
      return;
    case Kind::pack:
      pack_own_block();
      complete(index);
      return;
    case Kind::release: {
      const std::int32_t receive = receive_operation_[static_cast<std::size_t>(operation.block)];
      comm_.give_back(transfers_[static_cast<std::size_t>(receive)]);
      complete(index);
      return;
    }
    case Kind::merge:
    case Kind::accumulate:
    case Kind::copy:
      stop({RINGATTN_ERR_INTERNAL,
            std::string("the executor met an operation it does not know: ") + name_of(operation.kind)});
      return;
  }
}

void Execution::complete(std::int32_t index) {
  --operations_left_;
  const std::size_t i = static_cast<std::size_t>(index);
  for (std::int32_t s = successor_first_[i]; s < successor_first_[i + 1]; ++s) {
    const std::int32_t next = successors_[static_cast<std::size_t>(s)];
    if (--waiting_[static_cast<std::size_t>(next)] == 0) begin(next);
  }
}

void Execution::drain_operations() {
  std::int32_t position = 0;
  while (queue_.take_finished(&position)) complete(position_operation_[static_cast<std::size_t>(position)]);
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
  if (plan_.lends) {
    // Only where the K/V lie is passed on, not the K/V: the memory of the owner stays as it is until the
    // last borrower releases it.
    if (operation.kind == Kind::send) data = own ? &own_view_ : const_cast<BlockView*>(lent_views_[block]);
  } else if (own) {
    data = workspace_ + plan_.workspace.packed;
  } else {
    data = workspace_ + plan_.workspace.receive[operation.buffer];
  }
  const std::uint64_t bytes = plan_.lends ? sizeof(BlockView) : operation.bytes;
  posted_ns_[static_cast<std::size_t>(index)] = now_ns();
  const std::int32_t kind = operation.kind == Kind::send ? RINGATTN_TRANSFER_SEND : RINGATTN_TRANSFER_RECEIVE;
  comm_.post(kind, operation.peer,
             comm::tag_of(sequence_, comm::TagKind::block, static_cast<std::uint64_t>(block)), data, bytes,
             transfer);
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
    if (plan_.lends) {
      lent_views_[block] = static_cast<const BlockView*>(transfer.data);
      blocks_[block] = *lent_views_[block];
    } else {
      blocks_[block] = wire_view(workspace_ + plan_.workspace.receive[operation.buffer],
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

void Execution::pack_own_block() {
  const Problem& p = plan_.problem;
  const std::int64_t rows = layout_.local_keys(plan_.rank), element = size_of(p.dtype);
  std::byte* out = workspace_ + plan_.workspace.packed;
  for (const TensorView* tensor : {&tensors_.k, &tensors_.v}) {
    const std::size_t bytes = static_cast<std::size_t>(tensor->shape[3] * element);
    for (std::int64_t batch = 0; batch < p.batch; ++batch) {
      for (std::int64_t head = 0; head < p.kv_heads; ++head) {
        for (std::int64_t row = 0; row < rows; ++row, out += bytes)
          std::memcpy(out, tensor->at(batch, row, head), bytes);
      }
    }
  }
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
    for (std::size_t j = 0; j < schedule_.operations.size(); ++j) {
      const Operation& other = schedule_.operations[j];
      passed_on =
          passed_on || (other.kind == Kind::send && other.block == operation.block && transfers_[j].pending);
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
  return sends_to;
}

}  // namespace ringattn::ring
