// A ring of links over any transport, for tests: opens all ranks, posts, waits with a limit, closes what is
// left.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "ringattn/transport.h"
#include "support/fake_transport.h"

namespace ringattn::test {

// One transport (with the fake's script, where it is one) for value-parametrised tests.
struct TransportSubject {
  std::string name;
  const ringattn_transport_v1* table;
  FakeScript script;
};
void PrintTo(const TransportSubject& subject, std::ostream* out);

// Every transport that the contract is checked on. A new one is one line in transport_ring.cpp.
std::vector<TransportSubject> transport_subjects();

// Ends the test program with a message when it is not destroyed in time: a hang must be a failure.
class Watchdog {
 public:
  explicit Watchdog(std::string what, std::chrono::seconds limit = std::chrono::seconds(120));
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  bool finished_ = false;
  std::thread thread_;
};

using Completion = ringattn_completion_v1;
inline constexpr std::chrono::milliseconds kPatience{20000};

// One rank's end, used by one thread.
class TestLink {
 public:
  TestLink(const ringattn_transport_v1* table, void* link, std::int32_t rank)
      : table_(table), link_(link), rank_(rank) {}

  std::int32_t rank() const { return rank_; }
  const ringattn_transport_v1& table() const { return *table_; }
  void* handle() const { return link_; }
  bool lends() const { return (table_->caps & RINGATTN_TRANSPORT_LENDS) != 0; }

  ringattn_transfer_v1 send_of(std::int32_t peer, std::uint64_t tag, const void* data, std::uint64_t bytes,
                               std::uint64_t user) const;
  ringattn_transfer_v1 receive_of(std::int32_t peer, std::uint64_t tag, void* buffer, std::uint64_t bytes,
                                  std::uint64_t user) const;
  ringattn_status post(const std::vector<ringattn_transfer_v1>& transfers);
  ringattn_status send(std::int32_t peer, std::uint64_t tag, const void* data, std::uint64_t bytes,
                       std::uint64_t user = 0);
  ringattn_status receive(std::int32_t peer, std::uint64_t tag, void* buffer, std::uint64_t bytes,
                          std::uint64_t user = 0);

  // One completion if there is one now; the status of test otherwise.
  std::optional<Completion> poll(ringattn_status* status = nullptr);
  // The next completion; nothing when none came within the limit. Also on a dead link.
  std::optional<Completion> next(std::chrono::milliseconds limit = kPatience);
  void release(const Completion& completion);

  void wait(std::chrono::nanoseconds limit) { table_->wait(link_, std::uint64_t(limit.count())); }
  void wake() { table_->wake(link_); }
  void withdraw(std::uint64_t mask, std::uint64_t value) { table_->withdraw(link_, mask, value); }
  void abort(ringattn_status status, const char* reason) { table_->abort(link_, status, reason); }
  void tell(std::uint64_t counter, std::uint64_t canceled = 0, std::int32_t waits_for = -1,
            std::uint64_t entered = 0);
  ringattn_beat_v1 ask(std::int32_t rank);
  ringattn_status state(std::string* reason = nullptr);

 private:
  const ringattn_transport_v1* table_;
  void* link_;
  std::int32_t rank_;
};

// All ranks of one new ring in this process. Opening and connecting happen in one thread a rank, as they may wait
// for the others.
class TransportRing {
 public:
  TransportRing(const TransportSubject& subject, std::int32_t world_size);
  // The same with a given group id.
  TransportRing(const TransportSubject& subject, std::int32_t world_size, std::uint64_t group);
  ~TransportRing();
  TransportRing(const TransportRing&) = delete;
  TransportRing& operator=(const TransportRing&) = delete;

  std::int32_t size() const { return static_cast<std::int32_t>(links_.size()); }
  TestLink& operator[](std::int32_t rank) { return *links_[static_cast<std::size_t>(rank)]; }
  void close(std::int32_t rank);

  // Opens one more link and, where the transport connects processes, connects it with this ring. `*link` is null
  // on failure.
  ringattn_status enter(const ringattn_link_desc_v1& desc, void** link, std::string& error);

  // The next completion of one rank, for tests in one thread: other ranks' links are moved on meanwhile.
  std::optional<Completion> next(std::int32_t rank, std::chrono::milliseconds limit = kPatience);
  // Whether nothing is to be had on this rank for a while.
  bool quiet(std::int32_t rank, std::chrono::milliseconds span = std::chrono::milliseconds(20));

  static std::uint64_t new_group();
  static ringattn_link_desc_v1 describe(std::int32_t rank, std::int32_t world_size, std::uint64_t group);

 private:
  void exchange_addresses();
  ringattn_status connect(void* link, std::string& error) const;

  const ringattn_transport_v1* table_;
  std::vector<std::unique_ptr<TestLink>> links_;  // empty where closed
  std::vector<std::string> addresses_;            // by rank, of transports that connect processes
};

// Runs body(rank) in one thread each and joins them.
void run_ranks(std::int32_t count, const std::function<void(std::int32_t)>& body);

}  // namespace ringattn::test
