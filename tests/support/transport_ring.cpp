#include "support/transport_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "comm/plugins.h"
#include "transports/local/local.h"
#include "transports/tcp/tcp.h"

namespace ringattn::test {

using Clock = std::chrono::steady_clock;

void PrintTo(const TransportSubject& subject, std::ostream* out) { *out << subject.name; }

std::vector<TransportSubject> transport_subjects() {
  const FakeScript plain;
  const FakeScript slow{.seed = 7, .max_delay_us = 300, .reorder = true};
  std::vector<TransportSubject> subjects = {{"local", ringattn_transport_local_v1(), plain},
                                            {"tcp", ringattn_transport_tcp_v1(), plain},
                                            {"fake_lend", fake_lend(), plain},
                                            {"fake_copy", fake_copy(), plain},
                                            {"fake_lend_slow", fake_lend(), slow},
                                            {"fake_copy_slow", fake_copy(), slow}};
#if defined(RINGATTN_HAS_UCX) && \
    !defined(RINGATTN_TSAN)  // where it cannot run, TransportUcx.CanRunHere tells
  if (comm::ucx_table()->score(nullptr) > 0) subjects.push_back({"ucx", comm::ucx_table(), plain});
#endif
  return subjects;
}

Watchdog::Watchdog(std::string what, std::chrono::seconds limit)
    : thread_([this, what = std::move(what), limit] {
        std::unique_lock lock(mutex_);
        if (done_.wait_for(lock, limit, [this] { return finished_; })) return;
        std::fprintf(stderr, "watchdog: %s hangs for %lld s\n", what.c_str(),
                     static_cast<long long>(limit.count()));
        std::abort();
      }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
  }
  done_.notify_one();
  thread_.join();
}

ringattn_transfer_v1 TestLink::send_of(std::int32_t peer, std::uint64_t tag, const void* data,
                                       std::uint64_t bytes, std::uint64_t user) const {
  ringattn_transfer_v1 transfer{};
  transfer.struct_size = sizeof transfer;
  transfer.kind = RINGATTN_TRANSFER_SEND;
  transfer.peer = peer;
  transfer.tag = tag;
  transfer.data = const_cast<void*>(data);
  transfer.bytes = bytes;
  transfer.user = user;
  return transfer;
}

ringattn_transfer_v1 TestLink::receive_of(std::int32_t peer, std::uint64_t tag, void* buffer,
                                          std::uint64_t bytes, std::uint64_t user) const {
  ringattn_transfer_v1 transfer = send_of(peer, tag, lends() ? nullptr : buffer, bytes, user);
  transfer.kind = RINGATTN_TRANSFER_RECEIVE;
  return transfer;
}

ringattn_status TestLink::post(const std::vector<ringattn_transfer_v1>& transfers) {
  return table_->post(link_, transfers.data(), static_cast<std::int32_t>(transfers.size()));
}

ringattn_status TestLink::send(std::int32_t peer, std::uint64_t tag, const void* data, std::uint64_t bytes,
                               std::uint64_t user) {
  const ringattn_transfer_v1 transfer = send_of(peer, tag, data, bytes, user);
  return table_->post(link_, &transfer, 1);
}

ringattn_status TestLink::receive(std::int32_t peer, std::uint64_t tag, void* buffer, std::uint64_t bytes,
                                  std::uint64_t user) {
  const ringattn_transfer_v1 transfer = receive_of(peer, tag, buffer, bytes, user);
  return table_->post(link_, &transfer, 1);
}

std::optional<Completion> TestLink::poll(ringattn_status* status) {
  Completion completion{};
  completion.struct_size = sizeof completion;
  std::int32_t count = 0;
  const ringattn_status result = table_->test(link_, &completion, 1, &count);
  if (status != nullptr) *status = result;
  return count == 1 ? std::optional(completion) : std::nullopt;
}

std::optional<Completion> TestLink::next(std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while (true) {
    if (auto completion = poll()) return completion;
    const auto left = deadline - Clock::now();
    if (left <= Clock::duration::zero()) return std::nullopt;
    wait(left);
  }
}

void TestLink::release(const Completion& completion) {
  if (completion.loan != 0) table_->release(link_, completion.loan);
}

void TestLink::tell(std::uint64_t counter, std::uint64_t canceled, std::int32_t waits_for,
                    std::uint64_t entered) {
  ringattn_beat_v1 beat{};
  beat.struct_size = sizeof beat;
  beat.waits_for = waits_for;
  beat.counter = counter;
  beat.entered = entered;
  beat.canceled = canceled;
  table_->tell(link_, &beat);
}

ringattn_beat_v1 TestLink::ask(std::int32_t rank) {
  ringattn_beat_v1 beat{};
  beat.struct_size = sizeof beat;
  EXPECT_EQ(table_->ask(link_, rank, &beat), RINGATTN_OK);
  return beat;
}

ringattn_status TestLink::state(std::string* reason) {
  char text[512] = "not written";
  const ringattn_status status = table_->state(link_, text, sizeof text);
  if (reason != nullptr) *reason = text;
  return status;
}

std::uint64_t TransportRing::new_group() {
  static std::atomic<std::uint64_t> last{0x7e570000};
  return ++last;
}

ringattn_link_desc_v1 TransportRing::describe(std::int32_t rank, std::int32_t world_size,
                                              std::uint64_t group) {
  ringattn_link_desc_v1 desc{};
  desc.struct_size = sizeof desc;
  desc.rank = rank;
  desc.world_size = world_size;
  desc.open_timeout_ms = 10000;
  desc.group[0] = group;
  desc.group[1] = ~group;
  return desc;
}

TransportRing::TransportRing(const TransportSubject& subject, std::int32_t world_size)
    : TransportRing(subject, world_size, new_group()) {}

namespace {

[[noreturn]] void no_ring(const char* what, std::int32_t rank, const char* name, const std::string& error) {
  std::fprintf(stderr, "cannot %s rank %d over %s: %s\n", what, rank, name, error.c_str());
  std::abort();  // no test makes sense without its ring
}

bool connects(const ringattn_transport_v1& table) { return (table.caps & RINGATTN_TRANSPORT_PROCESSES) != 0; }

}  // namespace

TransportRing::TransportRing(const TransportSubject& subject, std::int32_t world_size, std::uint64_t group)
    : table_(subject.table), links_(static_cast<std::size_t>(world_size)) {
  fake_script(subject.script);
  run_ranks(world_size, [&](std::int32_t rank) {
    const ringattn_link_desc_v1 desc = describe(rank, world_size, group);
    void* link = nullptr;
    const char* error = "";
    if (table_->open(&desc, &link, &error) != RINGATTN_OK) no_ring("open", rank, table_->name, error);
    links_[static_cast<std::size_t>(rank)] = std::make_unique<TestLink>(table_, link, rank);
  });
  if (!connects(*table_)) return;
  exchange_addresses();
  run_ranks(world_size, [&](std::int32_t rank) {
    std::string error;
    if (connect((*this)[rank].handle(), error) != RINGATTN_OK) no_ring("connect", rank, table_->name, error);
  });
}

void TransportRing::exchange_addresses() {
  for (auto& link : links_) {
    char data[4096];
    std::uint64_t bytes = 0;
    const ringattn_status status = table_->address(link->handle(), data, sizeof data, &bytes);
    if (status != RINGATTN_OK) no_ring("ask the address of", link->rank(), table_->name, "");
    addresses_.emplace_back(data, bytes);
  }
}

ringattn_status TransportRing::connect(void* link, std::string& error) const {
  std::vector<ringattn_address_v1> all(addresses_.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    all[rank].struct_size = sizeof(ringattn_address_v1);
    all[rank].rank = static_cast<std::int32_t>(rank);
    all[rank].data = addresses_[rank].data();
    all[rank].bytes = addresses_[rank].size();
  }
  const char* why = "";
  const auto count = static_cast<std::int32_t>(all.size());
  const ringattn_status status = table_->connect(link, all.data(), count, &why);
  if (status != RINGATTN_OK) error = why;
  return status;
}

ringattn_status TransportRing::enter(const ringattn_link_desc_v1& desc, void** link, std::string& error) {
  const char* why = "";
  ringattn_status status = table_->open(&desc, link, &why);
  if (status != RINGATTN_OK) error = why;
  if (status != RINGATTN_OK || !connects(*table_)) return status;
  status = connect(*link, error);
  if (status != RINGATTN_OK) table_->close(std::exchange(*link, nullptr));
  return status;
}

TransportRing::~TransportRing() {
  for (std::int32_t rank = 0; rank < size(); ++rank) close(rank);
}

void TransportRing::close(std::int32_t rank) {
  auto& link = links_[static_cast<std::size_t>(rank)];
  if (link != nullptr) link->table().close(link->handle());
  link.reset();
}

std::optional<Completion> TransportRing::next(std::int32_t rank, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  do {
    for (auto& link : links_) {
      std::int32_t none = 0;
      if (link != nullptr && link->rank() != rank) link->table().test(link->handle(), nullptr, 0, &none);
    }
    if (auto completion = (*this)[rank].poll()) return completion;
    (*this)[rank].wait(std::chrono::milliseconds(1));
  } while (Clock::now() < deadline);
  return std::nullopt;
}

bool TransportRing::quiet(std::int32_t rank, std::chrono::milliseconds span) {
  return !next(rank, span).has_value();
}

void run_ranks(std::int32_t count, const std::function<void(std::int32_t)>& body) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(count));
  for (std::int32_t rank = 0; rank < count; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace ringattn::test
