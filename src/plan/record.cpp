#include "plan/record.h"

#include <charconv>

#include "plan/problem_check.h"

namespace ringattn::plan {
namespace {

// Text, one item a line: "v VERDICT", "r REASON", "f NAME=VALUE", "q FIRST LENGTH STRIDE", "k ...". No
// value holds a line break.

std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

void add_runs(char kind, const std::vector<PositionRun>& runs, std::string& out) {
  for (const PositionRun& run : runs) {
    out += std::string(1, kind) + " " + std::to_string(run.first) + " " + std::to_string(run.length) + " " +
           std::to_string(run.stride) + "\n";
  }
}

bool read_number(std::string_view& text, std::int64_t& out) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool read_item(char kind, std::string_view value, Record& out) {
  if (kind == 'v') {
    std::int64_t verdict = 0;
    if (!read_number(value, verdict)) return false;
    out.verdict = static_cast<ringattn_status>(verdict);
    return true;
  }
  if (kind == 'r') {
    out.reason = std::string(value);
    return true;
  }
  if (kind == 'f') {
    const std::size_t equal = value.find('=');
    if (equal == std::string_view::npos) return false;
    out.fields.emplace_back(std::string(value.substr(0, equal)), std::string(value.substr(equal + 1)));
    return true;
  }
  if (kind != 'q' && kind != 'k') return false;
  PositionRun run{};
  if (!read_number(value, run.first) || !read_number(value, run.length) || !read_number(value, run.stride))
    return false;
  (kind == 'q' ? out.runs_q : out.runs_k).push_back(run);
  return true;
}

std::string difference(const Record& first, const Record& other, std::int32_t rank) {
  const std::size_t common = std::min(first.fields.size(), other.fields.size());
  for (std::size_t i = 0; i < common; ++i) {
    if (first.fields[i] == other.fields[i]) continue;
    if (first.fields[i].first != other.fields[i].first)
      break;  // different kinds of call: named by "call" before
    return first.fields[i].first + ": rank 0 has " + first.fields[i].second + ", rank " +
           std::to_string(rank) + " has " + other.fields[i].second + "; expected the same on every rank";
  }
  if (first.fields.size() == other.fields.size()) return {};
  return "fields: rank 0 gives " + std::to_string(first.fields.size()) + ", rank " + std::to_string(rank) +
         " gives " + std::to_string(other.fields.size()) +
         "; expected the same version of the library on every rank";
}

}  // namespace

std::string encode(const Record& record) {
  std::string out = "v " + std::to_string(record.verdict) + "\n";
  if (!record.reason.empty()) out += "r " + one_line(record.reason) + "\n";
  for (const auto& [name, value] : record.fields) out += "f " + name + "=" + one_line(value) + "\n";
  add_runs('q', record.runs_q, out);
  add_runs('k', record.runs_k, out);
  return out;
}

bool decode(std::string_view text, Record& out) {
  out = Record();
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos || end < 2 || text[1] != ' ') return false;
    if (!read_item(text[0], text.substr(2, end - 2), out)) return false;
    text.remove_prefix(end + 1);
  }
  return true;
}

Status judge(std::span<const Record> records, std::int32_t own) {
  const Record& mine = records[static_cast<std::size_t>(own)];
  if (mine.verdict != RINGATTN_OK) return {mine.verdict, mine.reason};
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    if (records[rank].verdict == RINGATTN_OK) continue;
    return {RINGATTN_ERR_PEER_REFUSED, "rank " + std::to_string(rank) + " refused: " + records[rank].reason};
  }
  for (std::size_t rank = 1; rank < records.size(); ++rank) {
    std::string text = difference(records[0], records[rank], static_cast<std::int32_t>(rank));
    if (!text.empty()) return {RINGATTN_ERR_RANK_MISMATCH, std::move(text)};
  }
  return {};
}

void add_problem_fields(const Problem& p, Record& record) {
  const auto add = [&](const char* name, const std::string& value) {
    record.fields.emplace_back(name, value);
  };
  const auto number = [&](const char* name, std::int64_t value) { add(name, std::to_string(value)); };
  number("batch", p.batch);
  number("seq_q", p.seq_q);
  number("seq_k", p.seq_k);
  number("heads", p.heads);
  number("kv_heads", p.kv_heads);
  number("head_dim_qk", p.head_dim_qk);
  number("head_dim_v", p.head_dim_v);
  number("max_sequences", p.max_sequences);
  add("dtype", dtype_name(p.dtype));
  add("dtype_out", dtype_name(p.dtype_out));
  number("flags: PLAN_BACKWARD", p.backward() ? 1 : 0);
  add("dtype_grad", dtype_name(p.dtype_grad));
  add("mask", mask_words(p));
  number("accuracy", p.accuracy);
  char scale[64];
  const auto [end, error] = std::to_chars(scale, scale + sizeof scale, p.scale);
  add("scale", std::string(scale, error == std::errc() ? end : scale));
  add("partition", partition_words(p));
  add("query_cut", p.query_like_keys ? "like_keys" : "by_index");
  add("scope", scope_name(p.scope));
  number("schedule", p.schedule);
}

}  // namespace ringattn::plan
