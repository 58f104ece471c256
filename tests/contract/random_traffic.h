// Random transfers between all ranks, every byte checked. What a round holds follows from its number alone, as a schedule
// does, so all ranks know it. No gtest code, as ranks may be processes: what is wrong comes back as a text.
#pragma once
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/transport_ring.h"

namespace ringattn::test {

struct Message {
  std::int32_t sender, receiver;
  std::uint64_t tag;
  std::size_t bytes;
};

// How long messages are: less than `most`, an eighth of them empty. `skewed`: most are short, a few nearly `most`.
struct Sizes {
  std::size_t most = 3000;
  bool skewed = false;
};

inline std::vector<Message> messages_of(std::int32_t ranks, std::uint64_t round, std::size_t count,
                                        const Sizes& sizes = {}) {
  std::mt19937_64 random(1000 * round + static_cast<std::uint64_t>(ranks));
  std::vector<Message> messages(count);
  for (std::size_t i = 0; i < count; ++i) {
    Message& message = messages[i];
    message.sender = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(ranks));
    message.receiver = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(ranks));
    message.tag = round << 32 | i;
    const std::size_t most =
        sizes.skewed ? std::max<std::size_t>(sizes.most >> random() % 16, 1) : sizes.most;
    message.bytes = random() % 8 == 0 ? 0 : random() % most;
  }
  return messages;
}

// One rank's part of one round: posts in random order and chunks, tests and releases in between.
class RandomRound {
 public:
  RandomRound(TestLink& link, const std::vector<Message>& messages, std::mt19937_64& random)
      : link_(link),
        messages_(messages),
        random_(random),
        sources_(messages.size()),
        buffers_(messages.size()) {
    for (std::size_t i = 0; i < messages.size(); ++i) prepare(i);
    std::shuffle(transfers_.begin(), transfers_.end(), random_);
  }

  // "" when everything has ended and was right.
  std::string run() {
    while (wrong_.empty() && (ended_ < transfers_.size() || !held_.empty())) {
      post_some();
      while (auto completion = link_.poll()) take(*completion);
      const bool all_posted = posted_ == transfers_.size();
      if (!held_.empty() && (random_() % 2 == 0 || all_posted)) release_one();
      if (all_posted && ended_ < posted_ && held_.empty()) wait_for_one();
    }
    return wrong_;
  }

 private:
  using Bytes = std::vector<std::uint8_t>;

  static std::uint8_t byte_of(const Message& message, std::size_t i) {
    return static_cast<std::uint8_t>(message.tag * 31 + message.tag / 4294967296 * 17 + i * 7 + i / 251 +
                                     static_cast<std::size_t>(message.sender));
  }

  void prepare(std::size_t i) {
    const Message& message = messages_[i];
    if (message.sender == link_.rank()) {
      sources_[i].resize(message.bytes);
      for (std::size_t at = 0; at < message.bytes; ++at) sources_[i][at] = byte_of(message, at);
      transfers_.push_back(
          link_.send_of(message.receiver, message.tag, sources_[i].data(), message.bytes, i));
    }
    if (message.receiver == link_.rank()) {
      buffers_[i].resize(message.bytes);
      transfers_.push_back(
          link_.receive_of(message.sender, message.tag, buffers_[i].data(), message.bytes, i));
    }
  }

  void fail(const std::string& what) {
    std::string reason;
    const ringattn_status status = link_.state(&reason);
    if (wrong_.empty())
      wrong_ = "rank " + std::to_string(link_.rank()) + " " + what + "; the link: " + std::to_string(status) +
               " " + reason;
  }

  void post_some() {
    if (posted_ == transfers_.size()) return;
    const std::size_t chunk = std::min<std::size_t>(1 + random_() % 5, transfers_.size() - posted_);
    const auto first = transfers_.begin() + static_cast<std::ptrdiff_t>(posted_);
    if (link_.post({first, first + static_cast<std::ptrdiff_t>(chunk)}) != RINGATTN_OK) fail("cannot post");
    posted_ += chunk;
  }

  void take(const Completion& completion) {
    ++ended_;
    if (completion.status != RINGATTN_OK)
      return fail("message " + std::to_string(completion.user) + " ended " +
                  std::to_string(completion.status));
    if (completion.kind == RINGATTN_TRANSFER_RECEIVE) return held_.push_back(completion);
    Bytes& source = sources_[completion.user];  // ours again: whoever still reads it now sees it change
    std::fill(source.begin(), source.end(), std::uint8_t{0xdd});
  }

  void release_one() {
    std::swap(held_[random_() % held_.size()], held_.back());
    if (!is_right(messages_[held_.back().user], held_.back()))
      fail("wrong bytes in message " + std::to_string(held_.back().user));
    link_.release(held_.back());
    held_.pop_back();
  }

  static bool is_right(const Message& message, const Completion& completion) {
    const auto* data = static_cast<const std::uint8_t*>(completion.data);
    if (completion.bytes != message.bytes) return false;
    for (std::size_t i = 0; i < message.bytes; ++i) {
      if (data[i] != byte_of(message, i)) return false;
    }
    return true;
  }

  void wait_for_one() {
    const auto completion = link_.next();
    if (!completion) return fail("lacks " + std::to_string(posted_ - ended_) + " completions");
    take(*completion);
  }

  TestLink& link_;
  const std::vector<Message>& messages_;
  std::mt19937_64& random_;
  std::vector<Bytes> sources_, buffers_;
  std::vector<ringattn_transfer_v1> transfers_;
  std::vector<Completion> held_;
  std::size_t posted_ = 0, ended_ = 0;
  std::string wrong_;
};

}  // namespace ringattn::test
