#include "run_hosts.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <map>
#include <string_view>

#include "error.h"
#include "rank_environment.h"

namespace ringattn::tool {
namespace {

constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

bool is_v6(const std::string& text) {
  in6_addr address;
  return inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

bool is_loopback(const std::string& host) {
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  return strcasecmp(host.c_str(), "localhost") == 0;
}

// Of an interface of this machine?
bool is_own_address(const std::string& host) {
  in_addr v4;
  in6_addr v6;
  const bool has_v4 = inet_pton(AF_INET, host.c_str(), &v4) == 1;
  const bool has_v6 = inet_pton(AF_INET6, host.c_str(), &v6) == 1;
  ifaddrs* all = nullptr;
  if ((!has_v4 && !has_v6) || getifaddrs(&all) != 0) return false;
  bool found = false;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    if (has_v4 && one->ifa_addr->sa_family == AF_INET)
      found |= reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr.s_addr == v4.s_addr;
    if (has_v6 && one->ifa_addr->sa_family == AF_INET6)
      found |= IN6_ARE_ADDR_EQUAL(&reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr, &v6);
  }
  freeifaddrs(all);
  return found;
}

// "a" and "a.example" are the same machine; "a.example" and "a.other" are not.
bool is_own_name(const std::string& host) {
  char name[HOST_NAME_MAX + 1] = {};
  if (gethostname(name, sizeof name - 1) != 0) return false;
  std::string own = name, other = host;
  if (own.find('.') == std::string::npos || other.find('.') == std::string::npos) {
    own.resize(std::min(own.find('.'), own.size()));
    other.resize(std::min(other.find('.'), other.size()));
  }
  return strcasecmp(own.c_str(), other.c_str()) == 0;
}

bool is_name(std::string_view text) {
  return !text.empty() && text.front() != '-' && text.find_first_not_of(kLetters) == std::string_view::npos;
}

// False where it is none.
bool parse_entry(const std::string& text, HostEntry& out) {
  const std::size_t at = text.find('@');
  const std::string user = at == std::string::npos ? "" : text.substr(0, at);
  std::string rest = at == std::string::npos ? text : text.substr(at + 1);
  if (at != std::string::npos && !is_name(user)) return false;
  if (!rest.empty() && rest.front() == '[') {
    const std::size_t end = rest.find(']');
    if (end == std::string::npos) return false;
    out.host = rest.substr(1, end - 1);
    rest.erase(0, end + 1);
    if (!is_v6(out.host)) return false;
  } else {
    out.host = rest.substr(0, rest.find(':'));
    rest.erase(0, out.host.size());
    if (!is_name(out.host)) return false;
  }
  if (!rest.empty()) {
    const char* end = rest.data() + rest.size();
    const auto [stop, error] = std::from_chars(rest.data() + 1, end, out.slots);
    if (rest.front() != ':' || error != std::errc() || stop != end) return false;
    if (out.slots < 1 || out.slots > kMostRanks) return false;
  }
  out.target = user.empty() ? out.host : user + "@" + out.host;
  // Another user's ranks take the remote shell even here.
  out.here = user.empty() && (is_loopback(out.host) || is_own_name(out.host) || is_own_address(out.host));
  return true;
}

std::string place_text(const std::string& host, std::uint16_t port) {
  return is_v6(host) ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

// Of host:port, without brackets.
std::string host_of(const std::string& place) {
  std::string host = place.substr(0, place.rfind(':'));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return host;
}

}  // namespace

std::vector<HostEntry> parse_host_list(const std::string& text) {
  std::vector<HostEntry> hosts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string entry = text.substr(begin, end - begin);
    HostEntry host;
    if (!parse_entry(entry, host)) {
      throw BadInput(fmt::format(
          "--host-list \"{}\": entry {} is \"{}\", expected host or host:slots, with 1 to {} slots", text,
          hosts.size() + 1, entry, kMostRanks));
    }
    hosts.push_back(host);
    begin = end + 1;
  }
  return hosts;
}

std::vector<Seat> seats_here(int ranks) {
  std::vector<Seat> seats;
  for (int rank = 0; rank < ranks; ++rank) seats.push_back({"", rank});
  return seats;
}

std::vector<Seat> seats_on(const std::vector<HostEntry>& hosts, std::optional<int> ranks) {
  std::int64_t slots = 0;
  for (const HostEntry& host : hosts) slots += host.slots;
  if (ranks && *ranks > slots)
    throw BadInput(fmt::format("-n {}: expected at most {}, the slots of --host-list", *ranks, slots));
  if (!ranks && slots > kMostRanks)
    throw BadInput(fmt::format("--host-list: {} slots, expected at most {}, or -n", slots, kMostRanks));
  const auto wanted = static_cast<std::size_t>(ranks ? *ranks : slots);
  std::vector<Seat> seats;
  std::map<std::string, int> taken;
  for (const HostEntry& host : hosts) {
    const std::string target = host.here ? "" : host.target;
    for (int slot = 0; slot < host.slots && seats.size() < wanted; ++slot)
      seats.push_back({target, taken[target]++});
  }
  return seats;
}

std::string meeting_place(const std::vector<HostEntry>& hosts, const std::vector<Seat>& seats,
                          const std::string& rendezvous) {
  const auto is_used = [&](const HostEntry& host) {
    return std::any_of(seats.begin(), seats.end(),
                       [&](const Seat& seat) { return seat.target == host.target; });
  };
  const bool beyond = std::any_of(hosts.begin(), hosts.end(), [&](const HostEntry& host) {
    return is_used(host) && !is_loopback(host.host);
  });
  if (!rendezvous.empty()) {
    if (beyond && is_loopback(host_of(rendezvous)))
      throw BadInput(
          fmt::format("--rendezvous \"{}\": expected a place that the other hosts can reach", rendezvous));
    return rendezvous;
  }
  if (std::all_of(seats.begin(), seats.end(), [](const Seat& seat) { return seat.here(); })) return "";
  const HostEntry& first = hosts.front();
  if (beyond && is_loopback(first.host)) {
    throw BadInput(fmt::format(
        "--host-list: the first host is \"{}\", expected a name or an address of it that the other "
        "hosts can reach, or --rendezvous",
        first.host));
  }
  return place_text(first.host, first.here ? free_port() : kMeetingPort);
}

}  // namespace ringattn::tool
