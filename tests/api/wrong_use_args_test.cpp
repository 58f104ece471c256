// Rows of ringattn_call, in everything that takes one, and of the arguments of forward and backward that are
// no tensors.
#include "tests/api/wrong_use_table.h"

namespace ringattn::wrong_use {
namespace {

using Call = ringattn_call;
using CallBends = std::vector<Bend<Call>>;

constexpr ringattn_status kInvalid = RINGATTN_ERR_INVALID_ARGUMENT;

// Cumulative lengths of two sequences: `name` is how the message calls them.
void add_cumulative(CallBends& bends, const char* field, const std::int64_t* Call::*member,
                    std::int64_t capacity) {
  struct Bad {
    std::int64_t cu[3];
    int entry;
  };
  const Bad bad[] = {{{1, 4, 9}, 0},
                     {{-1, 4, 9}, 0},
                     {{kLeast, 4, 9}, 0},
                     {{kMost, 4, 9}, 0},
                     {{0, -1, 9}, 1},
                     {{0, 4, 3}, 2},
                     {{0, 4, kLeast}, 2},
                     {{0, 4, capacity + 1}, 2},
                     {{0, capacity + 1, capacity + 2}, 1},
                     {{0, 4, std::int64_t{1} << 31}, 2},
                     {{0, std::int64_t{1} << 40, std::int64_t{1} << 41}, 1},
                     {{0, 4, kMost}, 2}};
  for (const Bad& one : bad) {
    const std::string where = "[" + std::to_string(one.entry) + "]: " + std::to_string(one.cu[one.entry]);
    // Shared: the rows are copied about, the array must stay.
    const auto cu = std::make_shared<std::vector<std::int64_t>>(one.cu, one.cu + 3);
    bends.push_back({std::string("ringattn_call.") + field,
                     where,
                     [cu, member](Padded<Call>& c) { c.value.*member = cu->data(); },
                     kInvalid,
                     {std::string("call.") + field + where}});
  }
}

const char* const kForward = "ringattn_forward";
const char* const kBackward = "ringattn_backward";

void add_call_rows(Rows& rows) {
  for (const Bend<Call>& bend : call_bends()) {
    const auto row = [&](const char* function, const std::function<ringattn_status(Ring&, Call*)>& use) {
      rows.push_back({function, bend.field, bend.what, bend.status, bend.words, [bend, use](Bench& b) {
                        Padded<Call>& call = b.packed.shards(0).call;
                        bend.bend(call);
                        return use(b.packed, &call.value);
                      }});
    };
    row(kForward, [](Ring& r, Call*) { return r.forward(0); });
    row(kBackward, [](Ring& r, Call*) { return r.backward(0); });
    row("ringattn_forward_array", [](Ring& r, Call*) { return r.forward_array(); });
    row("ringattn_backward_array", [](Ring& r, Call*) { return r.backward_array(); });
    row("ringattn_plan_get_info", [](Ring& r, Call* call) {
      ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
      const ringattn_status status = ringattn_plan_get_info(r.plan(0), call, &info);
      EXPECT_EQ(info.world_size, 0) << "written";
      return status;
    });
    row("ringattn_plan_describe", [](Ring& r, Call* call) {
      std::uint64_t needed = 77;
      const ringattn_status status = ringattn_plan_describe(r.plan(0), call, 1, nullptr, 0, &needed);
      EXPECT_EQ(needed, 77u) << "written";
      return status;
    });
    row("ringattn_plan_local_length", [](Ring& r, Call* call) {
      std::int64_t length = 77;
      const ringattn_status status = ringattn_plan_local_length(r.plan(0), 0, 0, 0, call, &length);
      EXPECT_EQ(length, 77) << "written";
      return status;
    });
    row("ringattn_plan_positions", [](Ring& r, Call* call) {
      std::int64_t index[12] = {77};
      std::uint64_t count = 77;
      const ringattn_status status =
          ringattn_plan_positions(r.plan(0), 0, 0, 0, call, index, nullptr, 12, &count);
      EXPECT_TRUE(index[0] == 77 && count == 77) << "written";
      return status;
    });
    row("ringattn_shard", [](Ring& r, Call* call) {
      Shards& s = r.shards(0);
      return ringattn_shard(r.plan(0), 0, 0, call, &s.view[kQ].value, &s.view[kDq].value);
    });
    row("ringattn_unshard", [](Ring& r, Call* call) {
      Shards& s = r.shards(0);
      return ringattn_unshard(r.plan(0), 0, 0, call, &s.view[kQ].value, &s.view[kDq].value);
    });
  }
}

void add_args_rows(Rows& rows) {
  for (const ArgsBend& bend : args_bends()) {
    for (const bool array : {false, true}) {
      const std::string function =
          std::string(bend.of_backward ? kBackward : kForward) + (array ? "_array" : "");
      rows.push_back({function, bend.field, bend.what, bend.status, bend.words, [bend, array](Bench& b) {
                        bend.bend(b.batch.shards(0));
                        return array ? b.batch.run_array(bend.of_backward) : b.batch.run(bend.of_backward, 0);
                      }});
    }
  }
}

// Handles: `function` is forward or backward, `run` calls it with these plans.
using Run = std::function<ringattn_status(Bench&, bool array, std::int32_t count, ringattn_plan* const*,
                                          ringattn_request**)>;

void add_plans(Rows& rows, const std::string& function, const Run& run) {
  const auto row = [&](bool array, const char* field, const std::string& what, ringattn_status status,
                       std::vector<std::string> words,
                       const std::function<ringattn_status(Bench&, ringattn_request**)>& call) {
    rows.push_back(
        {function + (array ? "_array" : ""), field, what, status, std::move(words), [call](Bench& b) {
           ringattn_request* request = reinterpret_cast<ringattn_request*>(&b);
           const ringattn_status result = call(b, &request);
           EXPECT_EQ(request, nullptr) << "a call that failed left a request";
           return result;
         }});
  };
  const auto preview = [run](Bench& b, ringattn_request** request, bool array) {
    ringattn_plan* plan = nullptr;
    EXPECT_EQ(ringattn_plan_preview(b.batch.context(), &b.batch.desc(), 0, 1, nullptr, &plan), RINGATTN_OK);
    const ringattn_status status = run(b, array, 1, &plan, request);
    ringattn_plan_destroy(plan);
    return status;
  };
  for (const bool array : {false, true}) {
    row(array, "plan", "NULL", kInvalid, {"plan: NULL"}, [=](Bench& b, auto request) {
      ringattn_plan* const none = nullptr;
      return run(b, array, 1, &none, request);
    });
    row(array, "plan", "a preview", kInvalid, {"plan: a preview", "plan_create"},
        [=](Bench& b, auto request) { return preview(b, request, array); });
  }
  for (const std::int32_t count : {0, -1, 4097, kMost32, -kMost32 - 1}) {
    row(true, "count", std::to_string(count), kInvalid, {"count: " + std::to_string(count), "1..4096"},
        [=](Bench& b, auto request) { return run(b, true, count, b.batch.plans(), request); });
  }
  row(true, "plans", "NULL", kInvalid, {"plans: NULL"},
      [=](Bench& b, auto request) { return run(b, true, 1, nullptr, request); });
  row(true, "plans", "the second NULL", kInvalid, {"plans[1]: NULL"}, [=](Bench& b, auto request) {
    ringattn_plan* const plans[] = {b.batch.plan(0), nullptr};
    return run(b, true, 2, plans, request);
  });
  row(true, "plans", "one twice", kInvalid, {"plans[1]", "plans[0]", "comm"}, [=](Bench& b, auto request) {
    ringattn_plan* const plans[] = {b.batch.plan(0), b.batch.plan(0)};
    return run(b, true, 2, plans, request);
  });
  row(true, "plans", "of another context", kInvalid, {"plans[1]", "context"}, [=](Bench& b, auto request) {
    ringattn_plan* const plans[] = {b.batch.plan(0), b.packed.plan(0)};
    return run(b, true, 2, plans, request);
  });
}

ringattn_status run_forward(Bench& b, bool array, std::int32_t count, ringattn_plan* const* plans,
                            ringattn_request** request) {
  const Fa args[] = {b.batch.shards(0).forward.value, b.batch.shards(0).forward.value};
  return array ? ringattn_forward_array(count, plans, args, request)
               : ringattn_forward(*plans, args, request);
}
ringattn_status run_backward(Bench& b, bool array, std::int32_t count, ringattn_plan* const* plans,
                             ringattn_request** request) {
  const Ba args[] = {b.batch.shards(0).backward.value, b.batch.shards(0).backward.value};
  return array ? ringattn_backward_array(count, plans, args, request)
               : ringattn_backward(*plans, args, request);
}

void add_null_args(Rows& rows) {
  rows.push_back({kForward, "args", "NULL", kInvalid, {"forward_args: NULL"}, [](Bench& b) {
                    return ringattn_forward(b.batch.plan(0), nullptr, nullptr);
                  }});
  rows.push_back({"ringattn_forward_array", "args", "NULL", kInvalid, {"forward_args: NULL"}, [](Bench& b) {
                    return ringattn_forward_array(1, b.batch.plans(), nullptr, nullptr);
                  }});
  rows.push_back({kBackward, "args", "NULL", kInvalid, {"backward_args: NULL"}, [](Bench& b) {
                    return ringattn_backward(b.batch.plan(0), nullptr, nullptr);
                  }});
  rows.push_back({"ringattn_backward_array", "args", "NULL", kInvalid, {"backward_args: NULL"}, [](Bench& b) {
                    return ringattn_backward_array(1, b.batch.plans(), nullptr, nullptr);
                  }});
  rows.push_back(
      {kBackward, "plan", "without PLAN_BACKWARD", kInvalid, {"plan: ", "PLAN_BACKWARD"}, [](Bench& b) {
         ringattn_plan_desc desc = b.batch.desc();
         desc.flags = 0;
         ringattn_plan* plan = nullptr;
         EXPECT_EQ(ringattn_plan_create(b.batch.comm(0), &desc, &plan), RINGATTN_OK);
         const ringattn_status status = run_backward(b, false, 1, &plan, nullptr);
         ringattn_plan_destroy(plan);
         return status;
       }});
}

// Axis, rank, row, and where results go, of what tells where tokens live.
void add_places(Rows& rows) {
  using Use = std::function<ringattn_status(const ringattn_plan*, std::int32_t, std::int32_t, std::int64_t)>;
  const std::pair<const char*, Use> functions[] = {
      {"ringattn_plan_local_length",
       [](auto plan, auto axis, auto rank, auto row) {
         std::int64_t length = 77;
         const ringattn_status status = ringattn_plan_local_length(plan, axis, rank, row, nullptr, &length);
         EXPECT_EQ(length, 77) << "written";
         return status;
       }},
      {"ringattn_plan_positions", [](auto plan, auto axis, auto rank, auto row) {
         std::int64_t index[12] = {77};
         std::uint64_t count = 0;
         const ringattn_status status =
             ringattn_plan_positions(plan, axis, rank, row, nullptr, index, index, 12, &count);
         EXPECT_EQ(index[0], 77) << "written";
         return status;
       }}};
  for (const auto& [function, use] : functions) {
    const auto row = [&rows, function = function](const char* field, std::int64_t value, const Use& call) {
      rows.push_back({function,
                      field,
                      std::to_string(value),
                      kInvalid,
                      {std::string(field) + ": " + std::to_string(value)},
                      [call](Bench& b) { return call(b.batch.plan(0), 0, 0, 0); }});
    };
    rows.push_back({function, "plan", "NULL", kInvalid, {"plan: NULL"}, [use = use](Bench&) {
                      return use(nullptr, 0, 0, 0);
                    }});
    for (const std::int32_t v : {-1, 2, kMost32})
      row("axis", v, [use = use, v](auto plan, auto, auto, auto) { return use(plan, v, 0, 0); });
    for (const std::int32_t v : {-1, 1, kMost32})
      row("rank", v, [use = use, v](auto plan, auto, auto, auto) { return use(plan, 0, v, 0); });
    for (const std::int64_t v : {std::int64_t{-1}, std::int64_t{2}, kMost, kLeast})
      row("batch_row", v, [use = use, v](auto plan, auto, auto, auto) { return use(plan, 0, 0, v); });
  }
  rows.push_back({"ringattn_plan_local_length", "length", "NULL", kInvalid, {"length: NULL"}, [](Bench& b) {
                    return ringattn_plan_local_length(b.batch.plan(0), 0, 0, 0, nullptr, nullptr);
                  }});
  rows.push_back({"ringattn_plan_positions", "count", "NULL", kInvalid, {"count: NULL"}, [](Bench& b) {
                    return ringattn_plan_positions(b.batch.plan(0), 0, 0, 0, nullptr, nullptr, nullptr, 0,
                                                   nullptr);
                  }});
  for (const std::uint64_t capacity : {0, 11}) {
    rows.push_back({"ringattn_plan_positions",
                    "capacity",
                    std::to_string(capacity),
                    kInvalid,
                    {"capacity: " + std::to_string(capacity), "12"},
                    [capacity](Bench& b) {
                      std::int64_t index[12] = {77};
                      std::uint64_t count = 0;
                      const ringattn_status status = ringattn_plan_positions(
                          b.batch.plan(0), 0, 0, 0, nullptr, index, index, capacity, &count);
                      EXPECT_EQ(index[0], 77) << "written";
                      return status;
                    }});
  }
}

}  // namespace

CallBends call_bends() {
  CallBends bends = size_bends<Call>("ringattn_call", "call");
  append(bends, number_bends<Call, std::uint32_t>("ringattn_call.flags", &Call::flags,
                                                  {4, 1u << 31, 0xffffffff}, "call.flags"));
  append(bends, number_bends<Call, std::int64_t>(
                    "ringattn_call.sequences", &Call::sequences,
                    {-1, 4, std::int64_t{1} << 31, std::int64_t{1} << 40, kMost, kLeast}, "call.sequences"));
  add_cumulative(bends, "cu_q", &Call::cu_q, 12);
  add_cumulative(bends, "cu_k", &Call::cu_k, 10);
  bends.push_back({"ringattn_call.cu_q",
                   "NULL",
                   [](Padded<Call>& c) { c.value.cu_q = nullptr; },
                   kInvalid,
                   {"call.cu_q: NULL", "3 entries"}});
  bends.push_back({"ringattn_call.cu_k",
                   "NULL, and cu_q is too long for keys",
                   [](Padded<Call>& c) { c.value.cu_k = nullptr; },
                   kInvalid,
                   {"call.cu_q (for keys)[2]: 11", "seq_k"}});
  const std::int64_t beyond = (std::int64_t{1} << 48) + 1;
  for (const std::int64_t offset : {beyond, -beyond, kMost, kLeast}) {
    bends.push_back({"ringattn_call.query_offset",
                     std::to_string(offset),
                     [offset](Padded<Call>& c) {
                       c.value.flags |= RINGATTN_CALL_QUERY_OFFSET;
                       c.value.query_offset = offset;
                     },
                     kInvalid,
                     {"call.query_offset: " + std::to_string(offset)}});
  }
  return bends;
}

namespace {
template <typename Args>
void add_bends_of_args(std::vector<ArgsBend>& bends, bool of_backward, Padded<Args> Shards::*member,
                       const std::string& name) {
  const std::string type = "ringattn_" + name;
  const auto bend = [&](const std::string& field, const std::string& what,
                        std::function<void(Shards&)> change, std::vector<std::string> words,
                        ringattn_status status = kInvalid) {
    bends.push_back({field, what, of_backward, std::move(change), status, std::move(words)});
  };
  for (const Bend<Args>& one : size_bends<Args>(type, name))
    bend(
        one.field, one.what, [one, member](Shards& s) { one.bend(s.*member); }, one.words, one.status);
  for (const std::uint32_t flags : {1u, 1u << 31, 0xffffffffu}) {
    bend(type + ".flags", std::to_string(flags), [=](Shards& s) { (s.*member).value.flags = flags; },
         {"flags: " + std::to_string(flags)});
  }
  bend(type + ".workspace", "without the plan's flag", [=](Shards& s) { (s.*member).value.workspace = &s; },
       {"workspace: ", "PLAN_CALLER_WORKSPACE"});
  bend(type + ".workspace_bytes", "without the plan's flag",
       [=](Shards& s) { (s.*member).value.workspace_bytes = 1; }, {"workspace", "PLAN_CALLER_WORKSPACE"});
  for (const Bend<Call>& one : size_bends<Call>("ringattn_call", "call"))
    bend(
        type + ".call", one.what, [one](Shards& s) { one.bend(s.call); }, one.words, one.status);
  // A refused call is not heard of by whoever wants to see its progress.
  bend(type + ".progress", "of a refused call",
       [=](Shards& s) {
         (s.*member).value.progress = [](void*, std::int32_t, std::int32_t, std::int32_t) { ADD_FAILURE(); };
         (s.*member).value.flags = 8;
       },
       {"flags: 8"});
}
}  // namespace

std::vector<ArgsBend> args_bends() {
  std::vector<ArgsBend> bends;
  add_bends_of_args<Fa>(bends, false, &Shards::forward, "forward_args");
  add_bends_of_args<Ba>(bends, true, &Shards::backward, "backward_args");
  return bends;
}

Rows rows_of_calls() {
  Rows rows;
  add_call_rows(rows);
  add_args_rows(rows);
  add_plans(rows, kForward, run_forward);
  add_plans(rows, kBackward, run_backward);
  add_null_args(rows);
  add_places(rows);
  return rows;
}

}  // namespace ringattn::wrong_use
