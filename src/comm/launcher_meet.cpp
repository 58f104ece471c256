#include "comm/launcher_meet.h"

#include <algorithm>

#include "base/clock.h"

namespace ringattn::comm {
namespace {

// Where rank 0 listens. On many hosts the own name stands for 127.0.1.1 in /etc/hosts, where no other host gets
// to: such a name means all interfaces.
void choose_addresses(const Launch& launch, const std::string& interface, std::vector<Address> resolved,
                      HostOptions& options) {
  Address numeric;
  options.interface = interface;
  if (!interface.empty()) return;
  if (!names_loopback(launch.host) && !parse_address(launch.host, numeric)) {
    resolved.erase(std::remove_if(resolved.begin(), resolved.end(), is_loopback), resolved.end());
  }
  options.addresses = std::move(resolved);
}

}  // namespace

Status meet(const Launch& launch, std::int64_t timeout_ms, std::unique_ptr<MeetingHost>& host,
            std::unique_ptr<Meeting>& meeting) {
  host.reset();
  meeting.reset();
  RINGATTN_TRY(start_crypto());
  const std::uint64_t begin = now_ns();
  const std::uint64_t deadline =
      timeout_ms < 0 ? ~std::uint64_t{0} : begin + static_cast<std::uint64_t>(timeout_ms) * 1'000'000;
  // Loopback has one interface; and a meeting there without a secret must not be seen from outside.
  const std::string interface = names_loopback(launch.host) ? "" : launch.interface;
  std::vector<Address> resolved;
  RINGATTN_TRY(resolve(launch.host, deadline, resolved));
  UniqueId id = UniqueId::make(launch.secret, launch.port, resolved);
  if (launch.rank == 0) {
    HostOptions options;
    options.world = launch.world;
    options.port = launch.port;
    options.timeout_ms = timeout_ms;
    options.secret = launch.secret;
    choose_addresses(launch, interface, std::move(resolved), options);
    RINGATTN_TRY(MeetingHost::start(options, host));
    id = host->id();
  }
  JoinOptions options;
  options.interface = interface;
  if (timeout_ms >= 0) {
    const auto spent = static_cast<std::int64_t>((now_ns() - begin) / 1'000'000);
    options.timeout_ms = std::max<std::int64_t>(timeout_ms - spent, 0);
  } else {
    options.timeout_ms = -1;
  }
  Status status = Meeting::join(id, launch.rank, launch.world, options, meeting);
  if (!status.ok()) host.reset();
  return status;
}

}  // namespace ringattn::comm
