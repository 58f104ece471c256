// Rows of context_create, comm_create_local and transport_register.
#include "ringattn/transport.h"
#include "tests/api/wrong_use_table.h"

namespace ringattn::wrong_use {
namespace {

constexpr ringattn_status kInvalid = RINGATTN_ERR_INVALID_ARGUMENT;

void serial(void*, std::int32_t n, ringattn_body_fn body, void* arg) {
  for (std::int32_t i = 0; i < n; ++i) body(arg, i, 0);
}

std::vector<Bend<ringattn_context_desc>> context_bends() {
  using Desc = ringattn_context_desc;
  std::vector<Bend<Desc>> bends = size_bends<Desc>("ringattn_context_desc", "context_desc");
  const auto number = [&](const char* field, std::int32_t Desc::*member,
                          const std::vector<std::int32_t>& values, ringattn_status status = kInvalid) {
    append(bends, number_bends<Desc, std::int32_t>(std::string("ringattn_context_desc.") + field, member,
                                                   values, "", status));
  };
  number("device_type", &Desc::device_type, {-1, 1, kMost32}, RINGATTN_ERR_UNSUPPORTED);
  number("device_id", &Desc::device_id, {-1, 1, kMost32});
  number("threads", &Desc::threads, {-1, 1025, kMost32, -kMost32 - 1});
  number("progress_thread", &Desc::progress_thread, {-1, 2, kMost32});
  number("max_workers", &Desc::max_workers, {-1, 1, kMost32});  // without parallel_for
  number("log_level", &Desc::log_level, {-1, RINGATTN_LOG_DEBUG + 1, kMost32});
  number("reserved", &Desc::reserved, {-1, 1, kMost32});
  for (const std::int32_t workers : {-1, 0, 1025, kMost32}) {
    bends.push_back({"ringattn_context_desc.parallel_for",
                     "max_workers " + std::to_string(workers),
                     [workers](Padded<Desc>& d) {
                       d.value.parallel_for = serial;
                       d.value.max_workers = workers;
                     },
                     kInvalid,
                     {"max_workers: " + std::to_string(workers), "parallel_for"}});
  }
  bends.push_back({"ringattn_context_desc.parallel_for",
                   "threads as well",
                   [](Padded<Desc>& d) {
                     d.value.parallel_for = serial;
                     d.value.max_workers = 1;
                     d.value.threads = 3;
                   },
                   kInvalid,
                   {"threads: 3", "parallel_for"}});
  return bends;
}

void add_context_rows(Rows& rows) {
  for (const Bend<ringattn_context_desc>& bend : context_bends()) {
    rows.push_back(
        {"ringattn_context_create", bend.field, bend.what, bend.status, bend.words, [bend](Bench& b) {
           Padded<ringattn_context_desc> desc;
           bend.bend(desc);
           ringattn_context* out = b.batch.context();
           const ringattn_status status = ringattn_context_create(&desc.value, &out);
           EXPECT_EQ(out, nullptr);
           return status;
         }});
  }
  rows.push_back({"ringattn_context_create", "out", "NULL", kInvalid, {"out: NULL"}, [](Bench&) {
                    return ringattn_context_create(nullptr, nullptr);
                  }});
  // What has to be logged goes to standard error when the callback is NULL, at every level.
  for (int level = 0; level <= RINGATTN_LOG_DEBUG; ++level) {
    rows.push_back(
        {"ringattn_context_create", "ringattn_context_desc.log", "NULL", RINGATTN_OK, {}, [level](Bench&) {
           ringattn_context_desc desc = RINGATTN_STRUCT(ringattn_context_desc);
           desc.log_level = level;
           desc.threads = 1;
           ringattn_context* context = nullptr;
           const ringattn_status status = ringattn_context_create(&desc, &context);
           ringattn_comm_desc comm_desc = RINGATTN_STRUCT(ringattn_comm_desc);
           comm_desc.world_size = 1;
           ringattn_comm* comm = nullptr;
           EXPECT_EQ(ringattn_comm_create_local(context, &comm_desc, &comm), RINGATTN_OK);
           ringattn_context_destroy(context);  // has a child: logs, and does nothing
           ringattn_comm_destroy(comm);
           ringattn_context_destroy(context);
           return status;
         }});
  }
}

void add_comm_rows(Rows& rows) {
  for (const Bend<ringattn_comm_desc>& bend : comm_desc_bends()) {
    rows.push_back(
        {"ringattn_comm_create_local", bend.field, bend.what, bend.status, bend.words, [bend](Bench& b) {
           Padded<ringattn_comm_desc> desc;
           desc.value.world_size = 2;
           bend.bend(desc);
           ringattn_comm* const kept = b.batch.comm(0);
           ringattn_comm* out[4] = {kept, kept, kept, kept};
           const ringattn_status status = ringattn_comm_create_local(b.batch.context(), &desc.value, out);
           // world_size tells how many there are; where it is not known, none can be cleared.
           const bool known = desc.value.world_size == 2 && status != RINGATTN_ERR_STRUCT_SIZE;
           EXPECT_EQ(out[0], known ? nullptr : kept);
           EXPECT_EQ(out[1], known ? nullptr : kept);
           EXPECT_TRUE(out[2] == kept && out[3] == kept) << "written beyond world_size";
           return status;
         }});
  }
  const auto null =
      [&](const char* field, const char* word,
          const std::function<ringattn_status(Bench&, Padded<ringattn_comm_desc>&, ringattn_comm**)>& call) {
        rows.push_back({"ringattn_comm_create_local", field, "NULL", kInvalid, {word}, [call](Bench& b) {
                          Padded<ringattn_comm_desc> desc;
                          desc.value.world_size = 1;
                          ringattn_comm* out = nullptr;
                          const ringattn_status status = call(b, desc, &out);
                          EXPECT_EQ(out, nullptr);
                          return status;
                        }});
      };
  null("context", "context: NULL", [](Bench&, auto& desc, ringattn_comm** out) {
    return ringattn_comm_create_local(nullptr, &desc.value, out);
  });
  null("desc", "comm_desc: NULL", [](Bench& b, auto&, ringattn_comm** out) {
    return ringattn_comm_create_local(b.batch.context(), nullptr, out);
  });
  null("out", "out: NULL", [](Bench& b, auto& desc, ringattn_comm**) {
    return ringattn_comm_create_local(b.batch.context(), &desc.value, nullptr);
  });
}

// A table whose functions are never called: it is refused before that.
ringattn_transport_v1 complete_table() {
  ringattn_transport_v1 t = RINGATTN_STRUCT(ringattn_transport_v1);
  t.abi = RINGATTN_TRANSPORT_ABI;
  t.name = "local";  // exists: even a table that is wrongly taken for good cannot get in
  t.score = [](const char**) { return std::int32_t{0}; };
  t.open = [](const ringattn_link_desc_v1*, void**, const char**) { return ringattn_status{-200}; };
  t.close = [](void*) {};
  t.post = [](void*, const ringattn_transfer_v1*, std::int32_t) { return ringattn_status{-200}; };
  t.test = [](void*, ringattn_completion_v1*, std::int32_t, std::int32_t*) { return ringattn_status{-200}; };
  t.release = [](void*, std::uint64_t) {};
  t.withdraw = [](void*, std::uint64_t, std::uint64_t) {};
  t.wait = [](void*, std::uint64_t) {};
  t.wake = [](void*) {};
  t.tell = [](void*, const ringattn_beat_v1*) {};
  t.ask = [](void*, std::int32_t, ringattn_beat_v1*) { return ringattn_status{-200}; };
  t.abort = [](void*, ringattn_status, const char*) {};
  t.state = [](void*, char*, std::uint64_t) { return ringattn_status{-200}; };
  return t;
}

std::vector<Bend<ringattn_transport_v1>> transport_bends() {
  using Table = ringattn_transport_v1;
  std::vector<Bend<Table>> bends;
  const auto bend = [&](const char* field, const char* what, const std::function<void(Table&)>& change,
                        std::vector<std::string> words, ringattn_status status = kInvalid) {
    bends.push_back({std::string("ringattn_transport_v1.") + field, what,
                     [change](Padded<Table>& t) { change(t.value); }, status, std::move(words)});
  };
  for (const std::uint32_t size : {0u, 1u, static_cast<std::uint32_t>(sizeof(Table)) - 8}) {
    bend(
        "struct_size", "too small", [size](Table& t) { t.struct_size = size; },
        {"transport.struct_size: " + std::to_string(size)}, RINGATTN_ERR_STRUCT_SIZE);
  }
  for (const std::uint32_t abi : {0u, 2u, 0xffffffffu})
    bend("abi", "unknown", [abi](Table& t) { t.abi = abi; }, {"transport.abi: " + std::to_string(abi)});
  bend("name", "NULL", [](Table& t) { t.name = nullptr; }, {"transport", "NULL"});
  bend("name", "exists", [](Table& t) { t.name = "local"; }, {"transport.name: \"local\""});
  bend("caps", "exists as well", [](Table& t) { t.caps = RINGATTN_TRANSPORT_LENDS; }, {"transport.name"});
  bend("score", "NULL", [](Table& t) { t.score = nullptr; }, {"transport", "NULL"});
  bend("open", "NULL", [](Table& t) { t.open = nullptr; }, {"transport", "NULL"});
  bend("close", "NULL", [](Table& t) { t.close = nullptr; }, {"transport", "NULL"});
  bend("post", "NULL", [](Table& t) { t.post = nullptr; }, {"transport", "NULL"});
  bend("test", "NULL", [](Table& t) { t.test = nullptr; }, {"transport", "NULL"});
  bend("release", "NULL", [](Table& t) { t.release = nullptr; }, {"transport", "NULL"});
  bend("withdraw", "NULL", [](Table& t) { t.withdraw = nullptr; }, {"transport", "NULL"});
  bend("wait", "NULL", [](Table& t) { t.wait = nullptr; }, {"transport", "NULL"});
  bend("wake", "NULL", [](Table& t) { t.wake = nullptr; }, {"transport", "NULL"});
  bend("tell", "NULL", [](Table& t) { t.tell = nullptr; }, {"transport", "NULL"});
  bend("ask", "NULL", [](Table& t) { t.ask = nullptr; }, {"transport", "NULL"});
  bend("abort", "NULL", [](Table& t) { t.abort = nullptr; }, {"transport", "NULL"});
  bend("state", "NULL", [](Table& t) { t.state = nullptr; }, {"transport", "NULL"});
  for (const std::uint64_t caps : {std::uint64_t{3}, std::uint64_t{4}, ~std::uint64_t{0}})
    bend("caps", "unknown", [caps](Table& t) { t.caps = caps; }, {"transport.caps: " + std::to_string(caps)});
  const auto address = [](void*, void*, std::uint64_t, std::uint64_t*) { return ringattn_status{-200}; };
  const auto connect = [](void*, const ringattn_address_v1*, std::int32_t, const char**) {
    return ringattn_status{-200};
  };
  const std::vector<std::string> both = {"transport: address and connect", "TRANSPORT_PROCESSES"};
  bend(
      "address", "without PROCESSES", [address](Table& t) { t.address = address; }, both);
  bend(
      "connect", "without PROCESSES", [connect](Table& t) { t.connect = connect; }, both);
  bend(
      "address", "NULL with PROCESSES",
      [connect](Table& t) {
        t.caps = RINGATTN_TRANSPORT_PROCESSES;
        t.connect = connect;
      },
      both);
  bend(
      "connect", "NULL with PROCESSES",
      [address](Table& t) {
        t.caps = RINGATTN_TRANSPORT_PROCESSES;
        t.address = address;
      },
      both);
  return bends;
}

void add_transport_rows(Rows& rows) {
  rows.push_back(
      {"ringattn_transport_register", "transport", "NULL", kInvalid, {"transport: NULL"}, [](Bench&) {
         return ringattn_transport_register(nullptr);
       }});
  for (const Bend<ringattn_transport_v1>& bend : transport_bends()) {
    rows.push_back(
        {"ringattn_transport_register", bend.field, bend.what, bend.status, bend.words, [bend](Bench&) {
           Padded<ringattn_transport_v1> table;
           table.value = complete_table();
           bend.bend(table);
           return ringattn_transport_register(&table.value);
         }});
  }
}

}  // namespace

std::vector<Bend<ringattn_comm_desc>> comm_desc_bends() {
  using Desc = ringattn_comm_desc;
  std::vector<Bend<Desc>> bends = size_bends<Desc>("ringattn_comm_desc", "comm_desc");
  const auto number = [&](const char* field, std::int32_t Desc::*member,
                          const std::vector<std::int32_t>& values) {
    append(bends,
           number_bends<Desc, std::int32_t>(std::string("ringattn_comm_desc.") + field, member, values));
  };
  number("world_size", &Desc::world_size, {0, -1, 4097, kMost32, -kMost32 - 1});
  number("timeout_ms", &Desc::timeout_ms, {-2, -kMost32 - 1});
  number("arrival_timeout_ms", &Desc::arrival_timeout_ms, {-2, -kMost32 - 1});
  for (const char* name : {"", "LOCAL", "local ", "smoke_signals", "two\nlines", "%s%n"}) {
    if (*name == 0) continue;
    bends.push_back({"ringattn_comm_desc.transport",
                     name,
                     [name](Padded<Desc>& d) { d.value.transport = name; },
                     RINGATTN_ERR_NOT_FOUND,
                     {"transport: \"", "local"}});
  }
  return bends;
}

Rows rows_of_context() {
  Rows rows;
  add_context_rows(rows);
  add_comm_rows(rows);
  add_transport_rows(rows);
  return rows;
}

}  // namespace ringattn::wrong_use
