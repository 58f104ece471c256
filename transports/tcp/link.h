// One rank's end: what it has posted, what its peers have announced, and how it ended.
//
// One mutex guards everything; it is not held while wait() sleeps. The thread that owns the link moves it on
// in test() and wait(). Other threads come in by tell(), abort(), ask(), state() and wake(): they may write,
// may read the life connections, and may find that a peer is gone, but descriptors are closed by the owner
// alone, which may be polling them.
#pragma once
#include <poll.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ringattn/transport.h"
#include "transports/tcp/addresses.h"
#include "transports/tcp/carrier.h"
#include "transports/tcp/handshake.h"
#include "transports/tcp/stream.h"
#include "transports/tcp/transfers.h"

namespace ringattn::tcp {

struct Peer {
  enum class State : std::uint8_t { unconnected, here, left, lost };
  State state = State::unconnected;
  std::int32_t rank = 0;
  std::string who;    // host and process
  bool near = false;  // on this host: what has been sent has arrived
  Stream life, data;
  bool goodbye = false;  // said on life: the end of its connections is no death

  std::uint32_t eager_out = 0;   // our eager messages that it has not answered yet
  std::uint32_t eager_in = 0;    // its ones that have no receive here
  TransferQueue sending;         // accepted sends with bytes left to be sent
  Transfer* incoming = nullptr;  // what the payload that is being read belongs to

  ringattn_beat_v1 beat{};    // it told last
  bool beat_waits = false;    // ours has changed since it was last sent,
  bool beat_is_news = false;  // by a call or a cancel
  std::uint32_t beats_under_way = 0;
  ringattn_status abort_status = RINGATTN_OK;  // of the abort whose reason is being read
  char abort_reason[kReasonBytes] = "";

  // What it said about its carrier: of each attempt, and whether that has come.
  static constexpr int kAttempts = 2;
  std::string carrier_address[kAttempts];
  bool carrier_told[kAttempts] = {}, carrier_judged[kAttempts] = {}, carrier_good[kAttempts] = {};
  int carrier_reading = -1;  // the attempt whose address is being read

  Stream& stream(Channel channel) { return channel == Channel::life ? life : data; }
};

class Link {
 public:
  // With a carrier large messages go by it, else as pieces on the data connections. `name`: of the transport.
  Link(const char* name, const ringattn_link_desc_v1& desc, std::unique_ptr<Carrier> carrier);

  // Until connected. On failure the text says why; nothing is left behind.
  bool open(std::string& error);

  const char* name() const { return name_; }
  const Ring& ring() const { return ring_; }
  std::int32_t rank() const { return rank_; }
  std::int32_t world_size() const { return ring_.world_size; }
  const LinkAddress& address() const { return self_; }

  ringattn_status post(const ringattn_transfer_v1* transfers, std::int32_t count);
  ringattn_status test(ringattn_completion_v1* out, std::int32_t capacity, std::int32_t& count);
  void withdraw(std::uint64_t mask, std::uint64_t value);
  void wait(std::uint64_t timeout_ns);
  void wake();
  void tell(const ringattn_beat_v1& beat);
  ringattn_beat_v1 ask(std::int32_t rank);
  void abort(ringattn_status status, const char* reason);
  ringattn_status state(char* reason, std::uint64_t capacity);
  void close();
  // Ends the link with ERR_TRANSPORT and needs no memory: the peers see its connections end.
  void give_up(const char* reason) noexcept;

  // ---- for Mesh, which connects the link ----
  const Fd& listener() const { return listener_; }
  void introduce(std::int32_t rank, const LinkAddress& address);
  bool connected(std::int32_t rank, Channel channel);
  void adopt(std::int32_t rank, Channel channel, Fd socket);
  bool all_connected();
  void stop_listening();
  bool has_carrier() const { return carrier_ != nullptr; }
  // One attempt after the other, on all ranks alike: open, carrier_told by all, reach, carrier_judged by all, good?
  // open is false when there is no such attempt.
  bool open_carrier(int attempt, std::string& error);
  bool heard(std::int32_t rank, bool (Peer::*what)[Peer::kAttempts], int attempt);
  void reach_carriers(int attempt, std::string& error);
  bool carriers_are_good(int attempt, std::string& error);
  void finish_connecting();
  void add_to_poll(std::vector<pollfd>& set);  // our event and all connections
  ringattn_status advance();                   // reads and writes what can be; the status of the link

 private:
  // All of these expect the mutex to be held.
  void take(const ringattn_transfer_v1& posted);
  void take_send(Transfer& send);
  void take_receive(Transfer& receive);
  void match_own(Transfer& send, Transfer& receive);
  void match_announced(Transfer& receive, Transfer& announced);
  void withdraw_send(Transfer& send);
  void stop_asking();

  void progress();
  void handle(const std::vector<pollfd>& set);
  void flush(Peer& peer);
  void refill(Peer& peer);
  void send_beat(Peer& peer);
  void reap();
  void kick();

  void read_life(Peer& peer);
  void on_life(Peer& peer);
  void pass_on_abort(const Peer& peer);
  void on_beat(Peer& peer, const Frame& frame);
  void read_data(Peer& peer);
  void on_data(Peer& peer);
  void on_eager(Peer& peer, const Frame& frame);
  void on_offer(Peer& peer, const Frame& frame);
  void on_accept(Peer& peer, const Frame& frame);
  void on_piece(Peer& peer, const Frame& frame);
  void on_payload(Peer& peer);
  void on_done(Peer& peer, const Frame& frame);
  void on_cancel(Peer& peer, const Frame& frame);
  void on_canceled(Peer& peer, const Frame& frame);
  bool take_back_accept(Peer& peer, const Frame& frame);
  void unmeet(Transfer& receive);
  void answered(Transfer& send, ringattn_status status);
  void accept(Peer& peer, Transfer& receive, std::uint64_t send);
  void arrived(Peer& peer, Transfer& receive);
  void nonsense(Peer& peer, const Frame& frame);

  bool on_carrier(Peer& peer, const Frame& frame);
  bool by_carrier(const Transfer& transfer) const {
    return carrier_ != nullptr && transfer.bytes > kEagerBytes;
  }
  void carry(Transfer& transfer, std::uint64_t key);
  void carry_on();
  void end_carried();
  void carried(const Carrier::Ended& ended);
  void doom(Transfer& carried, ringattn_status status);
  void abandon_carrier();
  void close_carrier();

  void complete(Transfer& transfer, ringattn_status status);
  void complete_lost(Transfer& transfer);
  void forget(Transfer& announced);
  bool same_size(const Transfer& send, const Transfer& receive, std::int32_t sender);
  void hear_lifelines();
  void say_goodbye(Peer& peer);
  void die(Peer& peer, const std::string& how);
  void part(Peer& peer, Peer::State state);
  void end(ringattn_status status, const char* reason);
  void broadcast_abort();
  ringattn_status status() const;
  bool has_news() const;
  Peer& peer(std::int32_t rank) { return peers_[static_cast<std::size_t>(rank)]; }
  template <class Body>
  void each_peer(Body body) {
    for (Peer& each : peers_) {
      if (each.state == Peer::State::here) body(each);
    }
  }

  const char* const name_;
  const ringattn_host_v1* const host_;
  const Ring ring_;
  const std::int32_t rank_;
  LinkAddress self_;
  Fd listener_, event_;

  std::mutex mutex_;
  std::vector<Peer> peers_;  // by rank; the own one is never connected
  TransferPool pool_;
  MatchTable table_;
  Rooms rooms_{kEagerBytes};
  TransferQueue ended_;
  std::vector<pollfd> poll_set_;  // the owner's
  std::unique_ptr<Carrier> carrier_;
  std::vector<Carrier::Ended> carrier_ended_;
  std::string carrier_address_;
  bool carrier_good_ = false;
  std::size_t doomed_ = 0;                               // transfers
  std::chrono::steady_clock::time_point carrier_due_{};  // for the doomed ones
  ringattn_beat_v1 beat_{};
  // When sends that are being withdrawn are told CANCELED without an answer.
  std::chrono::steady_clock::time_point answers_due_ = std::chrono::steady_clock::time_point::max();
  bool told_ = false;
  bool ready_ = false;        // connected: transfers may be posted
  bool woken_ = false;        // by wake() or a newer cancel; ends one wait()
  bool loss_untold_ = false;  // a peer has died and test() has not said so; ends every wait() until then

  ringattn_status status_ = RINGATTN_OK;  // of the ring, by abort
  char reason_[kReasonBytes] = "";
  std::string lost_;  // why a peer is missing, from the first one on
};

}  // namespace ringattn::tcp
