#include "comm/join_words.h"

#include <algorithm>
#include <charconv>

namespace ringattn::comm {
namespace {

constexpr const char* kVersion = "ringattn-join 1";
constexpr std::size_t kMostWho = 128;  // it goes into messages

std::string hex(const std::string& bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string out;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    out += digits[value >> 4];
    out += digits[value & 15];
  }
  return out;
}

bool unhex(const std::string& text, std::string& out) {
  if (text.size() % 2 != 0) return false;
  out.clear();
  for (std::size_t i = 0; i < text.size(); i += 2) {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(text.data() + i, text.data() + i + 2, value, 16);
    if (error != std::errc() || end != text.data() + i + 2) return false;
    out += static_cast<char>(value);
  }
  return true;
}

std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text.substr(0, 512);
}

bool number(const std::string& text, std::int32_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

// Takes the next line off `rest`: its first word and what follows it.
bool next_line(std::string& rest, std::string& name, std::string& value) {
  const std::size_t end = rest.find('\n');
  if (end == std::string::npos) return false;
  const std::string line = rest.substr(0, end);
  rest.erase(0, end + 1);
  const std::size_t space = line.find(' ');
  name = line.substr(0, space);
  value = space == std::string::npos ? std::string() : line.substr(space + 1);
  return true;
}

bool has_version(std::string& rest) {
  const std::string first = std::string(kVersion).append("\n");
  if (rest.compare(0, first.size(), first) != 0) return false;
  rest.erase(0, first.size());
  return true;
}

// "NAME SCORE WHY": why it cannot run may be empty.
bool read_offer(const std::string& value, Offer& out) {
  const std::size_t first = value.find(' ');
  if (first == std::string::npos) return false;
  const std::size_t second = std::min(value.find(' ', first + 1), value.size());
  out.name = value.substr(0, first);
  out.why_not = second < value.size() ? value.substr(second + 1) : std::string();
  return number(value.substr(first + 1, second - first - 1), out.score);
}

const Offer* find(const Introduction& rank, const std::string& name) {
  const auto at = std::find_if(rank.offers.begin(), rank.offers.end(),
                               [&](const Offer& offer) { return offer.name == name; });
  return at == rank.offers.end() ? nullptr : &*at;
}

// The least score of a transport over all ranks; 0 where one cannot run it, and then why.
std::int32_t least_score(const std::vector<Introduction>& ranks, const std::string& name, Status& why) {
  std::int32_t least = 0x7fffffff;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const Offer* offer = find(ranks[r], name);
    const std::string who = "\"" + name + "\" on rank " + std::to_string(r);
    if (offer == nullptr) {
      why = {RINGATTN_ERR_NOT_FOUND,
             "transport: " + who + " does not exist, expected one that every rank has"};
      return 0;
    }
    if (offer->score <= 0) {
      why = unsupported("transport: " + who + " cannot run: " + offer->why_not);
      return 0;
    }
    least = std::min(least, offer->score);
  }
  return least;
}

}  // namespace

std::string encode(const Introduction& introduction) {
  std::string out = std::string(kVersion).append("\n");
  out += "rank " + std::to_string(introduction.rank) + "\n";
  out += "world " + std::to_string(introduction.world) + "\n";
  out += "wish " + one_line(introduction.wish) + "\n";
  out += "who " + one_line(introduction.who) + "\n";
  out += "group " + hex(introduction.group) + "\n";
  out += "secret " + hex(introduction.secret) + "\n";
  for (const Offer& offer : introduction.offers) {
    out += "offer " + offer.name + " " + std::to_string(offer.score) + " " + one_line(offer.why_not) + "\n";
  }
  return out;
}

bool decode(const std::string& text, Introduction& out) {
  out = Introduction();
  std::string rest = text, name, value;
  if (!has_version(rest)) return false;
  while (next_line(rest, name, value)) {
    bool good = true;
    if (name == "rank") good = number(value, out.rank);
    if (name == "world") good = number(value, out.world);
    if (name == "wish") out.wish = value;
    if (name == "who") out.who = value.substr(0, kMostWho);
    if (name == "group") good = unhex(value, out.group);
    if (name == "secret") good = unhex(value, out.secret);
    if (name == "offer") good = read_offer(value, out.offers.emplace_back());
    if (!good) return false;
  }
  return out.world > 0;
}

std::string encode(const Outcome& outcome) {
  return std::string(kVersion)
      .append("\nstatus ")
      .append(std::to_string(outcome.status.code()))
      .append("\nmessage ")
      .append(one_line(outcome.status.message()))
      .append("\n\n")
      .append(outcome.data);
}

bool decode(const std::string& text, Outcome& out) {
  std::string rest = text, name, value, message;
  std::int32_t code = 0;
  if (!has_version(rest) || !next_line(rest, name, value) || name != "status" || !number(value, code) ||
      !next_line(rest, name, message) || name != "message" || !next_line(rest, name, value) ||
      !name.empty()) {
    return false;
  }
  out = {Status(code, message), rest};
  return true;
}

Status judge(const std::vector<Outcome>& outcomes, std::int32_t own, const char* what) {
  const Status& mine = outcomes[static_cast<std::size_t>(own)].status;
  if (!mine.ok()) return mine;
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    const Status& other = outcomes[r].status;
    if (other.ok()) continue;
    return {RINGATTN_ERR_PEER_REFUSED,
            "rank " + std::to_string(r) + " could not " + what + ": " + other.message()};
  }
  return {};
}

Status agree_on_transport(const std::vector<Introduction>& ranks, std::string& name) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto differs = [&](const std::string& field, const std::string& a, const std::string& b) {
      return Status(RINGATTN_ERR_RANK_MISMATCH, field + ": rank 0 has " + a + ", rank " + std::to_string(r) +
                                                    " has " + b + "; expected the same on every rank");
    };
    if (ranks[r].world != ranks[0].world)
      return differs("world_size", std::to_string(ranks[0].world), std::to_string(ranks[r].world));
    if (ranks[r].rank != static_cast<std::int32_t>(r)) {
      return {RINGATTN_ERR_RANK_MISMATCH, "rank: the all-gather's place " + std::to_string(r) + " has rank " +
                                              std::to_string(ranks[r].rank) + ", expected that number"};
    }
    if (ranks[r].wish != ranks[0].wish)
      return differs("transport", "\"" + ranks[0].wish + "\"", "\"" + ranks[r].wish + "\"");
  }
  Status why;
  std::int32_t best = 0;
  std::string reasons;
  for (const Offer& offer : ranks[0].offers) {
    if (!ranks[0].wish.empty() && offer.name != ranks[0].wish) continue;
    const std::int32_t score = least_score(ranks, offer.name, why);
    if (score <= 0) reasons += (reasons.empty() ? "" : "; ") + why.message();
    if (score <= best) continue;
    best = score;
    name = offer.name;
  }
  if (best > 0) return {};
  if (!ranks[0].wish.empty()) {
    if (why.ok()) least_score(ranks, ranks[0].wish, why);
    return why;
  }
  return unsupported("transport: none connects processes on every rank: " + reasons);
}

}  // namespace ringattn::comm
