#include "transports/ucx/carrier.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "transports/ucx/lanes.h"

namespace ringattn::ucx {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kCloseLimit{1000};
// Progress of a worker is a system call for each network device, between tiles of a rank that computes. Where no transfer
// is under way nothing but UCX's own housekeeping waits for it: after some calls (what has ended for us may still be in
// UCX's buffers) one of several is enough.
constexpr unsigned kQuietAfter = 64, kQuietStep = 16;

}  // namespace

Carrier::Carrier(std::int32_t world_size) : endpoints_(static_cast<std::size_t>(world_size)) {}

// ---- connecting -----------------------------------------------------------------------------------------

bool Carrier::open(int attempt, const std::vector<tcp::CarrierPeer>& peers, std::string& address,
                   std::string& error) {
  close_all();
  lanes_.clear();
  Settings settings;
  if (!settings_of(attempt, peers, settings)) return false;
  context_.reset(Context::open(settings, error));
  if (context_ == nullptr) return false;
  address = context_->address();
  if (address.empty()) error = "no address of the worker";
  return !address.empty();
}

bool Carrier::connect(std::int32_t rank, const std::string& address, std::string& error) {
  Endpoint& endpoint = endpoints_[static_cast<std::size_t>(rank)];
  endpoint = {nullptr, UCS_OK, this};
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  // Without it a request with a dead peer never ends.
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {on_failure, &endpoint};
  const ucs_status_t status = ucp_ep_create(context_->worker(), &params, &endpoint.handle);
  if (status != UCS_OK) {
    endpoint.handle = nullptr;
    error = text_of(status);
    return false;
  }
  add_lanes(endpoint.handle, lanes_);
  return true;
}

std::string Carrier::description() const { return lanes_.empty() ? "no lanes" : lanes_; }

// ---- transfers ------------------------------------------------------------------------------------------

Carrier::Flight& Carrier::take_flight(tcp::Transfer& transfer) {
  if (free_ == nullptr) {
    flights_.push_back(std::make_unique<Flight>());
    flights_.back()->carrier = this;
    free_ = flights_.back().get();
    ended_.reserve(flights_.size());
  }
  Flight& flight = *free_;
  free_ = flight.next;
  flight.transfer = &transfer;
  flight.request = nullptr;
  ++in_flight_;
  return flight;
}

void Carrier::send(tcp::Transfer& send, std::uint64_t key) {
  const Endpoint& endpoint = endpoints_[static_cast<std::size_t>(send.peer)];
  Flight& flight = take_flight(send);
  if (endpoint.handle == nullptr || endpoint.failed != UCS_OK)
    return end(flight, endpoint.failed == UCS_OK ? UCS_ERR_NOT_CONNECTED : endpoint.failed);
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = on_sent;
  params.user_data = &flight;
  started(flight, ucp_tag_send_nbx(endpoint.handle, send.data, send.bytes, key, &params));
}

void Carrier::receive(tcp::Transfer& receive, std::uint64_t key) {
  Flight& flight = take_flight(receive);
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.recv = on_received;
  params.user_data = &flight;
  started(flight,
          ucp_tag_recv_nbx(context_->worker(), receive.data, receive.bytes, key, ~std::uint64_t{0}, &params));
}

// The callback comes only where a request was made.
void Carrier::started(Flight& flight, ucs_status_ptr_t result) {
  if (UCS_PTR_IS_PTR(result)) {
    if (flight.transfer == nullptr) return ucp_request_free(result);  // has ended inside the call
    flight.request = result;
    return;
  }
  end(flight, result == nullptr ? UCS_OK : UCS_PTR_STATUS(result));
}

void Carrier::end(Flight& flight, ucs_status_t status) {
  ended_.push_back({flight.transfer, status == UCS_OK ? nullptr : ucs_status_string(status)});
  if (flight.request != nullptr) ucp_request_free(flight.request);
  flight.transfer = nullptr;
  flight.request = nullptr;
  flight.next = free_;
  free_ = &flight;
  --in_flight_;
}

void Carrier::on_sent(void*, ucs_status_t status, void* given) {
  auto& flight = *static_cast<Flight*>(given);
  flight.carrier->end(flight, status);
}

void Carrier::on_received(void*, ucs_status_t status, const ucp_tag_recv_info_t* info, void* given) {
  auto& flight = *static_cast<Flight*>(given);
  if (status == UCS_OK && info->length != flight.transfer->bytes) status = UCS_ERR_MESSAGE_TRUNCATED;
  flight.carrier->end(flight, status);
}

// Called from inside of progress: here an endpoint must not be closed.
void Carrier::on_failure(void* given, ucp_ep_h, ucs_status_t status) {
  auto& endpoint = *static_cast<Endpoint*>(given);
  endpoint.failed = status;
  endpoint.carrier->failure_is_new_ = true;
}

// UCX ends what is in flight with a failed endpoint, but not the receives that nothing has come for yet.
void Carrier::cancel_failed() {
  failure_is_new_ = false;
  for (std::size_t rank = 0; rank < endpoints_.size(); ++rank) {
    if (endpoints_[rank].failed != UCS_OK) cancel_receives(static_cast<std::int32_t>(rank));
  }
}

void Carrier::cancel_receives(std::int32_t rank) {
  for (const auto& flight : flights_) {
    const tcp::Transfer* const transfer = flight->transfer;
    if (transfer == nullptr || transfer->peer != rank || transfer->kind != RINGATTN_TRANSFER_RECEIVE)
      continue;
    if (flight->request != nullptr) ucp_request_cancel(context_->worker(), flight->request);
  }
}

void Carrier::cancel(tcp::Transfer& receive) {
  for (const auto& flight : flights_) {
    if (flight->transfer == &receive && flight->request != nullptr)
      ucp_request_cancel(context_->worker(), flight->request);
  }
}

bool Carrier::progress(std::vector<Ended>& ended) {
  bool more = false;
  quiet_calls_ = busy() || !closing_.empty() ? 0 : quiet_calls_ + 1;
  const bool quiet = quiet_calls_ > kQuietAfter && quiet_calls_ % kQuietStep != 0;
  if (context_ != nullptr && !quiet) {
    more = ucp_worker_progress(context_->worker()) != 0;
    if (failure_is_new_) cancel_failed();
    drain_closes();
  }
  more = more || !ended_.empty();
  ended.insert(ended.end(), ended_.begin(), ended_.end());
  ended_.clear();
  return more;
}

bool Carrier::prepare_wait() {
  quiet_calls_ = 0;  // whatever ends the wait is to be looked at
  return context_ == nullptr || ucp_worker_arm(context_->worker()) == UCS_OK;
}

// ---- ends -----------------------------------------------------------------------------------------------

// First the receives, which no closed endpoint ends, then the endpoint, which ends the sends: a rendezvous does not end
// by being canceled.
void Carrier::drop(std::int32_t rank) {
  cancel_receives(rank);
  close_endpoint(endpoints_[static_cast<std::size_t>(rank)]);
}

void Carrier::close_endpoint(Endpoint& endpoint) {
  if (endpoint.handle == nullptr) return;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t closing = ucp_ep_close_nbx(endpoint.handle, &params);
  if (UCS_PTR_IS_PTR(closing)) closing_.push_back(closing);
  endpoint.handle = nullptr;
}

bool Carrier::drain_closes() {
  closing_.erase(std::remove_if(closing_.begin(), closing_.end(),
                                [](ucs_status_ptr_t closing) {
                                  if (ucp_request_check_status(closing) == UCS_INPROGRESS) return false;
                                  ucp_request_free(closing);
                                  return true;
                                }),
                 closing_.end());
  return closing_.empty();
}

void Carrier::abandon(std::vector<Ended>& ended) {
  ended.insert(ended.end(), ended_.begin(), ended_.end());
  for (const auto& flight : flights_) {
    if (flight->transfer == nullptr) continue;
    ended.push_back({flight->transfer, "it could not be taken back"});
    flight->transfer = nullptr;
  }
}

// A worker that still has something in flight is kept for ever: to destroy it would end the process.
void Carrier::close_all() {
  if (context_ == nullptr) return;
  for (Endpoint& endpoint : endpoints_) close_endpoint(endpoint);
  const auto deadline = Clock::now() + kCloseLimit;
  while ((!drain_closes() || busy()) && Clock::now() < deadline) ucp_worker_progress(context_->worker());
  if (closing_.empty() && !busy()) {
    context_.reset();
  } else {
    static_cast<void>(context_.release());
  }
  std::fill(endpoints_.begin(), endpoints_.end(), Endpoint{});
}

Carrier::~Carrier() { close_all(); }

}  // namespace ringattn::ucx
