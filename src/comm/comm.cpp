#include "comm/comm.h"

#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "comm/transports.h"

namespace ringattn::comm {
namespace {

std::atomic<std::uint64_t> next_ring{1};
constexpr int kCompletionsAtOnce = 32;

constexpr std::uint64_t kToldCancels = 64;  // that a beat tells besides the last

bool has_canceled(const ringattn_beat_v1& beat, std::uint64_t sequence) {
  if (beat.canceled <= sequence) return beat.canceled == sequence;
  const std::uint64_t back = beat.canceled - sequence - 1;
  return back < kToldCancels && (beat.canceled_before >> back & 1) != 0;
}

void host_log(void* self, std::int32_t level, const char* message) {
  static_cast<const Log*>(self)->write(level, message == nullptr ? "" : message);
}

}  // namespace

Status Comm::create_local(const Log& log, std::int32_t world, const std::string& transport,
                          const CommOptions& options, std::vector<std::unique_ptr<Comm>>& out) {
  const ringattn_transport_v1* table = nullptr;
  RINGATTN_TRY(choose_transport(transport, &table));
  const std::uint64_t ring = next_ring.fetch_add(1);
  std::vector<std::unique_ptr<Comm>> comms;
  for (std::int32_t rank = 0; rank < world; ++rank) {
    std::unique_ptr<Comm> comm(new Comm());
    RINGATTN_TRY(comm->open_link(log, table, rank, world, options, {{ring, 0x72696e6761ULL}, ""}));
    comm->ring_id_ = ring;
    comms.push_back(std::move(comm));
  }
  RINGATTN_TRY(connect_all(comms));
  out = std::move(comms);
  return {};
}

// Links that have to find each other do so at the same time.
Status Comm::connect_all(std::vector<std::unique_ptr<Comm>>& comms) {
  if (comms[0]->table_->connect == nullptr) return {};
  std::vector<std::string> addresses(comms.size());
  for (std::size_t r = 0; r < comms.size(); ++r) RINGATTN_TRY(comms[r]->tell_address(addresses[r]));
  std::vector<Status> statuses(comms.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < comms.size(); ++r) {
    threads.emplace_back([&, r] { statuses[r] = comms[r]->connect_link(addresses); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : statuses) RINGATTN_TRY(status);
  return {};
}

Status Comm::open_link(const Log& log, const ringattn_transport_v1* table, std::int32_t rank,
                       std::int32_t world, const CommOptions& options, const LinkGroup& group) {
  table_ = table;
  log_ = log;
  rank_ = rank;
  world_ = world;
  ring_id_ = next_ring.fetch_add(1);  // no other rank of the ring is known to be in this process
  options_ = options;
  beat_.struct_size = sizeof(ringattn_beat_v1);
  pulses_.resize(static_cast<std::size_t>(world));
  beat_.waits_for = -1;
  host_ = {sizeof(ringattn_host_v1), 0, &log_, host_log};
  ringattn_link_desc_v1 desc{};
  desc.struct_size = sizeof desc;
  desc.rank = rank;
  desc.world_size = world;
  // Sooner than the meeting ends, so that the ranks can still tell each other who was not reached.
  const std::int64_t arrival = std::min<std::int64_t>(options.arrival_timeout_ms, 0x7fffffff);
  desc.open_timeout_ms = static_cast<std::int32_t>(arrival < 0 ? arrival : arrival - arrival / 8);
  desc.group[0] = group.id[0];
  desc.group[1] = group.id[1];
  desc.host = &host_;
  desc.secret = group.secret.empty() ? nullptr : group.secret.data();
  desc.secret_bytes = group.secret.size();
  const char* error = nullptr;
  const ringattn_status status = table->open(&desc, &link_, &error);
  if (status == RINGATTN_OK) return {};
  link_ = nullptr;
  return {status,
          std::string("transport ") + table->name + ": " + (error == nullptr ? "cannot open a link" : error)};
}

Comm::~Comm() {
  if (link_ != nullptr) table_->close(link_);
}

std::uint64_t Comm::enter(const char* what) {
  what_ = what;
  const std::lock_guard lock(beat_mutex_);
  beat_.entered = ++sequence_;
  beat_.waits_for = -1;
  beat_.counter = counter_.fetch_add(1, std::memory_order_relaxed) + 1;
  beat_.pulse = ++pulse_;
  told_counter_ = beat_.counter;
  told_ns_ = now_ns();
  watched_rank_ = -1;
  table_->tell(link_, &beat_);
  return sequence_;
}

void Comm::leave_call() {
  const std::lock_guard lock(beat_mutex_);
  beat_.pulse = 0;
  beat_.waits_for = -1;
  beat_.counter = told_counter_ = counter_.load(std::memory_order_relaxed);
  told_ns_ = now_ns();
  table_->tell(link_, &beat_);
}

void Comm::cancel(std::uint64_t sequence) {
  const std::lock_guard lock(beat_mutex_);
  if (beat_.canceled >= sequence) return;
  const std::uint64_t ahead = sequence - beat_.canceled;
  std::uint64_t before = ahead < 64 ? beat_.canceled_before << ahead : 0;
  if (beat_.canceled != 0 && ahead <= 64) before |= std::uint64_t{1} << (ahead - 1);
  beat_.canceled = sequence;
  beat_.canceled_before = before;
  table_->tell(link_, &beat_);
}

ringattn_beat_v1 Comm::ask(std::int32_t rank) const {
  ringattn_beat_v1 beat{};
  beat.struct_size = sizeof beat;
  beat.waits_for = -1;
  table_->ask(link_, rank, &beat);
  return beat;
}

bool Comm::canceled_here(std::uint64_t sequence) {
  const std::lock_guard lock(beat_mutex_);
  return has_canceled(beat_, sequence);
}

bool Comm::newly_canceled(std::uint64_t sequence, std::int32_t* rank, bool at_once) {
  if (canceled_here(sequence)) {
    *rank = rank_;
    return true;
  }
  const std::uint64_t now = now_ns();
  if (!at_once && now - asked_ns_ < 1'000'000) return false;
  asked_ns_ = now;
  for (std::int32_t r = 0; r < world_; ++r) {
    if (!has_canceled(ask(r), sequence)) continue;
    *rank = r;
    return true;
  }
  return false;
}

bool Comm::canceled_long_after(std::int32_t rank, std::uint64_t sequence) const {
  return ask(rank).canceled > sequence + kToldCancels;
}

bool Comm::entered(std::int32_t rank, std::uint64_t sequence) const { return ask(rank).entered >= sequence; }

void Comm::post(std::int32_t kind, std::int32_t peer, std::uint64_t tag, void* data, std::uint64_t bytes,
                Transfer& transfer) {
  ringattn_transfer_v1 t{};
  t.struct_size = sizeof t;
  t.kind = kind;
  t.peer = peer;
  t.tag = tag;
  t.data = data;
  t.bytes = bytes;
  t.user = reinterpret_cast<std::uintptr_t>(&transfer);
  give_back(transfer);
  transfer.pending = true;
  transfer.peer = peer;
  transfer.bytes = bytes;
  transfer.data = nullptr;
  ++pending_;
  const ringattn_status status = table_->post(link_, &t, 1);
  if (status != RINGATTN_OK) {
    link_status_.store(status, std::memory_order_release);
    --pending_;
    transfer.pending = false;
    transfer.status = status;
    if (transfer.on_done != nullptr) transfer.on_done(transfer);
  }
}

void Comm::give_back(Transfer& transfer) {
  if (transfer.pending || transfer.loan == 0) return;
  table_->release(link_, transfer.loan);
  transfer.loan = 0;
}

int Comm::poll() {
  int total = 0;
  for (;;) {
    ringattn_completion_v1 done[kCompletionsAtOnce];
    done[0].struct_size = sizeof(ringattn_completion_v1);
    std::int32_t count = 0;
    const ringattn_status status = table_->test(link_, done, kCompletionsAtOnce, &count);
    if (status != RINGATTN_OK) link_status_.store(status, std::memory_order_release);
    for (std::int32_t i = 0; i < count; ++i) {
      Transfer& transfer = *reinterpret_cast<Transfer*>(static_cast<std::uintptr_t>(done[i].user));
      --pending_;
      transfer.pending = false;
      transfer.status = done[i].status;
      transfer.data = done[i].data;
      transfer.loan = done[i].loan;
      if (range_of(transfer.status) == StatusRange::comm)
        link_status_.store(transfer.status, std::memory_order_release);
      progressed();
      if (transfer.on_done != nullptr) transfer.on_done(transfer);
    }
    total += count;
    if (count < kCompletionsAtOnce) return total;
  }
}

void Comm::withdraw(std::uint64_t sequence) { table_->withdraw(link_, kSequenceMask, sequence << 24); }

Status Comm::state() const {
  char reason[512] = "";
  const ringattn_status status = table_->state(link_, reason, sizeof reason);
  if (status == RINGATTN_OK) return {};
  return {status, reason};
}

Status Comm::end_dead() {
  Status why = state();
  if (why.ok())
    why = {link_status_.load(), std::string("transport ") + table_->name + " failed without a reason"};
  abort(why.code(), why.message());
  const Status all =
      state();  // the reason of another rank may have been first: what this one says, now and later, is the same
  return all.ok() ? why : all;
}

}  // namespace ringattn::comm
