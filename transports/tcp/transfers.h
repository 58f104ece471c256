// Records of transfers, own ones and those that peers have announced. The link's mutex guards them.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "ringattn/transport.h"

namespace ringattn::tcp {

struct Transfer {
  enum class State : std::uint8_t {
    free,
    unmatched,  // in the match table: a receive, a send to oneself, or what a peer announced
    announced,  // a send that the peer knows of and has not matched
    moving,     // bytes travel, or the peer has yet to say that they have arrived
    filling,    // an eager message of a peer that is half read and has no receive yet
    given_up,   // a send that has been told CANCELED while its peer has not answered
    ended       // in the queue of completions
  };
  State state = State::free;
  bool own = true;           // posted here; else announced by the peer
  bool withdrawing = false;  // a send whose cancel has no answer yet; a receive that was found too late
  bool eager = false;
  bool carried = false;       // the carrier has it, and with it the memory
  bool unmet = false;         // a carried receive whose send has been given up
  bool acknowledged = false;  // a carried send: all of it has arrived
  bool doomed = false;        // a carried one that ends with `status`, whatever the carrier says
  std::int32_t kind = 0;
  std::int32_t peer = -1;
  ringattn_status status = RINGATTN_OK;
  std::uint64_t tag = 0;
  char* data = nullptr;  // an announced eager message: its room
  std::uint64_t bytes = 0;
  std::uint64_t moved = 0;
  std::uint64_t user = 0;
  std::uint64_t remote = 0;  // the peer's name of this transfer
  std::uint32_t index = 0;
  std::uint32_t generation = 0;  // counts the uses of this record, so that a stale name is recognised
  Transfer* next = nullptr;

  std::uint64_t name() const { return std::uint64_t{generation} << 32 | (std::uint64_t{index} + 1); }
};

// All records of a link. It only grows, so a warm link allocates nothing and addresses stay valid.
class TransferPool {
 public:
  void reserve(std::size_t count) {
    if (free_count_ >= count) return;
    for (std::size_t missing = std::max(count - free_count_, records_.size()); missing > 0; --missing) {
      Transfer& record = records_.emplace_back();
      record.index = static_cast<std::uint32_t>(records_.size() - 1);
      push_free(record);
    }
  }

  Transfer& take() {
    reserve(1);
    Transfer& record = *free_;
    free_ = record.next;
    --free_count_;
    const std::uint32_t index = record.index, generation = record.generation;
    record = Transfer{};
    record.index = index;
    record.generation = generation;
    record.state = Transfer::State::unmatched;
    return record;
  }

  void give_back(Transfer& record) {
    ++record.generation;
    record.state = Transfer::State::free;
    push_free(record);
  }

  // The record of a name that a peer has sent, and only if it is of that peer; else nullptr.
  Transfer* find(std::uint64_t name, std::int32_t peer) {
    const std::uint64_t index = (name & 0xffffffffu) - 1;
    if (index >= records_.size()) return nullptr;
    Transfer& record = records_[index];
    const bool valid = record.state != Transfer::State::free && record.name() == name && record.peer == peer;
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

// Unmatched receives, and the sends and announcements that look for one, by (peer, tag).
class MatchTable {
 public:
  void insert(Transfer& transfer) {
    Transfer*& head = bucket(transfer.peer, transfer.tag);
    transfer.state = Transfer::State::unmatched;
    transfer.next = head;
    head = &transfer;
  }

  // Removes and returns the unmatched transfer of this kind; nullptr when there is none.
  Transfer* take(std::int32_t kind, std::int32_t peer, std::uint64_t tag) {
    for (Transfer** link = &bucket(peer, tag); *link != nullptr; link = &(*link)->next) {
      Transfer& found = **link;
      if (found.kind != kind || found.peer != peer || found.tag != tag) continue;
      *link = found.next;
      return &found;
    }
    return nullptr;
  }

  void remove(Transfer& transfer) {
    Transfer** link = &bucket(transfer.peer, transfer.tag);
    while (*link != &transfer) link = &(*link)->next;
    *link = transfer.next;
  }

  void clear() { std::fill(buckets_.begin(), buckets_.end(), nullptr); }

 private:
  Transfer*& bucket(std::int32_t peer, std::uint64_t tag) {
    std::uint64_t hash = (tag ^ static_cast<std::uint64_t>(peer) * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    hash ^= hash >> 32;
    return buckets_[hash & (buckets_.size() - 1)];
  }

  std::vector<Transfer*> buckets_ = std::vector<Transfer*>(256, nullptr);  // a power of two
};

// First in, first out.
class TransferQueue {
 public:
  bool empty() const { return head_ == nullptr; }
  Transfer& front() { return *head_; }

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

// Rooms of one size for eager messages that come before their receive; used again, never given back.
class Rooms {
 public:
  explicit Rooms(std::size_t bytes) : bytes_(bytes) {}

  char* take() {
    if (free_.empty()) {
      all_.push_back(std::make_unique<char[]>(bytes_));
      free_.reserve(all_.size());
      return all_.back().get();
    }
    char* const room = free_.back();
    free_.pop_back();
    return room;
  }

  void give_back(char* room) { free_.push_back(room); }

 private:
  std::size_t bytes_;
  std::vector<std::unique_ptr<char[]>> all_;
  std::vector<char*> free_;
};

}  // namespace ringattn::tcp
