#include "transports/ucx/lanes.h"

#include <dirent.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <sstream>

namespace ringattn::ucx {
namespace {

bool has_rdma() {
  DIR* const folder = ::opendir("/sys/class/infiniband");
  if (folder == nullptr) return false;
  bool any = false;
  for (const dirent* entry = ::readdir(folder); entry != nullptr; entry = ::readdir(folder)) {
    any = any || entry->d_name[0] != '.';
  }
  ::closedir(folder);
  return any;
}

// UCX opens a listening socket on every interface that it may use.
std::string devices_of(const std::vector<tcp::CarrierPeer>& peers) {
  std::set<std::string> names;
  for (const tcp::CarrierPeer& peer : peers) {
    if (!peer.device.empty()) names.insert(peer.device);
  }
  std::string list;
  for (const std::string& name : names) list.append(list.empty() ? "" : ",").append(name);
  return list;
}

}  // namespace

bool settings_of(int attempt, const std::vector<tcp::CarrierPeer>& peers, Settings& settings) {
  const bool any_near = std::any_of(peers.begin(), peers.end(), [](const auto& peer) { return peer.near; });
  const bool all_near = std::all_of(peers.begin(), peers.end(), [](const auto& peer) { return peer.near; });
  // Another attempt with the user's own list would be the same one.
  if (attempt > 1 || (attempt == 1 && (!any_near || std::getenv("UCX_TLS") != nullptr))) return false;
  const bool network = attempt == 1 || !all_near, shared = attempt == 0 && any_near,
             rdma = network && has_rdma();
  std::string lanes = "self";
  if (shared) lanes += ",posix,cma";
  if (network) lanes += ",tcp";
  if (rdma) lanes += ",rc,ud";
  settings = {{"TLS", lanes},
              // Without these two UCX takes neither for endpoints that report failures.
              {"MM_ERROR_HANDLING", "y"},
              {"MEMORY_INVALIDATE", "y"},
              {"KEEPALIVE_INTERVAL", "1s"}};
  // Over TCP the answer to a rendezvous waits behind the data that goes the other way: both directions of a ring then take
  // turns. Our receives are posted before their data is sent, so that an eager message finds its place too.
  if (network && !rdma && !shared) settings.emplace_back("RNDV_THRESH", "inf");
  const std::string devices = devices_of(peers);
  if (network && !rdma && !devices.empty()) settings.emplace_back("NET_DEVICES", devices);
  return true;
}

void add_lanes(ucp_ep_h endpoint, std::string& lanes) {
  char* text = nullptr;
  std::size_t bytes = 0;
  std::FILE* const stream = open_memstream(&text, &bytes);
  if (stream == nullptr) return;
  ucp_ep_print_info(endpoint, stream);
  std::fclose(stream);
  // "#  lane[0]:  2:posix/memory.0 md[1] ..."
  std::istringstream lines{std::string(text, bytes)};
  std::free(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t lane = line.find("lane["), slash = line.find('/', lane == std::string::npos ? 0 : lane);
    if (lane == std::string::npos || slash == std::string::npos) continue;
    const std::size_t colon = line.rfind(':', slash);
    if (colon == std::string::npos) continue;
    const std::string name = line.substr(colon + 1, slash - colon - 1);
    if ((", " + lanes + ",").find(", " + name + ",") != std::string::npos) continue;
    lanes.append(lanes.empty() ? "" : ", ").append(name);
  }
}

}  // namespace ringattn::ucx
