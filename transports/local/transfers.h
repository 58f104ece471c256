// Records of posted transfers, and the three places where a record can be. Not thread-safe: the group's mutex
// guards them.
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "ringattn/transport.h"

namespace ringattn::local {

struct Transfer {
  enum class State : std::uint8_t {
    free,
    unmatched,  // in the match table
    lent,       // a send whose memory the receiver may read; in no list
    ended       // in its owner's queue, to be handed out
  };

  State state = State::free;
  std::int32_t kind = 0;
  std::int32_t owner = -1;  // -1: a lent send whose rank has closed its link
  std::int32_t peer = -1;
  ringattn_status status = RINGATTN_OK;
  std::uint64_t tag = 0;
  const void* data = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t user = 0;
  std::uint32_t index = 0;       // in the pool
  std::uint32_t generation = 0;  // counts the uses of this record, so that a stale loan is recognised
  Transfer* next = nullptr;      // in the bucket, the queue or the free list
  // Of a lent send: its receive, until that has been handed out. Of an ended receive: the send whose memory
  // it shows.
  Transfer* partner = nullptr;

  std::int32_t sender() const { return kind == RINGATTN_TRANSFER_SEND ? owner : peer; }
  std::int32_t receiver() const { return kind == RINGATTN_TRANSFER_SEND ? peer : owner; }
};

// All records of a group. It only grows, so a warm group allocates nothing and addresses stay valid.
class TransferPool {
 public:
  // Makes sure that `count` records can be taken without allocation. Doubles, so that growth is soon over.
  void reserve(std::size_t count) {
    if (free_count_ >= count) return;
    const std::size_t missing = count - free_count_;
    grow(std::max(missing, records_.size()));
  }

  void grow(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      Transfer& record = records_.emplace_back();
      record.index = static_cast<std::uint32_t>(records_.size() - 1);
      push_free(record);
    }
  }

  Transfer& take() {
    Transfer& record = *free_;
    free_ = record.next;
    --free_count_;
    record.next = nullptr;
    return record;
  }

  void give_back(Transfer& record) {
    ++record.generation;
    record.state = Transfer::State::free;
    record.partner = nullptr;
    push_free(record);
  }

  // A loan is a record's index (from 1, as 0 means none) and generation.
  static std::uint64_t loan_of(const Transfer& record) {
    return (std::uint64_t{record.generation} << 32) | (std::uint64_t{record.index} + 1);
  }

  // The lent send of a loan; nullptr for a loan that has been returned already or never was.
  Transfer* find_loan(std::uint64_t loan) {
    const std::uint64_t index = (loan & 0xffffffffu) - 1;
    if (index >= records_.size()) return nullptr;
    Transfer& record = records_[index];
    const bool valid = record.state == Transfer::State::lent && record.generation == (loan >> 32);
    return valid ? &record : nullptr;
  }

  auto begin() { return records_.begin(); }
  auto end() { return records_.end(); }

 private:
  void push_free(Transfer& record) {
    record.next = free_;
    free_ = &record;
    ++free_count_;
  }

  std::deque<Transfer> records_;
  Transfer* free_ = nullptr;
  std::size_t free_count_ = 0;
};

// Unmatched transfers by (receiver, sender, tag).
class MatchTable {
 public:
  explicit MatchTable(std::size_t world_size) : buckets_(std::bit_ceil(world_size * 8 + 64), nullptr) {}

  void insert(Transfer& transfer) {
    Transfer*& head = bucket(transfer);
    transfer.next = head;
    head = &transfer;
  }

  // Removes and returns the other side of `transfer`; nullptr when it has not been posted.
  Transfer* take_counterpart(const Transfer& transfer) {
    for (Transfer** link = &bucket(transfer); *link != nullptr; link = &(*link)->next) {
      Transfer& other = **link;
      if (other.kind == transfer.kind || other.tag != transfer.tag || other.sender() != transfer.sender() ||
          other.receiver() != transfer.receiver()) {
        continue;
      }
      *link = other.next;
      return &other;
    }
    return nullptr;
  }

  void remove(Transfer& transfer) {
    Transfer** link = &bucket(transfer);
    while (*link != &transfer) link = &(*link)->next;
    *link = transfer.next;
  }

  void clear() { std::fill(buckets_.begin(), buckets_.end(), nullptr); }

 private:
  Transfer*& bucket(const Transfer& transfer) {
    const auto ranks =
        static_cast<std::uint64_t>(transfer.receiver()) << 32 | static_cast<std::uint64_t>(transfer.sender());
    std::uint64_t hash = (transfer.tag ^ ranks * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    hash ^= hash >> 32;
    return buckets_[hash & (buckets_.size() - 1)];
  }

  std::vector<Transfer*> buckets_;  // singly linked; their number is a power of two
};

// Ended transfers of one link, first in, first out.
class TransferQueue {
 public:
  bool empty() const { return head_ == nullptr; }

  void push(Transfer& transfer) {
    transfer.next = nullptr;
    (head_ == nullptr ? head_ : tail_->next) = &transfer;
    tail_ = &transfer;
  }

  Transfer& pop() {
    Transfer& first = *head_;
    head_ = first.next;
    return first;
  }

  void clear() { head_ = tail_ = nullptr; }

 private:
  Transfer* head_ = nullptr;
  Transfer* tail_ = nullptr;
};

}  // namespace ringattn::local
