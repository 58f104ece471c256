#include "comm/meeting_messages.h"

#include <algorithm>

namespace ringattn::comm {

std::vector<std::uint8_t> write_notice(const Notice& notice) {
  std::vector<std::uint8_t> bytes;
  put(bytes, static_cast<std::uint32_t>(notice.try_again));
  put(bytes, notice.status.code());
  const std::string& text = notice.status.message();
  bytes.insert(bytes.end(), text.begin(), text.end());
  return bytes;
}

Notice read_notice(Bytes bytes) {
  if (bytes.size() < 8) return {false, {RINGATTN_ERR_TRANSPORT, "meeting: notice without a status"}};
  const ringattn_status code = get<std::int32_t>(&bytes[4]);
  const Bytes text = bytes.subspan(8);
  // An error stays one, whatever the host says.
  return {get<std::uint32_t>(bytes.data()) != 0,
          {code < 0 ? code : RINGATTN_ERR_TRANSPORT, std::string(text.begin(), text.end())}};
}

std::size_t most_of_all_parts(std::int32_t world) {
  return static_cast<std::size_t>(world) * (kMostPart + 4);
}

std::vector<std::uint8_t> write_all_parts(const std::vector<std::vector<std::uint8_t>>& parts) {
  std::vector<std::uint8_t> bytes;
  for (const auto& part : parts) {
    put(bytes, static_cast<std::uint32_t>(part.size()));
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  return bytes;
}

bool read_all_parts(Bytes bytes, std::int32_t world, std::vector<std::vector<std::uint8_t>>& out) {
  out.assign(static_cast<std::size_t>(world), {});
  for (auto& part : out) {
    if (bytes.size() < 4) return false;
    const std::size_t size = get<std::uint32_t>(bytes.data());
    bytes = bytes.subspan(4);
    if (size > kMostPart || size > bytes.size()) return false;
    part.assign(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    bytes = bytes.subspan(size);
  }
  return bytes.empty();
}

std::string name_ranks(const std::vector<std::int32_t>& ranks) {
  constexpr std::size_t kNamed = 8;
  const std::size_t named = std::min(ranks.size(), kNamed);
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t i = 0; i < named; ++i) {
    const bool last = i + 1 == ranks.size();
    text += (i == 0 ? " " : last ? " and " : ", ") + std::to_string(ranks[i]);
  }
  if (ranks.size() > named) text += " and " + std::to_string(ranks.size() - named) + " more";
  return text;
}

}  // namespace ringattn::comm
