// Rows of plan_desc and facts: supports, preview, plan_create and its array form are one decision.
#include "tests/api/wrong_use_table.h"

namespace ringattn::wrong_use {
namespace {

using Desc = ringattn_plan_desc;
using DescBends = std::vector<Bend<Desc>>;

constexpr ringattn_status kInvalid = RINGATTN_ERR_INVALID_ARGUMENT;
constexpr std::int64_t kLimit = std::int64_t{1} << 48;  // of any length
constexpr std::int64_t k2G = std::int64_t{1} << 31, k1T = std::int64_t{1} << 40;

void add_sizes(DescBends& bends) {
  const auto number = [&](const char* field, std::int64_t Desc::*member,
                          const std::vector<std::int64_t>& values) {
    append(bends,
           number_bends<Desc, std::int64_t>(std::string("ringattn_plan_desc.") + field, member, values));
  };
  number("batch", &Desc::batch, {-1, kLeast, kLimit + 1, kMost});
  number("seq_q", &Desc::seq_q, {-1, -k2G, kLeast, kLimit + 1, kMost});
  number("seq_k", &Desc::seq_k, {-1, -k2G, kLeast, kLimit + 1, kMost});
  number("heads", &Desc::heads, {0, -1, kLeast, kLimit + 1, kMost});
  number("kv_heads", &Desc::kv_heads, {-1, 3, 8, k2G, k1T, kLeast, kLimit + 1, kMost});
  number("head_dim_qk", &Desc::head_dim_qk, {0, -1, 577, k2G, k1T, kLeast, kMost});
  number("head_dim_v", &Desc::head_dim_v, {-1, 577, k2G, k1T, kLeast, kMost});
  number("max_sequences", &Desc::max_sequences, {-1, 1, kLeast, kLimit + 1, kMost});  // below batch: 1
  const auto product = [&](const char* what, std::int64_t batch, std::int64_t seq_q, std::int64_t seq_k,
                           std::int64_t heads) {
    bends.push_back({"ringattn_plan_desc.batch",
                     what,
                     [=](Padded<Desc>& d) {
                       d.value.batch = batch;
                       d.value.seq_q = seq_q;
                       d.value.seq_k = seq_k;
                       d.value.heads = d.value.kv_heads = heads;
                     },
                     kInvalid,
                     {"batch x seq x heads x head_dim: " + std::to_string(batch), "overflow"}});
  };
  product("batch x seq x heads", k2G, k2G, 1, 4);
  product("batch x seq_k x heads", k2G, 1, k2G, 4);
  product("all at their limits", kLimit, kLimit, kLimit, kLimit);
  product("batch x heads, no token", kLimit, 0, 0, kLimit);
  product("seq x heads, no row", 0, kLimit, kLimit, kLimit);
}

void add_enums(DescBends& bends) {
  const auto number = [&](const char* field, std::int32_t Desc::*member,
                          const std::vector<std::int32_t>& values) {
    append(bends,
           number_bends<Desc, std::int32_t>(std::string("ringattn_plan_desc.") + field, member, values));
  };
  number("dtype", &Desc::dtype, {0, -1, RINGATTN_DTYPE_I32, RINGATTN_DTYPE_I64, 6, kMost32});
  number("dtype_out", &Desc::dtype_out,
         {-1, RINGATTN_DTYPE_F16, RINGATTN_DTYPE_BF16, RINGATTN_DTYPE_I32, 6, kMost32});
  number("dtype_grad", &Desc::dtype_grad,
         {-1, RINGATTN_DTYPE_F16, RINGATTN_DTYPE_BF16, RINGATTN_DTYPE_I64, 6, kMost32});
  number("accuracy", &Desc::accuracy, {-1, RINGATTN_ACCURACY_EXACT + 1, kMost32});
  number("partition", &Desc::partition, {-1, RINGATTN_PARTITION_EXPLICIT + 1, kMost32});
  number("query_cut", &Desc::query_cut, {-1, RINGATTN_QUERY_CUT_BY_INDEX + 1, kMost32});
  number("scope", &Desc::scope, {-1, RINGATTN_SCOPE_DOCUMENT + 1, kMost32});
  number("schedule", &Desc::schedule, {-1, RINGATTN_SCHEDULE_RING + 1, kMost32});
  number("reserved", &Desc::reserved, {-1, 1, kMost32});
  const auto bits = [&](const char* field, std::uint32_t Desc::*member,
                        const std::vector<std::uint32_t>& values) {
    append(bends,
           number_bends<Desc, std::uint32_t>(std::string("ringattn_plan_desc.") + field, member, values));
  };
  bits("flags", &Desc::flags, {8, 1u << 31, 0xffffffff});
  bits("mask", &Desc::mask, {8, 9, 1u << 31, 0xffffffff});
  for (const std::int32_t dtype : {1, 2}) {
    bends.push_back({"ringattn_plan_desc.dtype_grad",
                     "without PLAN_BACKWARD",
                     [dtype](Padded<Desc>& d) {
                       d.value.flags = 0;
                       d.value.dtype_grad = dtype;
                     },
                     kInvalid,
                     {"dtype_grad: " + std::to_string(dtype), "PLAN_BACKWARD"}});
  }
  bends.push_back({"ringattn_plan_desc.query_cut",
                   "LIKE_KEYS in another scope",
                   [](Padded<Desc>& d) {
                     d.value.query_cut = RINGATTN_QUERY_CUT_LIKE_KEYS;
                     d.value.scope = RINGATTN_SCOPE_CALL;
                   },
                   kInvalid,
                   {"query_cut: ", "CAPACITY"}});
}

void add_numbers(DescBends& bends) {
  const auto bend = [&](const char* field, const std::string& what, const std::function<void(Desc&)>& change,
                        std::vector<std::string> words) {
    bends.push_back({std::string("ringattn_plan_desc.") + field, what,
                     [change](Padded<Desc>& d) { change(d.value); }, kInvalid, std::move(words)});
  };
  for (const std::int64_t value : {std::int64_t{-1}, kLeast, kLimit + 1, kMost}) {
    const std::string shown = std::to_string(value);
    bend("window_left", shown,
         [value](Desc& d) { d.mask = RINGATTN_MASK_WINDOW_LEFT, d.window_left = value; },
         {"window_left: " + shown});
    bend("window_right", shown,
         [value](Desc& d) { d.mask = RINGATTN_MASK_WINDOW_RIGHT, d.window_right = value; },
         {"window_right: " + shown});
    bend("stripe", shown, [value](Desc& d) { d.partition = RINGATTN_PARTITION_STRIPED, d.stripe = value; },
         {"stripe: " + shown});
  }
  bend("window_right", "CAUSAL with 1",
       [](Desc& d) { d.mask = RINGATTN_MASK_CAUSAL | RINGATTN_MASK_WINDOW_RIGHT, d.window_right = 1; },
       {"window_right: 1", "CAUSAL"});
  bend("stripe", "of CONTIGUOUS", [](Desc& d) { d.stripe = 1; }, {"stripe: 1", "STRIPED"});
  const double inf = std::numeric_limits<double>::infinity();
  const std::pair<double, const char*> scales[] = {
      {std::nan(""), "scale: "}, {inf, "scale: inf"},  {-inf, "scale: -inf"}, {-0.25, "scale: -0.25"},
      {-5e-324, "scale: -"},     {-1e300, "scale: -"}, {1e39, "scale: "},     {1.7e308, "scale: "}};
  for (const auto& [scale, word] : scales)
    bend("scale", std::to_string(scale), [scale = scale](Desc& d) { d.scale = scale; }, {word});
}

// EXPLICIT over one rank; `runs` lives for the whole test.
void explicit_runs(Desc& d, const ringattn_run* runs, std::int64_t count) {
  d.partition = RINGATTN_PARTITION_EXPLICIT;
  d.runs_k = runs;
  d.runs_k_count = count;
}

void add_runs(DescBends& bends) {
  const auto bend = [&](const char* field, const std::string& what, const std::function<void(Desc&)>& change,
                        std::vector<std::string> words) {
    bends.push_back(
        {field, what, [change](Padded<Desc>& d) { change(d.value); }, kInvalid, std::move(words)});
  };
  static const ringattn_run whole[] = {{0, 12, 0}};
  for (const std::int64_t count : {std::int64_t{-1}, k2G, k1T, kMost}) {
    bend("ringattn_plan_desc.runs_k_count", std::to_string(count),
         [count](Desc& d) { explicit_runs(d, whole, count); }, {"runs_k_count: " + std::to_string(count)});
    bend("ringattn_plan_desc.runs_q_count", std::to_string(count),
         [count](Desc& d) {
           explicit_runs(d, whole, 1);
           d.query_cut = RINGATTN_QUERY_CUT_BY_INDEX;
           d.runs_q = whole;
           d.runs_q_count = count;
         },
         {"runs_q_count: " + std::to_string(count)});
  }
  bend("ringattn_plan_desc.runs_k", "NULL", [](Desc& d) { explicit_runs(d, nullptr, 1); }, {"runs_k: NULL"});
  bend("ringattn_plan_desc.runs_q", "NULL",
       [](Desc& d) {
         explicit_runs(d, whole, 1);
         d.query_cut = RINGATTN_QUERY_CUT_BY_INDEX;
         d.runs_q_count = 1;
       },
       {"runs_q: NULL"});
  bend("ringattn_plan_desc.runs_q_count", "where queries go like keys",
       [](Desc& d) { explicit_runs(d, whole, 1), d.runs_q = whole, d.runs_q_count = 1; },
       {"runs_q_count: 1"});
  bend("ringattn_plan_desc.runs_k_count", "not EXPLICIT",
       [](Desc& d) { d.runs_k = whole, d.runs_k_count = 1; }, {"runs_k_count", "EXPLICIT"});
  bend("ringattn_plan_desc.scope", "EXPLICIT in scope CALL",
       [](Desc& d) { explicit_runs(d, whole, 1), d.scope = RINGATTN_SCOPE_CALL; }, {"scope: 1", "CAPACITY"});
  struct Bad {
    const char* field;
    ringattn_run run;
    std::vector<std::string> words;
  };
  static const Bad bad[] = {{"first", {-1, 12, 1}, {"runs_k[0]: first -1"}},
                            {"first", {kMost, 1, 1}, {"runs_k[0]: first 9223372036854775807"}},
                            {"first", {1, 12, 1}, {"runs_k[0]: first 1", "0..11"}},
                            {"length", {0, -1, 1}, {"runs_k[0]", "length -1"}},
                            {"length", {0, 13, 1}, {"runs_k[0]", "length 13"}},
                            {"length", {0, kMost, 1}, {"runs_k[0]", "length 9223372036854775807"}},
                            {"stride", {0, 12, -1}, {"runs_k[0]", "stride -1"}},
                            {"stride", {0, 12, 2}, {"runs_k[0]", "stride 2"}},
                            {"stride", {0, 12, kMost}, {"runs_k[0]", "stride 9223372036854775807"}}};
  for (const Bad& one : bad) {
    bend((std::string("ringattn_run.") + one.field).c_str(), "",
         [&one](Desc& d) { explicit_runs(d, &one.run, 1); }, one.words);
  }
}

void add_desc_rows(Rows& rows) {
  for (const Bend<Desc>& bend : plan_desc_bends()) {
    const auto row = [&](const char* function,
                         const std::function<ringattn_status(Bench&, const Desc*)>& call) {
      rows.push_back({function, bend.field, bend.what, bend.status, bend.words, [bend, call](Bench& b) {
                        Padded<Desc> desc;
                        desc.value = b.batch.desc();
                        bend.bend(desc);
                        return call(b, &desc.value);
                      }});
    };
    row("ringattn_supports",
        [](Bench& b, const Desc* desc) { return ringattn_supports(b.batch.context(), desc); });
    row("ringattn_plan_preview", [](Bench& b, const Desc* desc) {
      ringattn_plan* out = b.batch.plan(0);
      const ringattn_status status = ringattn_plan_preview(b.batch.context(), desc, 0, 1, nullptr, &out);
      EXPECT_EQ(out, nullptr);
      return status;
    });
    row("ringattn_plan_create", [](Bench& b, const Desc* desc) {
      ringattn_plan* out = b.batch.plan(0);
      const ringattn_status status = ringattn_plan_create(b.batch.comm(0), desc, &out);
      EXPECT_EQ(out, nullptr);
      return status;
    });
    row("ringattn_plan_create_array", [](Bench& b, const Desc* desc) {
      ringattn_plan* out[2] = {b.batch.plan(0), b.batch.plan(0)};
      const ringattn_status status = ringattn_plan_create_array(1, b.batch.comms(), desc, out);
      EXPECT_EQ(out[0], nullptr);
      EXPECT_EQ(out[1], b.batch.plan(0)) << "written beyond count";
      return status;
    });
  }
}

void add_parameters(Rows& rows) {
  const auto row = [&](const char* function, const char* field, const std::string& what,
                       std::vector<std::string> words,
                       const std::function<ringattn_status(Bench&, ringattn_plan**)>& call) {
    rows.push_back({function, field, what, kInvalid, std::move(words), [call](Bench& b) {
                      ringattn_plan* out = nullptr;
                      const ringattn_status status = call(b, &out);
                      EXPECT_EQ(out, nullptr);
                      return status;
                    }});
  };
  row("ringattn_supports", "context", "NULL", {"context: NULL"},
      [](Bench& b, auto) { return ringattn_supports(nullptr, &b.batch.desc()); });
  row("ringattn_supports", "desc", "NULL", {"plan_desc: NULL"},
      [](Bench& b, auto) { return ringattn_supports(b.batch.context(), nullptr); });
  const char* const preview = "ringattn_plan_preview";
  row(preview, "context", "NULL", {"context: NULL"},
      [](Bench& b, auto out) { return ringattn_plan_preview(nullptr, &b.batch.desc(), 0, 1, nullptr, out); });
  row(preview, "desc", "NULL", {"plan_desc: NULL"}, [](Bench& b, auto out) {
    return ringattn_plan_preview(b.batch.context(), nullptr, 0, 1, nullptr, out);
  });
  row(preview, "out", "NULL", {"out: NULL"}, [](Bench& b, auto) {
    return ringattn_plan_preview(b.batch.context(), &b.batch.desc(), 0, 1, nullptr, nullptr);
  });
  for (const std::int32_t rank : {-1, 3, kMost32, -kMost32 - 1}) {
    row(preview, "rank", std::to_string(rank), {"rank: " + std::to_string(rank), "0..2"},
        [rank](Bench& b, auto out) {
          return ringattn_plan_preview(b.batch.context(), &b.batch.desc(), rank, 3, nullptr, out);
        });
  }
  for (const std::int32_t world : {-1, 0, 4097, kMost32, -kMost32 - 1}) {
    row(preview, "world_size", std::to_string(world), {"world_size: " + std::to_string(world), "1..4096"},
        [world](Bench& b, auto out) {
          return ringattn_plan_preview(b.batch.context(), &b.batch.desc(), 0, world, nullptr, out);
        });
  }
  row("ringattn_plan_create", "comm", "NULL", {"comm: NULL"},
      [](Bench& b, auto out) { return ringattn_plan_create(nullptr, &b.batch.desc(), out); });
  row("ringattn_plan_create", "desc", "NULL", {"plan_desc: NULL"},
      [](Bench& b, auto out) { return ringattn_plan_create(b.batch.comm(0), nullptr, out); });
  row("ringattn_plan_create", "out", "NULL", {"out: NULL"},
      [](Bench& b, auto) { return ringattn_plan_create(b.batch.comm(0), &b.batch.desc(), nullptr); });
}

void add_array_parameters(Rows& rows) {
  const auto row = [&](const char* field, const std::string& what, ringattn_status status,
                       std::vector<std::string> words,
                       const std::function<ringattn_status(Bench&, ringattn_plan**)>& call) {
    rows.push_back({"ringattn_plan_create_array", field, what, status, std::move(words), [call](Bench& b) {
                      ringattn_plan* out[2] = {nullptr, nullptr};
                      const ringattn_status result = call(b, out);
                      EXPECT_TRUE(out[0] == nullptr && out[1] == nullptr);
                      return result;
                    }});
  };
  for (const std::int32_t count : {0, -1, 4097, kMost32, -kMost32 - 1}) {
    row("count", std::to_string(count), kInvalid, {"count: " + std::to_string(count), "1..4096"},
        [count](Bench& b, auto out) {
          return ringattn_plan_create_array(count, b.batch.comms(), &b.batch.desc(), out);
        });
  }
  row("comms", "NULL", kInvalid, {"comms: NULL"},
      [](Bench& b, auto out) { return ringattn_plan_create_array(1, nullptr, &b.batch.desc(), out); });
  row("descs", "NULL", kInvalid, {"plan_desc: NULL"},
      [](Bench& b, auto out) { return ringattn_plan_create_array(1, b.batch.comms(), nullptr, out); });
  row("out", "NULL", kInvalid, {"out: NULL"}, [](Bench& b, auto) {
    return ringattn_plan_create_array(1, b.batch.comms(), &b.batch.desc(), nullptr);
  });
  row("comms", "the second NULL", kInvalid, {"comms[1]: NULL"}, [](Bench& b, auto out) {
    ringattn_comm* const comms[] = {b.batch.comm(0), nullptr};
    const Desc descs[] = {b.batch.desc(), b.batch.desc()};
    return ringattn_plan_create_array(2, comms, descs, out);
  });
  row("comms", "one comm twice", kInvalid, {"comms[1]", "comms[0]"}, [](Bench& b, auto out) {
    ringattn_comm* const comms[] = {b.batch.comm(0), b.batch.comm(0)};
    const Desc descs[] = {b.batch.desc(), b.batch.desc()};
    return ringattn_plan_create_array(2, comms, descs, out);
  });
  row("comms", "of two contexts", kInvalid, {"comms[1]", "context"}, [](Bench& b, auto out) {
    ringattn_comm* const comms[] = {b.batch.comm(0), b.packed.comm(0)};
    const Desc descs[] = {b.batch.desc(), b.batch.desc()};
    return ringattn_plan_create_array(2, comms, descs, out);
  });
  row("descs", "an array that steps by garbage", RINGATTN_ERR_STRUCT_SIZE, {"plan_desc.struct_size: 3"},
      [](Bench& b, auto out) {
        ringattn_comm* const comms[] = {b.batch.comm(0), b.batch.comm(0)};
        Desc descs[] = {b.batch.desc(), b.batch.desc()};
        descs[0].struct_size = 3;
        return ringattn_plan_create_array(2, comms, descs, out);
      });
}

// EXPLICIT on two ranks; rank 1's description comes from facts.
void add_facts(Rows& rows) {
  using Facts = ringattn_facts;
  static const ringattn_run first[] = {{0, 6, 1}}, second[] = {{6, 6, 1}};
  std::vector<Bend<Facts>> bends = size_bends<Facts>("ringattn_facts", "facts");
  append(bends, number_bends<Facts, std::int32_t>("ringattn_facts.lends", &Facts::lends, {-1, 2, kMost32},
                                                  "facts.lends"));
  bends.push_back({"ringattn_facts.descs",
                   "NULL",
                   [](Padded<Facts>& f) { f.value.descs = nullptr; },
                   kInvalid,
                   {"facts.descs: NULL"}});
  const auto row = [&](const Bend<Facts>& bend, const std::function<void(Desc*)>& change) {
    rows.push_back(
        {"ringattn_plan_preview", bend.field, bend.what, bend.status, bend.words, [bend, change](Bench& b) {
           Desc descs[2] = {b.batch.desc(), b.batch.desc()};
           explicit_runs(descs[0], first, 1);
           explicit_runs(descs[1], second, 1);
           if (change) change(descs);
           Padded<Facts> facts;
           facts.value.descs = descs;
           if (bend.bend) bend.bend(facts);
           ringattn_plan* out = nullptr;
           const Desc own = descs[0].struct_size == sizeof(Desc) ? descs[0] : b.batch.desc();
           Desc mine = own;
           explicit_runs(mine, first, 1);
           const ringattn_status status =
               ringattn_plan_preview(b.batch.context(), &mine, 0, 2, &facts.value, &out);
           ringattn_plan_destroy(out);
           return status;
         }});
  };
  for (const Bend<Facts>& bend : bends) row(bend, nullptr);
  const std::string field = "ringattn_facts.descs";
  row({field, "good", nullptr, RINGATTN_OK, {}}, nullptr);
  row({field, "step of garbage", nullptr, RINGATTN_ERR_STRUCT_SIZE, {"facts.descs[0].struct_size: 9"}},
      [](Desc* d) { d[0].struct_size = 9; });
  row({field, "a bad size", nullptr, RINGATTN_ERR_STRUCT_SIZE, {"facts.descs[1].struct_size: 9"}},
      [](Desc* d) { d[1].struct_size = 9; });
  row({field, "not EXPLICIT", nullptr, kInvalid, {"facts.descs[1].partition"}},
      [](Desc* d) { d[1] = d[0], d[1].partition = 0, d[1].runs_k = nullptr, d[1].runs_k_count = 0; });
  row({field, "a gap", nullptr, kInvalid, {"runs_k", "expected"}}, [](Desc* d) { d[1].runs_k_count = 0; });
  row({field, "twice", nullptr, kInvalid, {"runs_k", "expected"}},
      [](Desc* d) { d[1].runs_k = d[0].runs_k; });
  row({field, "longer than the axis", nullptr, kInvalid, {"runs_k", "expected"}}, [](Desc* d) {
    static const ringattn_run beyond[] = {{6, 100, 1}};
    d[1].seq_k = d[1].seq_q = 106;
    d[1].runs_k = beyond;
  });
}

}  // namespace

DescBends plan_desc_bends() {
  DescBends bends = size_bends<Desc>("ringattn_plan_desc", "plan_desc");
  add_sizes(bends);
  add_enums(bends);
  add_numbers(bends);
  add_runs(bends);
  return bends;
}

Rows rows_of_plan() {
  Rows rows;
  add_desc_rows(rows);
  add_parameters(rows);
  add_array_parameters(rows);
  add_facts(rows);
  return rows;
}

}  // namespace ringattn::wrong_use
