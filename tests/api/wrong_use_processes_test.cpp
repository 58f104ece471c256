// Rows of unique ids and of the three ways to meet. None of them meets anybody: what is wrong is seen before that.
#include <cstdlib>
#include <optional>

#include "tests/api/wrong_use_table.h"

namespace ringattn::wrong_use {
namespace {

constexpr ringattn_status kInvalid = RINGATTN_ERR_INVALID_ARGUMENT;
using Desc = ringattn_comm_desc;

// A good id whose host is gone.
const ringattn_unique_id& good_id() {
  static const ringattn_unique_id id = [] {
    ringattn_context* context = nullptr;
    Ring::require(ringattn_context_create(nullptr, &context));
    Desc desc = RINGATTN_STRUCT(ringattn_comm_desc);
    desc.world_size = 2;
    ringattn_unique_id made;
    Ring::require(ringattn_unique_id_create(context, &desc, &made));
    ringattn_context_destroy(context);
    return made;
  }();
  return id;
}

std::int32_t copy_own(void*, const void* own, std::uint64_t bytes, void* all) {
  std::memcpy(all, own, bytes);
  return 0;
}
std::int32_t never(void*, const void*, std::uint64_t, void*) {
  ADD_FAILURE() << "the all-gather was called";
  return 1;
}

// Sets variables for the time of one call.
class Environment {
 public:
  explicit Environment(const std::vector<std::pair<const char*, const char*>>& variables) {
    for (const auto& [name, value] : variables) {
      const char* const old = std::getenv(name);
      old_.emplace_back(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
      setenv(name, value, 1);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : old_) {
      if (value.has_value()) {
        setenv(name, value->c_str(), 1);
      } else {
        unsetenv(name);
      }
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::vector<std::pair<const char*, std::optional<std::string>>> old_;
};

// One of the functions that take a context and a description, with all other arguments right.
struct Maker {
  const char* function;
  std::function<ringattn_status(ringattn_context*, const Desc*, bool with_out)> call;
};

ringattn_status comm_of(bool with_out, const std::function<ringattn_status(ringattn_comm**)>& make) {
  ringattn_comm* out = reinterpret_cast<ringattn_comm*>(&out);
  const ringattn_status status = make(with_out ? &out : nullptr);
  EXPECT_TRUE(!with_out || out == nullptr);
  return status;
}

std::vector<Maker> makers() {
  const auto create_id = [](ringattn_context* context, const Desc* desc, bool with_out) {
    ringattn_unique_id out;
    std::memset(&out, 0x5a, sizeof out);
    const ringattn_unique_id before = out;
    const ringattn_status status = ringattn_unique_id_create(context, desc, with_out ? &out : nullptr);
    EXPECT_EQ(std::memcmp(&out, &before, sizeof out), 0) << "written";
    return status;
  };
  const auto from_id = [](ringattn_context* context, const Desc* desc, bool with_out) {
    return comm_of(with_out, [&](ringattn_comm** out) {
      return ringattn_comm_create_from_id(context, desc, 0, &good_id(), out);
    });
  };
  const auto from_environment = [](ringattn_context* context, const Desc* desc, bool with_out) {
    return comm_of(with_out, [&](ringattn_comm** out) {
      return ringattn_comm_create_from_environment(context, desc, out);
    });
  };
  const auto from_allgather = [](ringattn_context* context, const Desc* desc, bool with_out) {
    return comm_of(with_out, [&](ringattn_comm** out) {
      return ringattn_comm_create_from_allgather(context, desc, 0, never, nullptr, out);
    });
  };
  return {{"ringattn_unique_id_create", create_id},
          {"ringattn_comm_create_from_id", from_id},
          {"ringattn_comm_create_from_environment", from_environment},
          {"ringattn_comm_create_from_allgather", from_allgather}};
}

void add_desc_rows(Rows& rows, const Maker& maker) {
  const auto call = maker.call;
  const bool may_be_0 = std::string(maker.function) == "ringattn_comm_create_from_environment";
  for (const Bend<Desc>& bend : comm_desc_bends()) {
    if (bend.field == "ringattn_comm_desc.transport") continue;  // known when ranks meet
    if (may_be_0 && bend.field == "ringattn_comm_desc.world_size" && bend.what == "= 0") continue;
    rows.push_back({maker.function, bend.field, bend.what, bend.status, bend.words, [bend, call](Bench& b) {
                      Padded<Desc> desc;
                      desc.value.world_size = 2;
                      bend.bend(desc);
                      return call(b.batch.context(), &desc.value, true);
                    }});
  }
  const auto good = [] {
    Desc desc = RINGATTN_STRUCT(ringattn_comm_desc);
    desc.world_size = 2;
    return desc;
  };
  rows.push_back({maker.function, "context", "NULL", kInvalid, {"context: NULL"}, [=](Bench&) {
                    const Desc desc = good();
                    return call(nullptr, &desc, true);
                  }});
  rows.push_back({maker.function, "desc", "NULL", kInvalid, {"comm_desc: NULL"}, [=](Bench& b) {
                    return call(b.batch.context(), nullptr, true);
                  }});
  rows.push_back({maker.function, "out", "NULL", kInvalid, {"out: NULL"}, [=](Bench& b) {
                    const Desc desc = good();
                    return call(b.batch.context(), &desc, false);
                  }});
}

// Ids of rows are made when a row runs: the list of tests is made without a socket.
using IdOf = const ringattn_unique_id* (*)();
const ringattn_unique_id* no_id() { return nullptr; }
const ringattn_unique_id* zero_id() {
  static const ringattn_unique_id id = {};
  return &id;
}
const ringattn_unique_id* whole_id() { return &good_id(); }
const ringattn_unique_id* damaged_id() {
  static const ringattn_unique_id id = [] {
    ringattn_unique_id bent = good_id();
    bent.bytes[50] ^= 1;
    return bent;
  }();
  return &id;
}

void add_to_text_rows(Rows& rows) {
  const auto row = [&](const char* field, const char* what, IdOf id, bool with_text, std::uint64_t capacity,
                       std::vector<std::string> words) {
    rows.push_back({"ringattn_unique_id_to_text", field, what, kInvalid, std::move(words), [=](Bench&) {
                      char text[RINGATTN_UNIQUE_ID_TEXT] = {1};
                      const ringattn_status status =
                          ringattn_unique_id_to_text(id(), with_text ? text : nullptr, capacity);
                      EXPECT_EQ(text[0], 1) << "written";
                      return status;
                    }});
  };
  row("id", "NULL", no_id, true, RINGATTN_UNIQUE_ID_TEXT, {"id: NULL"});
  row("id", "of zeros", zero_id, true, RINGATTN_UNIQUE_ID_TEXT, {"unique id: version 0"});
  row("text", "NULL", whole_id, false, RINGATTN_UNIQUE_ID_TEXT, {"text: NULL"});
  for (const std::uint64_t capacity : {0u, 1u, 342u})
    row("capacity", "too small", whole_id, true, capacity, {"capacity: " + std::to_string(capacity), "343"});
}

void add_from_text_rows(Rows& rows) {
  using Bent = std::function<std::string(std::string)>;  // of a good text
  const auto row = [&](const char* what, const Bent& bent, std::vector<std::string> words) {
    rows.push_back({"ringattn_unique_id_from_text", "text", what, kInvalid, std::move(words), [=](Bench&) {
                      char good[RINGATTN_UNIQUE_ID_TEXT] = "";
                      EXPECT_EQ(ringattn_unique_id_to_text(&good_id(), good, sizeof good), RINGATTN_OK);
                      ringattn_unique_id out = *zero_id();
                      const ringattn_status status = ringattn_unique_id_from_text(bent(good).c_str(), &out);
                      EXPECT_EQ(std::memcmp(&out, zero_id(), sizeof out), 0) << "written";
                      return status;
                    }});
  };
  row("empty", [](auto) { return std::string(); }, {"unique id: text of 0 characters"});
  row("something else", [](auto) { return std::string("not an id"); }, {"unique id: text of 9 characters"});
  row("the half", [](auto good) { return good.substr(0, 171); }, {"unique id: text of 171 characters"});
  row("twice", [](auto good) { return good + good; }, {"unique id: text of 684 characters"});
  row("one character changed",
      [](auto good) {
        good[100] = good[100] == 'A' ? 'B' : 'A';
        return good;
      },
      {"unique id: damaged"});
  rows.push_back({"ringattn_unique_id_from_text", "text", "NULL", kInvalid, {"text: NULL"}, [](Bench&) {
                    ringattn_unique_id out;
                    return ringattn_unique_id_from_text(nullptr, &out);
                  }});
  rows.push_back({"ringattn_unique_id_from_text", "out", "NULL", kInvalid, {"out: NULL"}, [](Bench&) {
                    return ringattn_unique_id_from_text("", nullptr);
                  }});
}

void add_id_rows(Rows& rows) {
  const auto row = [&](const char* field, const std::string& what, std::vector<std::string> words,
                       std::int32_t rank, IdOf id) {
    rows.push_back({"ringattn_comm_create_from_id", field, what, kInvalid, std::move(words), [=](Bench& b) {
                      Desc desc = RINGATTN_STRUCT(ringattn_comm_desc);
                      desc.world_size = 2;
                      return comm_of(true, [&](ringattn_comm** out) {
                        return ringattn_comm_create_from_id(b.batch.context(), &desc, rank, id(), out);
                      });
                    }});
  };
  for (const std::int32_t rank : {-1, 2, kMost32})
    row("rank", std::to_string(rank), {"rank: " + std::to_string(rank)}, rank, whole_id);
  row("id", "NULL", {"id: NULL"}, 0, no_id);
  row("id", "of zeros", {"unique id: version 0"}, 0, zero_id);
  row("id", "one bit changed", {"unique id: damaged"}, 0, damaged_id);
}

void add_environment_rows(Rows& rows) {
  using Variables = std::vector<std::pair<const char*, const char*>>;
  const auto row = [&](const char* what, std::int32_t world, const Variables& variables,
                       std::vector<std::string> words) {
    rows.push_back({"ringattn_comm_create_from_environment", "environment", what, kInvalid, std::move(words),
                    [=](Bench& b) {
                      const Environment environment(variables);
                      Desc desc = RINGATTN_STRUCT(ringattn_comm_desc);
                      desc.world_size = world;
                      return comm_of(true, [&](ringattn_comm** out) {
                        return ringattn_comm_create_from_environment(b.batch.context(), &desc, out);
                      });
                    }});
  };
  row("rank no number", 0, {{"RINGATTN_RANK", "x"}, {"RINGATTN_WORLD_SIZE", "2"}}, {"RINGATTN_RANK: \"x\""});
  row("rank beyond", 0, {{"RINGATTN_RANK", "2"}, {"RINGATTN_WORLD_SIZE", "2"}}, {"RINGATTN_RANK: 2"});
  row("no rank", 0, {{"RINGATTN_RANK", ""}, {"RINGATTN_WORLD_SIZE", "2"}}, {"RINGATTN_RANK: not set"});
  row("no place", 0, {{"RINGATTN_RANK", "0"}, {"RINGATTN_WORLD_SIZE", "2"}, {"RINGATTN_RENDEZVOUS", ""}},
      {"RINGATTN_RENDEZVOUS: not set"});
  row("another world_size", 3,
      {{"RINGATTN_RANK", "0"}, {"RINGATTN_WORLD_SIZE", "2"}, {"RINGATTN_RENDEZVOUS", "127.0.0.1:7000"}},
      {"world_size: 3", "the launcher's 2"});
}

void add_allgather_rows(Rows& rows) {
  const auto row = [&](const char* field, const std::string& what, ringattn_status status,
                       std::vector<std::string> words, const Desc& desc, std::int32_t rank,
                       ringattn_allgather_fn allgather) {
    rows.push_back(
        {"ringattn_comm_create_from_allgather", field, what, status, std::move(words), [=](Bench& b) {
           return comm_of(true, [&](ringattn_comm** out) {
             return ringattn_comm_create_from_allgather(b.batch.context(), &desc, rank, allgather, nullptr,
                                                        out);
           });
         }});
  };
  Desc two = RINGATTN_STRUCT(ringattn_comm_desc);
  two.world_size = 2;
  for (const std::int32_t rank : {-1, 2, kMost32})
    row("rank", std::to_string(rank), kInvalid, {"rank: " + std::to_string(rank)}, two, rank, never);
  row("allgather", "NULL", kInvalid, {"allgather: NULL"}, two, 0, nullptr);
  row("allgather", "fails", RINGATTN_ERR_TRANSPORT, {"allgather", "returned 7"}, two, 0,
      [](void*, const void*, std::uint64_t, void*) -> std::int32_t { return 7; });
  row("allgather", "gives nothing", RINGATTN_ERR_TRANSPORT, {"all-gather", "rank 0"}, two, 0,
      [](void*, const void*, std::uint64_t, void*) -> std::int32_t { return 0; });
  Desc alone = RINGATTN_STRUCT(ringattn_comm_desc);
  alone.world_size = 1;
  alone.transport = "smoke_signals";
  row("ringattn_comm_desc.transport", "unknown", RINGATTN_ERR_NOT_FOUND, {"transport: ", "smoke_signals"},
      alone, 0, copy_own);
}

}  // namespace

Rows rows_of_processes() {
  Rows rows;
  for (const Maker& maker : makers()) add_desc_rows(rows, maker);
  add_to_text_rows(rows);
  add_from_text_rows(rows);
  add_id_rows(rows);
  add_environment_rows(rows);
  add_allgather_rows(rows);
  return rows;
}

}  // namespace ringattn::wrong_use
