// Rows of shard, unshard and merge.
#include "tests/api/wrong_use_table.h"

namespace ringattn::wrong_use {
namespace {

constexpr ringattn_status kInvalid = RINGATTN_ERR_INVALID_ARGUMENT;

// q is the source, d_q the target; of one rank both have the same shape.
void add_shard_rows(Rows& rows, const std::string& function, bool to_local) {
  struct Use {
    const ringattn_plan* plan;
    std::int32_t axis = 0, rank = 0;
    const ringattn_tensor *from, *to;
  };
  const auto row = [&](const std::string& field, const std::string& what, std::vector<std::string> words,
                       const std::function<void(Shards&, Use&)>& change, ringattn_status status = kInvalid) {
    rows.push_back({function, field, what, status, std::move(words), [=](Bench& b) {
                      Shards& s = b.batch.shards(0);
                      Use use{b.batch.plan(0), 0, 0, &s.view[kQ].value, &s.view[kDq].value};
                      change(s, use);
                      return (to_local ? ringattn_shard : ringattn_unshard)(use.plan, use.axis, use.rank,
                                                                            nullptr, use.from, use.to);
                    }});
  };
  const std::string from = to_local ? "global" : "local", to = to_local ? "local" : "global";
  row("plan", "NULL", {"plan: NULL"}, [](Shards&, Use& u) { u.plan = nullptr; });
  row(from, "NULL", {from + ": NULL"}, [](Shards&, Use& u) { u.from = nullptr; });
  row(to, "NULL", {to + ": NULL"}, [](Shards&, Use& u) { u.to = nullptr; });
  for (const std::int32_t v : {-1, 2, kMost32})
    row("axis", std::to_string(v), {"axis: " + std::to_string(v)}, [v](Shards&, Use& u) { u.axis = v; });
  for (const std::int32_t v : {-1, 1, kMost32})
    row("rank", std::to_string(v), {"rank: " + std::to_string(v)}, [v](Shards&, Use& u) { u.rank = v; });
  const std::pair<std::string, int> sides[] = {{from, kQ}, {to, kDq}};
  for (const auto& [name, id] : sides) {
    const auto tensor = [&, id = id](const char* field, const std::string& what,
                                     std::vector<std::string> words,
                                     const std::function<void(ringattn_tensor&)>& change) {
      row(std::string("ringattn_tensor.") + field, what, std::move(words),
          [change, id](Shards& s, Use&) { change(s.view[id].value); });
    };
    for (const Bend<ringattn_tensor>& bend : size_bends<ringattn_tensor>("ringattn_tensor", name))
      row(
          bend.field, bend.what, bend.words, [bend, id = id](Shards& s, Use&) { bend.bend(s.view[id]); },
          bend.status);
    for (const std::int32_t v : {0, -1, 6, kMost32})
      tensor("dtype", std::to_string(v), {name + ".dtype: " + std::to_string(v)},
             [v](auto& t) { t.dtype = v; });
    tensor("device_type", "1", {name + ".device_type"}, [](auto& t) { t.device_type = 1; });
    tensor("flags", "2", {name + ".flags: 2"}, [](auto& t) { t.flags = 2; });
    tensor("data", "NULL", {name + ".data: NULL"}, [](auto& t) { t.data = nullptr; });
    for (const std::int64_t v : {std::int64_t{0}, std::int64_t{11}, std::int64_t{-1}})
      tensor("shape", "seq " + std::to_string(v), {name + ".shape[1] (seq): " + std::to_string(v)},
             [v](auto& t) { t.shape[1] = v; });
    for (const std::int64_t v : {std::int64_t{1}, std::int64_t{3}, std::int64_t{-1}, kMost})
      tensor("shape", "batch " + std::to_string(v), {name + ".shape[0] (batch): " + std::to_string(v)},
             [v](auto& t) { t.shape[0] = v; });
    tensor("stride", "inner 2", {name + ".stride[3] (dim): 2"}, [](auto& t) { t.stride[3] = 2; });
    tensor("stride", "negative", {name + ".stride[1]: -64"}, [](auto& t) { t.stride[1] = -64; });
    tensor("stride", "overflow", {name + ".shape, .stride"}, [](auto& t) { t.stride[0] = kMost; });
  }
  row("ringattn_tensor.stride", "0 of what is written", {to + ".stride"},
      [](Shards& s, Use&) { s.view[kDq].value.stride[1] = 0; });
  row("ringattn_tensor.dtype", "not that of the other", {"local.dtype", "BF16"},
      [to_local](Shards& s, Use&) { s.view[to_local ? kQ : kDq].value.dtype = RINGATTN_DTYPE_BF16; });
  row("ringattn_tensor.shape", "heads unequal", {"local.shape[2] (head)"},
      [](Shards& s, Use&) { s.view[kQ].value.shape[2] = 3; });
  row("ringattn_tensor.shape", "dim unequal", {"local.shape[3] (dim)"},
      [](Shards& s, Use&) { s.view[kQ].value.shape[3] = 15; });
  row("ringattn_tensor.data", "both the same", {"overlaps"},
      [](Shards& s, Use&) { s.view[kDq].value.data = s.view[kQ].value.data; });
  row("ringattn_tensor.data", "one byte in common", {"overlaps"}, [](Shards& s, Use&) {
    s.view[kDq].value.data = static_cast<std::byte*>(s.view[kQ].value.data) + bytes_of(s.fresh(kQ)) - 1;
  });
}

// Merges o and d_o (their lse: lse and d_lse) into out o and out lse.
void add_merge_rows(Rows& rows) {
  static constexpr int kIds[] = {kO, kLse, kDo, kDlse, kOutO, kOutLse};
  static const char* const kNames[] = {"o_a", "lse_a", "o_b", "lse_b", "o", "lse"};
  const auto row = [&](const std::string& field, const std::string& what, std::vector<std::string> words,
                       const std::function<void(Shards&, const ringattn_tensor**)>& change,
                       ringattn_status status = kInvalid) {
    rows.push_back({"ringattn_merge", field, what, status, std::move(words), [=](Bench& b) {
                      Shards& s = b.batch.shards(0);
                      const ringattn_tensor* t[6];
                      for (int i = 0; i < 6; ++i) t[i] = &s.view[kIds[i]].value;
                      change(s, t);
                      return ringattn_merge(b.batch.context(), t[0], t[1], t[2], t[3], t[4], t[5]);
                    }});
  };
  rows.push_back({"ringattn_merge", "context", "NULL", kInvalid, {"context: NULL"}, [](Bench& b) {
                    Shards& s = b.batch.shards(0);
                    return ringattn_merge(nullptr, &s.view[kO].value, &s.view[kLse].value, &s.view[kDo].value,
                                          &s.view[kDlse].value, &s.view[kOutO].value, &s.view[kOutLse].value);
                  }});
  for (int i = 0; i < 6; ++i) {
    const std::string name = kNames[i];
    const int id = kIds[i];
    const bool is_lse = i % 2 == 1, output = i >= 4;
    row(name, "NULL", {name + ": NULL"}, [i](Shards&, const ringattn_tensor** t) { t[i] = nullptr; });
    for (const Bend<ringattn_tensor>& bend : size_bends<ringattn_tensor>("ringattn_tensor", name))
      row(
          bend.field, bend.what, bend.words, [bend, id](Shards& s, auto) { bend.bend(s.view[id]); },
          bend.status);
    const auto tensor = [&](const char* field, const std::string& what, std::vector<std::string> words,
                            const std::function<void(ringattn_tensor&)>& change) {
      row(std::string("ringattn_tensor.") + field, std::string(name).append(" ").append(what),
          std::move(words), [change, id](Shards& s, auto) { change(s.view[id].value); });
    };
    for (const std::int32_t v : {0, -1, 4, 5, 6, kMost32})
      tensor("dtype", std::to_string(v), {name + ".dtype: "}, [v](auto& t) { t.dtype = v; });
    if (is_lse) tensor("dtype", "BF16", {name + ".dtype: 3"}, [](auto& t) { t.dtype = RINGATTN_DTYPE_BF16; });
    tensor("device_id", "1", {name + ".device_type, .device_id"}, [](auto& t) { t.device_id = 1; });
    tensor("flags", "4", {name + ".flags: 4"}, [](auto& t) { t.flags = 4; });
    tensor("data", "NULL", {name + ".data: NULL"}, [](auto& t) { t.data = nullptr; });
    tensor("shape", "negative", {name + ".shape[2]"}, [](auto& t) { t.shape[2] = -1; });
    if (i != 0) tensor("shape", "longer", {name + ".shape[0]"}, [](auto& t) { t.shape[0] = 3; });
    if (!is_lse)
      tensor("stride", "inner 2", {name + ".stride[3] (dim): 2"}, [](auto& t) { t.stride[3] = 2; });
    tensor("stride", "negative", {name + ".stride[0]: -1"}, [](auto& t) { t.stride[0] = -1; });
    tensor("stride", "overflow", {name + ".shape, .stride"}, [](auto& t) { t.stride[0] = kMost; });
    if (output) tensor("stride", "0", {name + ".stride"}, [](auto& t) { t.stride[1] = 0; });
    for (int out = 4; out < 6; ++out) {
      if (out == i || (out == 4 && i == 0) || (out == 5 && i == 1)) continue;  // in place is legal
      const bool both_outputs = out == 4 && i == 5;  // of these the later is named first
      std::string words = both_outputs ? "lse" : kNames[out];
      words.append(".data: overlaps ").append(both_outputs ? "o" : kNames[i]);
      row("ringattn_tensor.data", words, {words},
          [out, id](Shards& s, auto) { s.view[kIds[out]].value.data = s.view[id].value.data; });
    }
  }
  row("ringattn_tensor.data", "o one byte into o_a", {"o.data: overlaps o_a"},
      [](Shards& s, auto) { s.view[kOutO].value.data = static_cast<std::byte*>(s.view[kO].value.data) + 1; });
  row("ringattn_tensor.stride", "o in place of o_a, in another order", {"o.data: overlaps o_a"},
      [](Shards& s, auto) {
        ringattn_tensor& o = s.view[kOutO].value;
        o.data = s.view[kO].value.data;
        o.stride[2] = 96;
        o.stride[1] = 8;
      });
}

}  // namespace

Rows rows_of_copies() {
  Rows rows;
  add_shard_rows(rows, "ringattn_shard", true);
  add_shard_rows(rows, "ringattn_unshard", false);
  add_merge_rows(rows);
  return rows;
}

}  // namespace ringattn::wrong_use
