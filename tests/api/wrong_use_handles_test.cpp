// Rows of what takes only handles: NULL and the wrong kind of handle; and the calls that cannot fail.
#include "tests/api/wrong_use_table.h"

namespace ringattn::wrong_use {
namespace {

constexpr ringattn_status kInvalid = RINGATTN_ERR_INVALID_ARGUMENT;

void add_destroys(Rows& rows) {
  const auto null = [&](const char* function, void (*destroy)()) {
    rows.push_back({function, "handle", "NULL is legal", RINGATTN_OK, {}, [destroy](Bench&) {
                      destroy();
                      return RINGATTN_OK;
                    }});
  };
  null("ringattn_context_destroy", [] { ringattn_context_destroy(nullptr); });
  null("ringattn_comm_destroy", [] { ringattn_comm_destroy(nullptr); });
  null("ringattn_plan_destroy", [] { ringattn_plan_destroy(nullptr); });
  null("ringattn_request_destroy", [] { ringattn_request_destroy(nullptr); });
}

// With children nothing is destroyed: that all still works afterwards is checked after every row. The log
// line goes to standard error.
void add_early_destroys(Rows& rows) {
  rows.push_back({"ringattn_context_destroy", "context", "comms alive", RINGATTN_OK, {}, [](Bench& b) {
                    ringattn_context_destroy(b.batch.context());
                    return RINGATTN_OK;
                  }});
  rows.push_back({"ringattn_comm_destroy", "comm", "a plan alive", RINGATTN_OK, {}, [](Bench& b) {
                    ringattn_comm_destroy(b.batch.comm(0));
                    return RINGATTN_OK;
                  }});
}

void add_infallible(Rows& rows) {
  rows.push_back({"ringattn_version", "", "", RINGATTN_OK, {}, [](Bench&) {
                    EXPECT_EQ(ringattn_version(),
                              0u << 16 | RINGATTN_VERSION_MINOR << 8 | RINGATTN_VERSION_PATCH);
                    return RINGATTN_OK;
                  }});
  rows.push_back({"ringattn_build_info", "", "never NULL, one line", RINGATTN_OK, {}, [](Bench&) {
                    const char* const info = ringattn_build_info();
                    EXPECT_TRUE(info != nullptr && *info == '{' && !has(info, "\n"));
                    EXPECT_EQ(info, ringattn_build_info()) << "static";
                    return RINGATTN_OK;
                  }});
  for (const std::int32_t unknown : {2, -8, -99, -103, -205, -302, -1000, kMost32, -kMost32 - 1}) {
    rows.push_back(
        {"ringattn_status_name", "status", std::to_string(unknown), RINGATTN_OK, {}, [unknown](Bench&) {
           EXPECT_STREQ(ringattn_status_name(unknown), "RINGATTN_UNKNOWN");
           return RINGATTN_OK;
         }});
  }
  rows.push_back({"ringattn_last_error", "", "before any call of a thread", RINGATTN_OK, {}, [](Bench&) {
                    std::thread([] { EXPECT_STREQ(ringattn_last_error(), ""); }).join();
                    return RINGATTN_OK;
                  }});
  rows.push_back({"ringattn_request_message", "request", "NULL", RINGATTN_OK, {}, [](Bench&) {
                    EXPECT_STREQ(ringattn_request_message(nullptr), "");
                    return RINGATTN_OK;
                  }});
}

// A finished request, which lives for the time of one call.
template <typename Call>
ringattn_status with_request(Bench& b, Call call) {
  ringattn_request* request = nullptr;
  EXPECT_EQ(b.batch.forward(0, &request), RINGATTN_OK) << ringattn_last_error();
  EXPECT_EQ(ringattn_request_wait(request, -1), RINGATTN_OK);
  const ringattn_status status = call(request);
  EXPECT_STREQ(ringattn_request_message(request), "");
  ringattn_request_destroy(request);
  b.batch.shards(0).reset_bytes();
  return status;
}

void add_requests(Rows& rows) {
  rows.push_back({"ringattn_request_test", "request", "NULL", kInvalid, {"request: NULL"}, [](Bench&) {
                    return ringattn_request_test(nullptr);
                  }});
  rows.push_back({"ringattn_request_wait", "request", "NULL", kInvalid, {"request: NULL"}, [](Bench&) {
                    return ringattn_request_wait(nullptr, 0);
                  }});
  rows.push_back({"ringattn_request_cancel", "request", "NULL", kInvalid, {"request: NULL"}, [](Bench&) {
                    return ringattn_request_cancel(nullptr);
                  }});
  rows.push_back({"ringattn_request_cancel", "request", "one that has ended", RINGATTN_OK, {}, [](Bench& b) {
                    return with_request(b, [](ringattn_request* r) { return ringattn_request_cancel(r); });
                  }});
}

void add_comms(Rows& rows) {
  rows.push_back({"ringattn_comm_rank", "comm", "NULL", kInvalid, {"comm: NULL"}, [](Bench&) {
                    std::int32_t rank = 77, world = 77;
                    const ringattn_status status = ringattn_comm_rank(nullptr, &rank, &world);
                    EXPECT_EQ(rank + world, 154) << "written";
                    return status;
                  }});
  rows.push_back({"ringattn_comm_rank", "rank, world_size", "both NULL", RINGATTN_OK, {}, [](Bench& b) {
                    return ringattn_comm_rank(b.batch.comm(0), nullptr, nullptr);
                  }});
  rows.push_back({"ringattn_comm_abort", "comm", "NULL", kInvalid, {"comm: NULL"}, [](Bench&) {
                    return ringattn_comm_abort(nullptr, nullptr);
                  }});
  rows.push_back({"ringattn_comm_status", "comm", "NULL", kInvalid, {"comm: NULL"}, [](Bench&) {
                    return ringattn_comm_status(nullptr);
                  }});
}

template <typename T, typename Call>
void add_out_struct(Rows& rows, const std::string& function, const std::string& type, const std::string& name,
                    Call call) {
  for (const std::uint32_t bad : {0u, 1u, static_cast<std::uint32_t>(sizeof(T)) - 1, 4097u, 0xffffffffu}) {
    rows.push_back({function,
                    type + ".struct_size",
                    "size " + std::to_string(bad),
                    RINGATTN_ERR_STRUCT_SIZE,
                    {name + ".struct_size: " + std::to_string(bad), std::to_string(sizeof(T))},
                    [bad, call](Bench& b) {
                      Padded<T> out;
                      std::memset(static_cast<void*>(&out), 0x5a, sizeof out);
                      out.value.struct_size = bad;
                      std::array<std::byte, sizeof out> before;
                      std::memcpy(before.data(), &out, sizeof out);
                      const ringattn_status status = call(b, &out.value);
                      EXPECT_EQ(std::memcmp(before.data(), static_cast<const void*>(&out), sizeof out), 0)
                          << "written";
                      return status;
                    }});
  }
}

void add_inspection(Rows& rows) {
  const auto info = [](Bench& b, ringattn_plan_info* out) {
    return ringattn_plan_get_info(b.batch.plan(0), nullptr, out);
  };
  const auto times = [](Bench& b, ringattn_times* out) {
    return ringattn_plan_get_times(b.batch.plan(0), out);
  };
  add_out_struct<ringattn_plan_info>(rows, "ringattn_plan_get_info", "ringattn_plan_info", "plan_info", info);
  add_out_struct<ringattn_times>(rows, "ringattn_plan_get_times", "ringattn_times", "times", times);
  rows.push_back({"ringattn_plan_get_info", "plan", "NULL", kInvalid, {"plan: NULL"}, [](Bench&) {
                    ringattn_plan_info out = RINGATTN_STRUCT(ringattn_plan_info);
                    return ringattn_plan_get_info(nullptr, nullptr, &out);
                  }});
  rows.push_back({"ringattn_plan_get_info", "out", "NULL", kInvalid, {"out: NULL"}, [info](Bench& b) {
                    return info(b, nullptr);
                  }});
  rows.push_back({"ringattn_plan_get_times", "plan", "NULL", kInvalid, {"plan: NULL"}, [](Bench&) {
                    ringattn_times out = RINGATTN_STRUCT(ringattn_times);
                    return ringattn_plan_get_times(nullptr, &out);
                  }});
  rows.push_back({"ringattn_plan_get_times", "out", "NULL", kInvalid, {"out: NULL"}, [times](Bench& b) {
                    return times(b, nullptr);
                  }});
}

void add_describe(Rows& rows) {
  const auto row =
      [&](const char* field, const char* what, std::vector<std::string> words,
          const std::function<ringattn_status(const ringattn_plan*, char*, std::uint64_t*)>& call) {
        rows.push_back({"ringattn_plan_describe", field, what, kInvalid, std::move(words), [call](Bench& b) {
                          char text[4] = {1, 2, 3, 4};
                          std::uint64_t needed = 0;
                          const ringattn_status status = call(b.batch.plan(0), text, &needed);
                          EXPECT_TRUE(text[0] == 1 && text[3] == 4) << "written";
                          return status;
                        }});
      };
  row("plan", "NULL", {"plan: NULL"}, [](auto, char* text, std::uint64_t* needed) {
    return ringattn_plan_describe(nullptr, nullptr, 0, text, 4, needed);
  });
  row("text", "NULL with a capacity", {"text: NULL", "4"}, [](auto plan, char*, std::uint64_t* needed) {
    return ringattn_plan_describe(plan, nullptr, 0, nullptr, 4, needed);
  });
  row("capacity", "0", {"capacity: 0"}, [](auto plan, char* text, std::uint64_t* needed) {
    return ringattn_plan_describe(plan, nullptr, 0, text, 0, needed);
  });
  row("capacity", "too small; needed NULL", {"capacity: 4"}, [](auto plan, char* text, std::uint64_t*) {
    return ringattn_plan_describe(plan, nullptr, 1, text, 4, nullptr);
  });
  for (const std::int32_t format : {-1, 2, kMost32}) {
    row("format", "unknown", {"format: " + std::to_string(format)},
        [format](auto plan, char* text, std::uint64_t* needed) {
          return ringattn_plan_describe(plan, nullptr, format, text, 4, needed);
        });
  }
}

// The bench's plans record nothing; a preview with the flag has recorded nothing.
template <typename Call>
ringattn_status with_traced_preview(Bench& b, Call call) {
  ringattn_plan_desc desc = b.batch.desc();
  desc.flags |= RINGATTN_PLAN_TRACE;
  ringattn_plan* plan = nullptr;
  EXPECT_EQ(ringattn_plan_preview(b.batch.context(), &desc, 0, 1, nullptr, &plan), RINGATTN_OK);
  const ringattn_status status = call(plan);
  ringattn_plan_destroy(plan);
  return status;
}

void add_trace(Rows& rows) {
  rows.push_back({"ringattn_plan_trace", "plan", "NULL", kInvalid, {"plan: NULL"}, [](Bench&) {
                    std::uint64_t count = 0;
                    return ringattn_plan_trace(nullptr, nullptr, 0, &count, nullptr);
                  }});
  rows.push_back(
      {"ringattn_plan_trace", "plan", "without PLAN_TRACE", kInvalid, {"plan: ", "PLAN_TRACE"}, [](Bench& b) {
         std::uint64_t count = 0;
         return ringattn_plan_trace(b.batch.plan(0), nullptr, 0, &count, nullptr);
       }});
  rows.push_back({"ringattn_plan_trace", "count", "NULL", kInvalid, {"count: NULL"}, [](Bench& b) {
                    return with_traced_preview(
                        b, [](auto plan) { return ringattn_plan_trace(plan, nullptr, 0, nullptr, nullptr); });
                  }});
  rows.push_back(
      {"ringattn_plan_trace", "events", "NULL with a capacity", kInvalid, {"events: NULL"}, [](Bench& b) {
         return with_traced_preview(b, [](auto plan) {
           std::uint64_t count = 0;
           return ringattn_plan_trace(plan, nullptr, 3, &count, nullptr);
         });
       }});
  add_out_struct<ringattn_event>(rows, "ringattn_plan_trace", "ringattn_event", "events[0]",
                                 [](Bench& b, ringattn_event* event) {
                                   return with_traced_preview(b, [event](auto plan) {
                                     std::uint64_t count = 0;
                                     return ringattn_plan_trace(plan, event, 1, &count, nullptr);
                                   });
                                 });
}

}  // namespace

Rows rows_of_handles() {
  Rows rows;
  add_destroys(rows);
  add_early_destroys(rows);
  add_infallible(rows);
  add_requests(rows);
  // A wait of less than -1 is no wait.
  for (const std::int64_t timeout : {std::int64_t{-2}, kLeast}) {
    rows.push_back({"ringattn_request_wait",
                    "timeout_ms",
                    std::to_string(timeout),
                    kInvalid,
                    {"timeout_ms: " + std::to_string(timeout)},
                    [timeout](Bench& b) {
                      ringattn_request* request = nullptr;
                      EXPECT_EQ(b.batch.forward(0, &request), RINGATTN_OK);
                      EXPECT_EQ(ringattn_request_wait(request, kMost), RINGATTN_OK) << "the longest wait";
                      EXPECT_EQ(ringattn_request_test(request), RINGATTN_OK) << "again and again";
                      const ringattn_status status = ringattn_request_wait(request, timeout);
                      ringattn_request_destroy(request);
                      b.batch.shards(0).reset_bytes();
                      return status;
                    }});
  }
  add_comms(rows);
  add_inspection(rows);
  add_describe(rows);
  add_trace(rows);
  return rows;
}

}  // namespace ringattn::wrong_use
