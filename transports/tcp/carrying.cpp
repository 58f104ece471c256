// Large messages by the carrier: how it is connected, what becomes of its transfers, and what is done when it does not
// let go of them.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "transports/tcp/link.h"

namespace ringattn::tcp {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kDropLimit{1000};  // from the end of a transfer until the carrier lets go
constexpr int kMostCalls = 64;                         // of progress in a row

}  // namespace

// ---- connecting -----------------------------------------------------------------------------------------

bool Link::open_carrier(int attempt, std::string& error) {
  const std::lock_guard lock(mutex_);
  std::vector<CarrierPeer> peers;
  each_peer([&](Peer& each) { peers.push_back({each.rank, each.near, interface_of(each.data.fd())}); });
  carrier_address_.clear();
  std::string why;
  if (attempt == Peer::kAttempts || !carrier_->open(attempt, peers, carrier_address_, why)) {
    if (why.empty()) return false;
    carrier_address_.clear();
    error = why;
  }
  Frame frame{.type = FrameType::carrier_address};
  frame.id = static_cast<std::uint64_t>(attempt);
  frame.bytes = carrier_address_.size();
  each_peer([&](Peer& each) {
    each.data.push(frame, carrier_address_.data(), frame.bytes);
    flush(each);
  });
  return true;
}

bool Link::heard(std::int32_t rank, bool (Peer::*what)[Peer::kAttempts], int attempt) {
  const std::lock_guard lock(mutex_);
  return rank == rank_ || (peer(rank).*what)[attempt];
}

// Only once every rank has told its address; tells them all how it went.
void Link::reach_carriers(int attempt, std::string& error) {
  const std::lock_guard lock(mutex_);
  bool good = !carrier_address_.empty();
  each_peer([&](Peer& each) {
    const std::string& address = each.carrier_address[attempt];
    std::string why = "it could not open its side";
    if (!good) return;
    if (!address.empty() && carrier_->connect(each.rank, address, why)) return;
    good = false;
    error = "rank " + std::to_string(each.rank) + " (" + each.who + ") cannot be reached: " + why;
  });
  Frame frame{.type = FrameType::carrier_verdict};
  frame.id = static_cast<std::uint64_t>(attempt);
  frame.status = good ? RINGATTN_OK : RINGATTN_ERR_TRANSPORT;
  carrier_good_ = good;
  each_peer([&](Peer& each) {
    each.data.push(frame);
    flush(each);
  });
}

bool Link::carriers_are_good(int attempt, std::string& error) {
  const std::lock_guard lock(mutex_);
  bool good = carrier_good_;
  each_peer([&](Peer& each) {
    if (each.carrier_good[attempt]) return;
    if (good) error = "rank " + std::to_string(each.rank) + " (" + each.who + ") could not reach all ranks";
    good = false;
  });
  return good;
}

bool Link::on_carrier(Peer& peer, const Frame& frame) {
  const auto attempt = static_cast<std::size_t>(frame.id);
  if (carrier_ == nullptr || ready_ || frame.id >= Peer::kAttempts) return false;
  if (frame.type == FrameType::carrier_verdict) {
    if (peer.carrier_judged[attempt]) return false;
    peer.carrier_judged[attempt] = true;
    peer.carrier_good[attempt] = frame.status == RINGATTN_OK;
    return true;
  }
  if (peer.carrier_told[attempt] || frame.bytes > kCarrierAddressBytes) return false;
  peer.carrier_told[attempt] = frame.bytes == 0;
  if (frame.bytes == 0) return true;
  std::string& address = peer.carrier_address[attempt];
  address.resize(frame.bytes);
  peer.carrier_reading = static_cast<int>(attempt);
  peer.data.take_payload(address.data(), frame.bytes);
  return true;
}

// ---- transfers ------------------------------------------------------------------------------------------

void Link::carry(Transfer& transfer, std::uint64_t key) {
  transfer.carried = true;
  if (transfer.kind == RINGATTN_TRANSFER_SEND) {
    carrier_->send(transfer, key);
  } else {
    carrier_->receive(transfer, key);
  }
}

void Link::carry_on() {
  if (carrier_ == nullptr) return;
  for (int calls = 0; calls < kMostCalls; ++calls) {
    const bool more = carrier_->progress(carrier_ended_);
    end_carried();
    if (!more) break;
  }
  if (doomed_ > 0 && Clock::now() > carrier_due_) abandon_carrier();
}

void Link::end_carried() {
  for (std::size_t i = 0; i < carrier_ended_.size(); ++i) carried(carrier_ended_[i]);
  carrier_ended_.clear();
}

void Link::carried(const Carrier::Ended& ended) {
  Transfer& transfer = *ended.transfer;
  transfer.carried = false;
  if (transfer.doomed) {
    --doomed_;
    return complete(transfer, transfer.acknowledged ? RINGATTN_OK : transfer.status);
  }
  if (transfer.unmet) return unmeet(transfer);
  Peer& with = peer(transfer.peer);
  if (ended.error != nullptr && !transfer.acknowledged) {
    read_life(with);  // says whether it aborted or died; then this transfer has ended, too
    if (with.state == Peer::State::here && status_ == RINGATTN_OK) die(with, ended.error);
    return;
  }
  if (transfer.kind == RINGATTN_TRANSFER_RECEIVE) return arrived(with, transfer);
  transfer.moved = transfer.bytes;
  if (transfer.acknowledged) complete(transfer, RINGATTN_OK);
}

// Its memory is in use until the carrier has let go, so it ends only then.
void Link::doom(Transfer& transfer, ringattn_status status) {
  if (transfer.doomed) return;
  if (doomed_++ == 0) carrier_due_ = Clock::now() + kDropLimit;
  transfer.doomed = true;
  transfer.status = status;
  carrier_->drop(transfer.peer);
}

void Link::abandon_carrier() {
  carrier_->abandon(carrier_ended_);
  static_cast<void>(carrier_.release());  // what it holds is in use, perhaps for ever
  for (const Carrier::Ended& ended : carrier_ended_) {
    ended.transfer->carried = false;
    if (ended.transfer->doomed) carried(ended);
  }
  const std::string count = std::to_string(carrier_ended_.size());
  carrier_ended_.clear();
  end(RINGATTN_ERR_TRANSPORT, "transfers could not be taken back");
  if (host_ == nullptr || host_->log == nullptr) return;
  const std::string text = std::string(name_) + ": " + count +
                           " transfers could not be taken back within a second; their memory may still be "
                           "read or written, and what belongs to them stays allocated";
  host_->log(host_->self, RINGATTN_LOG_ERROR, text.c_str());
}

void Link::close_carrier() {
  if (carrier_ == nullptr) return;
  for (Transfer& transfer : pool_) {
    if (transfer.state == Transfer::State::moving && transfer.carried) doom(transfer, RINGATTN_ERR_CANCELED);
  }
  while (carrier_ != nullptr && carrier_->busy()) {
    carry_on();
    if (carrier_ != nullptr && carrier_->busy()) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  carrier_.reset();
}

}  // namespace ringattn::tcp
