#include "comm/meeting_host.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <new>
#include <system_error>

#include "base/fork_guard.h"
#include "comm/meeting_listen.h"
#include "comm/meeting_room.h"

namespace ringattn::comm {
namespace {

constexpr std::int32_t kMostRanks = 4096;

// Listens where the options say, and which addresses ranks may dial to get there.
Status listen_by(const HostOptions& options, Listening& listening, std::vector<Address>& dial) {
  const int backlog = std::max(128, 2 * options.world);
  if (options.addresses.empty() && options.interface.empty()) {
    RINGATTN_TRY(own_addresses("", dial));
    return listen_everywhere(options.port, backlog, listening);
  }
  dial = options.addresses;
  if (dial.empty()) RINGATTN_TRY(own_addresses(options.interface, dial));
  RINGATTN_TRY(listen_at(dial, options.port, backlog, listening));
  dial = listening.at;
  return {};
}

Status check(const HostOptions& options) {
  if (options.world < 1 || options.world > kMostRanks) {
    return invalid("world: " + std::to_string(options.world) + ", expected 1..4096");
  }
  if (options.handshake_ms < 1 || options.handshake_ms > 600'000) {
    return invalid("handshake_ms: " + std::to_string(options.handshake_ms) + ", expected 1..600000");
  }
  return {};
}

}  // namespace

Status MeetingHost::start(const HostOptions& options, std::unique_ptr<MeetingHost>& out) {
  out.reset();
  RINGATTN_TRY(check(options));
  RINGATTN_TRY(start_crypto());
  Listening listening;
  std::vector<Address> dial;
  RINGATTN_TRY(listen_by(options, listening, dial));

  std::unique_ptr<MeetingHost> host(new MeetingHost());
  host->generation_ = process_generation();
  const Key secret = options.secret ? *options.secret : Key::random();
  host->id_ = UniqueId::make(secret, listening.port, dial);
  host->wake_ = Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!host->wake_.open()) return {RINGATTN_ERR_TRANSPORT, "meeting: eventfd: " + errno_text(errno)};
  RoomSettings settings;
  settings.world = options.world;
  settings.timeout_ms = options.timeout_ms;
  settings.handshake_ns = static_cast<std::uint64_t>(options.handshake_ms) * 1'000'000;
  settings.place = endpoint_text(dial.front(), listening.port);
  RINGATTN_TRY(host->start_thread(std::make_unique<MeetingRoom>(
      std::move(settings), secret, std::move(listening.sockets), host->wake_.fd())));
  out = std::move(host);
  return {};
}

Status MeetingHost::start_thread(std::unique_ptr<MeetingRoom> room) {
  // The program's signals are not this thread's business.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Status status;
  try {
    thread_ = std::thread([this, room = std::move(room)]() mutable {
      Status ending;
      try {
        ending = room->run();
      } catch (const std::bad_alloc&) {
        ending = {RINGATTN_ERR_OUT_OF_MEMORY, "meeting: the host has no memory left"};
      }
      room.reset();  // connections are closed before anybody hears that it is over
      const std::lock_guard lock(mutex_);
      status_ = std::move(ending);
      over_ = true;
      ended_.notify_all();
    });
  } catch (const std::system_error& error) {
    status = {RINGATTN_ERR_TRANSPORT, std::string("meeting: no thread for the host: ") + error.what()};
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

MeetingHost::~MeetingHost() {
  if (!thread_.joinable()) return;
  if (generation_ != process_generation()) {
    thread_.detach();  // the thread runs in the parent alone, whose meeting goes on
    return;
  }
  const std::uint64_t one = 1;
  // Cannot fail: the counter is far from its end.
  [[maybe_unused]] const ssize_t written = write(wake_.fd(), &one, sizeof one);
  thread_.join();
}

Status MeetingHost::wait(std::int64_t timeout_ms) {
  std::unique_lock lock(mutex_);
  const auto over = [this] { return over_; };
  if (timeout_ms < 0) {
    ended_.wait(lock, over);
  } else if (!ended_.wait_for(lock, std::chrono::milliseconds(timeout_ms), over)) {
    return {RINGATTN_ERR_TIMEOUT, "meeting: still going on after " + std::to_string(timeout_ms) +
                                      " ms, expected all ranks to have left"};
  }
  return status_;
}

}  // namespace ringattn::comm
