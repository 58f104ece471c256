// Carries a link's large messages by UCX's tag matching: the receiver's key is the tag, so each message has exactly one
// receive, which is posted before the sender hears of it.
#pragma once
#include <memory>
#include <vector>

#include "transports/tcp/carrier.h"
#include "transports/ucx/context.h"

namespace ringattn::ucx {

class Carrier final : public tcp::Carrier {
 public:
  explicit Carrier(std::int32_t world_size);
  ~Carrier() override;

  bool open(int attempt, const std::vector<tcp::CarrierPeer>& peers, std::string& address,
            std::string& error) override;
  bool connect(std::int32_t rank, const std::string& address, std::string& error) override;
  std::string description() const override;

  void send(tcp::Transfer& send, std::uint64_t key) override;
  void receive(tcp::Transfer& receive, std::uint64_t key) override;
  void cancel(tcp::Transfer& receive) override;
  bool progress(std::vector<Ended>& ended) override;
  void drop(std::int32_t rank) override;
  bool busy() const override { return in_flight_ > 0; }
  void abandon(std::vector<Ended>& ended) override;

  int descriptor() const override { return context_ == nullptr ? -1 : context_->descriptor(); }
  bool prepare_wait() override;

 private:
  // What UCX calls back with: one record a transfer, used again.
  struct Flight {
    Carrier* carrier = nullptr;
    tcp::Transfer* transfer = nullptr;
    void* request = nullptr;
    Flight* next = nullptr;
  };
  struct Endpoint {
    ucp_ep_h handle = nullptr;
    ucs_status_t failed = UCS_OK;
    Carrier* carrier = nullptr;
  };
  static void on_sent(void* request, ucs_status_t status, void* flight);
  static void on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* flight);
  static void on_failure(void* endpoint, ucp_ep_h handle, ucs_status_t status);

  Flight& take_flight(tcp::Transfer& transfer);
  void started(Flight& flight, ucs_status_ptr_t result);
  void end(Flight& flight, ucs_status_t status);
  void cancel_failed();
  void cancel_receives(std::int32_t rank);
  void close_endpoint(Endpoint& endpoint);
  void close_all();
  bool drain_closes();

  std::vector<Endpoint> endpoints_;  // by rank
  std::vector<ucs_status_ptr_t> closing_;
  std::unique_ptr<Context> context_;
  std::vector<std::unique_ptr<Flight>> flights_;
  Flight* free_ = nullptr;
  std::size_t in_flight_ = 0;
  unsigned quiet_calls_ = 0;  // of progress, since a transfer was under way
  std::vector<Ended> ended_;  // since the last progress
  bool failure_is_new_ = false;
  std::string lanes_;
};

}  // namespace ringattn::ucx
