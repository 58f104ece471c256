// NULL everywhere, struct sizes, last_error, destroy in the wrong order, fork.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/ring/host_ring.h"

namespace ringattn::support {
namespace {

constexpr const char* kProblem = "n=24 dim=8 ranks=1";

struct Lines {
  std::vector<std::string> lines;
  static void take(void* user, std::int32_t level, const char* message) {
    if (level == RINGATTN_LOG_ERROR) static_cast<Lines*>(user)->lines.emplace_back(message);
  }
};

class ApiHandles : public ::testing::Test {
 protected:
  HostContext context_{1};
  HostRing ring_{context_, kProblem};
};

TEST_F(ApiHandles, NullIsRefusedByNameAndNothingElseHappens) {
  ringattn_plan* const plan = ring_.plan(0);
  ringattn_comm* const comm = ring_.comm(0);
  ringattn_context* const context = context_.get();
  const ringattn_plan_desc& desc = ring_.desc(0);
  RankTensors& t = ring_.tensors(0);
  ringattn_forward_args& args = t.args;
  ringattn_comm_desc comm_desc = RINGATTN_STRUCT(ringattn_comm_desc);
  comm_desc.world_size = 1;
  ringattn_plan* out_plan = nullptr;
  ringattn_comm* out_comm = nullptr;
  ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
  ringattn_times times = RINGATTN_STRUCT(ringattn_times);
  std::int64_t length = 0;
  std::uint64_t count = 0;
  const struct {
    const char* what;
    std::function<ringattn_status()> call;
    const char* word;
  } cases[] = {
      {"context_create out", [&] { return ringattn_context_create(nullptr, nullptr); }, "out"},
      {"comm_create context", [&] { return ringattn_comm_create_local(nullptr, &comm_desc, &out_comm); },
       "context"},
      {"comm_create desc", [&] { return ringattn_comm_create_local(context, nullptr, &out_comm); },
       "comm_desc"},
      {"comm_create out", [&] { return ringattn_comm_create_local(context, &comm_desc, nullptr); }, "out"},
      {"comm_rank", [&] { return ringattn_comm_rank(nullptr, nullptr, nullptr); }, "comm"},
      {"comm_abort", [&] { return ringattn_comm_abort(nullptr, "x"); }, "comm"},
      {"comm_status", [&] { return ringattn_comm_status(nullptr); }, "comm"},
      {"supports context", [&] { return ringattn_supports(nullptr, &desc); }, "context"},
      {"supports desc", [&] { return ringattn_supports(context, nullptr); }, "plan_desc"},
      {"preview context", [&] { return ringattn_plan_preview(nullptr, &desc, 0, 1, nullptr, &out_plan); },
       "context"},
      {"preview desc", [&] { return ringattn_plan_preview(context, nullptr, 0, 1, nullptr, &out_plan); },
       "plan_desc"},
      {"preview out", [&] { return ringattn_plan_preview(context, &desc, 0, 1, nullptr, nullptr); }, "out"},
      {"preview rank", [&] { return ringattn_plan_preview(context, &desc, 1, 1, nullptr, &out_plan); },
       "rank: 1"},
      {"preview world", [&] { return ringattn_plan_preview(context, &desc, 0, 0, nullptr, &out_plan); },
       "world_size: 0"},
      {"plan_create comm", [&] { return ringattn_plan_create(nullptr, &desc, &out_plan); }, "comm"},
      {"plan_create desc", [&] { return ringattn_plan_create(comm, nullptr, &out_plan); }, "plan_desc"},
      {"plan_create out", [&] { return ringattn_plan_create(comm, &desc, nullptr); }, "out"},
      {"plan_create_array comms", [&] { return ringattn_plan_create_array(1, nullptr, &desc, &out_plan); },
       "comms"},
      {"plan_create_array out", [&] { return ringattn_plan_create_array(1, &comm, &desc, nullptr); }, "out"},
      {"plan_create_array 0", [&] { return ringattn_plan_create_array(0, &comm, &desc, &out_plan); },
       "count: 0"},
      {"plan_create_array -1", [&] { return ringattn_plan_create_array(-1, &comm, &desc, &out_plan); },
       "count: -1"},
      {"forward plan", [&] { return ringattn_forward(nullptr, &args, nullptr); }, "plan"},
      {"forward args", [&] { return ringattn_forward(plan, nullptr, nullptr); }, "forward_args"},
      {"forward_array plans", [&] { return ringattn_forward_array(1, nullptr, &args, nullptr); }, "plans"},
      {"forward_array args", [&] { return ringattn_forward_array(1, &plan, nullptr, nullptr); },
       "forward_args"},
      {"forward_array 0", [&] { return ringattn_forward_array(0, &plan, &args, nullptr); }, "count: 0"},
      {"request_test", [&] { return ringattn_request_test(nullptr); }, "request"},
      {"request_wait", [&] { return ringattn_request_wait(nullptr, 0); }, "request"},
      {"request_cancel", [&] { return ringattn_request_cancel(nullptr); }, "request"},
      {"get_info plan", [&] { return ringattn_plan_get_info(nullptr, nullptr, &info); }, "plan"},
      {"get_info out", [&] { return ringattn_plan_get_info(plan, nullptr, nullptr); }, "out"},
      {"describe plan", [&] { return ringattn_plan_describe(nullptr, nullptr, 0, nullptr, 0, &count); },
       "plan"},
      {"describe text", [&] { return ringattn_plan_describe(plan, nullptr, 0, nullptr, 5, &count); }, "text"},
      {"describe format", [&] { return ringattn_plan_describe(plan, nullptr, 2, nullptr, 0, &count); },
       "format: 2"},
      {"get_times plan", [&] { return ringattn_plan_get_times(nullptr, &times); }, "plan"},
      {"get_times out", [&] { return ringattn_plan_get_times(plan, nullptr); }, "out"},
      {"trace plan", [&] { return ringattn_plan_trace(nullptr, nullptr, 0, &count, nullptr); }, "plan"},
      {"trace untraced", [&] { return ringattn_plan_trace(plan, nullptr, 0, &count, nullptr); },
       "PLAN_TRACE"},
      {"local_length plan", [&] { return ringattn_plan_local_length(nullptr, 0, 0, 0, nullptr, &length); },
       "plan"},
      {"local_length out", [&] { return ringattn_plan_local_length(plan, 0, 0, 0, nullptr, nullptr); },
       "length"},
      {"local_length axis", [&] { return ringattn_plan_local_length(plan, 2, 0, 0, nullptr, &length); },
       "axis: 2"},
      {"local_length rank", [&] { return ringattn_plan_local_length(plan, 0, 1, 0, nullptr, &length); },
       "rank: 1"},
      {"local_length row", [&] { return ringattn_plan_local_length(plan, 0, 0, 1, nullptr, &length); },
       "batch_row: 1"},
      {"positions plan",
       [&] { return ringattn_plan_positions(nullptr, 0, 0, 0, nullptr, nullptr, nullptr, 0, &count); },
       "plan"},
      {"positions count",
       [&] { return ringattn_plan_positions(plan, 0, 0, 0, nullptr, nullptr, nullptr, 0, nullptr); },
       "count"},
      {"shard plan", [&] { return ringattn_shard(nullptr, 0, 0, nullptr, &t.q_view, &t.o_view); }, "plan"},
      {"shard global", [&] { return ringattn_shard(plan, 0, 0, nullptr, nullptr, &t.o_view); }, "global"},
      {"shard local", [&] { return ringattn_shard(plan, 0, 0, nullptr, &t.q_view, nullptr); }, "local"},
      {"unshard local", [&] { return ringattn_unshard(plan, 0, 0, nullptr, nullptr, &t.o_view); }, "local"},
      {"unshard global", [&] { return ringattn_unshard(plan, 0, 0, nullptr, &t.q_view, nullptr); }, "global"},
      {"merge context",
       [&] {
         return ringattn_merge(nullptr, &t.q_view, &t.lse_view, &t.k_view, &t.lse_view, &t.o_view,
                               &t.lse_view);
       },
       "context"},
      {"merge o_a",
       [&] {
         return ringattn_merge(context, nullptr, &t.lse_view, &t.k_view, &t.lse_view, &t.o_view, &t.lse_view);
       },
       "o_a"},
      {"merge lse_b",
       [&] {
         return ringattn_merge(context, &t.q_view, &t.lse_view, &t.k_view, nullptr, &t.o_view, &t.lse_view);
       },
       "lse_b"},
      {"merge o",
       [&] {
         return ringattn_merge(context, &t.q_view, &t.lse_view, &t.k_view, &t.lse_view, nullptr, &t.lse_view);
       },
       "o:"},
      {"register", [&] { return ringattn_transport_register(nullptr); }, "transport"},
  };
  for (const auto& test : cases) {
    EXPECT_EQ(test.call(), RINGATTN_ERR_INVALID_ARGUMENT) << test.what;
    EXPECT_NE(std::string(ringattn_last_error()).find(test.word), std::string::npos)
        << test.what << ": " << ringattn_last_error();
    EXPECT_EQ(out_plan, nullptr);
    EXPECT_EQ(out_comm, nullptr);
  }
  EXPECT_EQ(ring_.execute(0), RINGATTN_OK) << ringattn_last_error();
  EXPECT_STREQ(ringattn_last_error(), "");
}

TEST_F(ApiHandles, DestroyOfNullIsLegal) {
  ringattn_context_destroy(nullptr);
  ringattn_comm_destroy(nullptr);
  ringattn_plan_destroy(nullptr);
  ringattn_request_destroy(nullptr);
  EXPECT_STREQ(ringattn_request_message(nullptr), "");
}

TEST_F(ApiHandles, TensorsOfForwardMayNotBeNullExceptLse) {
  ringattn_forward_args& args = ring_.tensors(0).args;
  const struct {
    const char* name;
    const ringattn_tensor* ringattn_forward_args::*field;
  } fields[] = {{"q", &ringattn_forward_args::q},
                {"k", &ringattn_forward_args::k},
                {"v", &ringattn_forward_args::v},
                {"o", &ringattn_forward_args::o}};
  for (const auto& field : fields) {
    const ringattn_tensor* const kept = args.*field.field;
    args.*field.field = nullptr;
    EXPECT_EQ(ring_.execute(0), RINGATTN_ERR_INVALID_ARGUMENT) << field.name;
    EXPECT_EQ(std::string(ringattn_last_error()).rfind(std::string(field.name) + ": NULL", 0), 0u)
        << ringattn_last_error();
    args.*field.field = kept;
  }
  args.lse = nullptr;
  EXPECT_EQ(ring_.execute(0), RINGATTN_OK) << ringattn_last_error();
  EXPECT_TRUE(std::isnan(ring_.tensors(0).lse.get(0, 0, 0, 0)));
}

// Calls `call` with a struct of every size: the bytes of a newer header behind it are zero, or not.
template <typename T>
void check_sizes(const char* what, const T& good, const std::function<ringattn_status(T*)>& call,
                 bool out_struct = false) {
  struct {
    T value;
    unsigned char more[64];
  } newer;
  const auto with_size = [&](std::uint32_t size, int more) {
    newer.value = good;
    std::memset(newer.more, more, sizeof newer.more);
    newer.value.struct_size = size;
    const ringattn_status status = call(&newer.value);
    if (out_struct) {
      EXPECT_EQ(newer.value.struct_size, size) << what << ": the caller's size was changed";
      for (const unsigned char byte : newer.more)
        EXPECT_EQ(byte, more) << what << ": written beyond the struct";
    }
    return status;
  };
  constexpr std::uint32_t size = sizeof(T);
  for (const std::uint32_t bad : {0u, 1u, size - 8, size - 1, 0xdeadbeefu, 0xffffffffu}) {
    EXPECT_EQ(with_size(bad, 0), RINGATTN_ERR_STRUCT_SIZE) << what << " size " << bad;
    EXPECT_NE(std::string(ringattn_last_error()).find("struct_size"), std::string::npos)
        << ringattn_last_error();
  }
  EXPECT_EQ(with_size(size, 0xff), RINGATTN_OK) << what << ": " << ringattn_last_error();
  EXPECT_EQ(with_size(size + 8, 0), RINGATTN_OK) << what << ": " << ringattn_last_error();
  EXPECT_EQ(with_size(size + 8, 0xff), out_struct ? RINGATTN_OK : RINGATTN_ERR_STRUCT_SIZE) << what;
}

TEST_F(ApiHandles, StructSizesOfInputs) {
  RankTensors& t = ring_.tensors(0);
  check_sizes<ringattn_context_desc>(
      "context_desc", RINGATTN_STRUCT(ringattn_context_desc), [](ringattn_context_desc* desc) {
        ringattn_context* context = nullptr;
        const ringattn_status status = ringattn_context_create(desc, &context);
        const std::string error = ringattn_last_error();
        ringattn_context_destroy(context);
        EXPECT_EQ(error, ringattn_last_error()) << "destroy is no call that fails or succeeds";
        return status;
      });
  ringattn_comm_desc comm_desc = RINGATTN_STRUCT(ringattn_comm_desc);
  comm_desc.world_size = 1;
  check_sizes<ringattn_comm_desc>("comm_desc", comm_desc, [&](ringattn_comm_desc* desc) {
    ringattn_comm* comm = nullptr;
    const ringattn_status status = ringattn_comm_create_local(context_.get(), desc, &comm);
    ringattn_comm_destroy(comm);
    return status;
  });
  check_sizes<ringattn_plan_desc>("plan_desc", ring_.desc(0), [&](ringattn_plan_desc* desc) {
    ringattn_plan* plan = nullptr;
    const ringattn_status status = ringattn_plan_create(ring_.comm(0), desc, &plan);
    ringattn_plan_destroy(plan);
    return status;
  });
  check_sizes<ringattn_facts>("facts", RINGATTN_STRUCT(ringattn_facts), [&](ringattn_facts* facts) {
    ringattn_plan* plan = nullptr;
    const ringattn_status status = ringattn_plan_preview(context_.get(), &ring_.desc(0), 0, 1, facts, &plan);
    ringattn_plan_destroy(plan);
    return status;
  });
  check_sizes<ringattn_forward_args>("forward_args", t.args, [&](ringattn_forward_args* args) {
    return ringattn_forward(ring_.plan(0), args, nullptr);
  });
  check_sizes<ringattn_call>("call", RINGATTN_STRUCT(ringattn_call), [&](ringattn_call* call) {
    t.args.call = call;
    const ringattn_status status = ring_.execute(0);
    t.args.call = nullptr;
    return status;
  });
  check_sizes<ringattn_tensor>("tensor", t.k_view, [&](ringattn_tensor* tensor) {
    t.args.k = tensor;
    const ringattn_status status = ring_.execute(0);
    t.args.k = &t.k_view;
    return status;
  });
}

TEST_F(ApiHandles, StructSizesOfOutputs) {
  check_sizes<ringattn_plan_info>(
      "plan_info", RINGATTN_STRUCT(ringattn_plan_info),
      [&](ringattn_plan_info* info) { return ringattn_plan_get_info(ring_.plan(0), nullptr, info); }, true);
  check_sizes<ringattn_times>(
      "times", RINGATTN_STRUCT(ringattn_times),
      [&](ringattn_times* times) { return ringattn_plan_get_times(ring_.plan(0), times); }, true);
}

TEST_F(ApiHandles, ArraysStepByTheFirstStructSize) {
  HostRingOptions options;
  options.plans = false;
  HostRing pair(context_, "n=24 dim=8 ranks=2", options);
  struct Newer {
    ringattn_plan_desc desc;
    std::uint64_t more;
  } descs[2] = {{pair.desc(0), 0}, {pair.desc(1), 0}};
  descs[0].desc.struct_size = descs[1].desc.struct_size = sizeof(Newer);
  ringattn_comm* comms[] = {pair.comm(0), pair.comm(1)};
  EXPECT_EQ(ringattn_plan_create_array(2, comms, &descs[0].desc, &pair.plan(0)), RINGATTN_OK)
      << ringattn_last_error();
}

TEST_F(ApiHandles, LastErrorIsTheThreadsOwnAndClearedBySuccess) {
  EXPECT_EQ(ringattn_comm_status(nullptr), RINGATTN_ERR_INVALID_ARGUMENT);
  const std::string mine = ringattn_last_error();
  std::thread([&] {
    EXPECT_STREQ(ringattn_last_error(), "");
    EXPECT_EQ(ringattn_supports(nullptr, nullptr), RINGATTN_ERR_INVALID_ARGUMENT);
    EXPECT_NE(mine, ringattn_last_error());
  }).join();
  EXPECT_EQ(mine, ringattn_last_error());
  EXPECT_EQ(ringattn_comm_status(ring_.comm(0)), RINGATTN_OK);
  EXPECT_STREQ(ringattn_last_error(), "");
}

TEST(ApiDestroy, WithLiveChildrenDoesNothingAndLogs) {
  Lines log;
  ringattn_context_desc desc = RINGATTN_STRUCT(ringattn_context_desc);
  desc.log = Lines::take;
  desc.log_user = &log;
  desc.threads = 1;
  ringattn_context* context = nullptr;
  ASSERT_EQ(ringattn_context_create(&desc, &context), RINGATTN_OK);
  ringattn_comm_desc comm_desc = RINGATTN_STRUCT(ringattn_comm_desc);
  comm_desc.world_size = 1;
  ringattn_comm* comm = nullptr;
  ASSERT_EQ(ringattn_comm_create_local(context, &comm_desc, &comm), RINGATTN_OK);
  const ProblemLine problem = parse_line(kProblem);
  const ProblemPlan values(problem);
  ringattn_plan* plan = nullptr;
  ASSERT_EQ(ringattn_plan_create(comm, &values.desc(0), &plan), RINGATTN_OK);
  RankTensors tensors(problem, 24, 24, nullptr);
  ringattn_request* request = nullptr;
  ASSERT_EQ(ringattn_forward(plan, &tensors.args, &request), RINGATTN_OK);
  EXPECT_EQ(ringattn_request_wait(request, -1), RINGATTN_OK);

  ringattn_plan_destroy(plan);
  ASSERT_EQ(log.lines.size(), 1u);
  EXPECT_NE(log.lines[0].find("plan_destroy"), std::string::npos);
  ringattn_request_destroy(request);
  ringattn_comm_destroy(comm);
  ASSERT_EQ(log.lines.size(), 2u);
  EXPECT_NE(log.lines[1].find("comm_destroy: 1"), std::string::npos) << log.lines[1];
  EXPECT_EQ(ringattn_forward(plan, &tensors.args, nullptr), RINGATTN_OK) << "all is still alive";
  ringattn_plan_destroy(plan);
  ringattn_context_destroy(context);
  ASSERT_EQ(log.lines.size(), 3u);
  EXPECT_NE(log.lines[2].find("context_destroy: 1"), std::string::npos) << log.lines[2];
  ringattn_comm_destroy(comm);
  ringattn_plan* preview = nullptr;
  ASSERT_EQ(ringattn_plan_preview(context, &values.desc(0), 0, 1, nullptr, &preview), RINGATTN_OK);
  ringattn_context_destroy(context);
  EXPECT_EQ(log.lines.size(), 4u) << "a preview is a child of its context";
  ringattn_plan_destroy(preview);
  ringattn_context_destroy(context);
  EXPECT_EQ(log.lines.size(), 4u);
}

TEST_F(ApiHandles, APreviewCannotBeExecuted) {
  ringattn_plan* preview = nullptr;
  ASSERT_EQ(ringattn_plan_preview(context_.get(), &ring_.desc(0), 0, 1, nullptr, &preview), RINGATTN_OK);
  EXPECT_EQ(ringattn_forward(preview, &ring_.tensors(0).args, nullptr), RINGATTN_ERR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(ringattn_last_error()).find("preview"), std::string::npos) << ringattn_last_error();
  ringattn_plan_destroy(preview);
}

// What a child of fork() sees; exit code = line of the first surprise.
int in_child(ringattn_context* context, HostRing& ring, ringattn_request* request) {
  const auto forked = [](ringattn_status status) {
    return status == RINGATTN_ERR_FORKED && *ringattn_last_error() != 0;
  };
  ringattn_comm_desc comm_desc = RINGATTN_STRUCT(ringattn_comm_desc);
  comm_desc.world_size = 1;
  ringattn_comm* comm = nullptr;
  ringattn_plan* plan = nullptr;
  ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
  ringattn_times times = RINGATTN_STRUCT(ringattn_times);
  std::int64_t length = 0;
  RankTensors& t = ring.tensors(0);
  if (!forked(ringattn_comm_create_local(context, &comm_desc, &comm))) return 1;
  if (!forked(ringattn_supports(context, &ring.desc(0)))) return 2;
  if (!forked(ringattn_plan_preview(context, &ring.desc(0), 0, 1, nullptr, &plan))) return 3;
  if (!forked(ringattn_comm_rank(ring.comm(0), nullptr, nullptr))) return 4;
  if (!forked(ringattn_comm_abort(ring.comm(0), "no"))) return 5;
  if (!forked(ringattn_comm_status(ring.comm(0)))) return 6;
  if (!forked(ring.create_plan(0))) return 7;
  if (!forked(ringattn_request_test(request))) return 8;
  if (!forked(ringattn_request_wait(request, -1))) return 9;
  if (!forked(ringattn_request_cancel(request))) return 10;
  return forked(ringattn_merge(context, &t.q_view, &t.lse_view, &t.k_view, &t.lse_view, &t.o_view,
                               &t.lse_view)) &&
                 info.struct_size != 0 && times.struct_size != 0 && length == 0
             ? 0
             : 11;
}

int in_child_with_plan(HostRing& ring, ringattn_plan* plan) {
  const auto forked = [](ringattn_status status) { return status == RINGATTN_ERR_FORKED; };
  ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
  ringattn_times times = RINGATTN_STRUCT(ringattn_times);
  std::int64_t length = 0;
  std::uint64_t count = 0;
  RankTensors& t = ring.tensors(0);
  if (!forked(ringattn_forward(plan, &t.args, nullptr))) return 20;
  if (!forked(ringattn_plan_get_info(plan, nullptr, &info))) return 21;
  if (!forked(ringattn_plan_get_times(plan, &times))) return 22;
  if (!forked(ringattn_plan_describe(plan, nullptr, 0, nullptr, 0, &count))) return 23;
  if (!forked(ringattn_plan_trace(plan, nullptr, 0, &count, nullptr))) return 24;
  if (!forked(ringattn_plan_local_length(plan, 0, 0, 0, nullptr, &length))) return 25;
  if (!forked(ringattn_plan_positions(plan, 0, 0, 0, nullptr, nullptr, nullptr, 0, &count))) return 26;
  if (!forked(ringattn_shard(plan, 0, 0, nullptr, &t.q_view, &t.o_view))) return 27;
  if (!forked(ringattn_unshard(plan, 0, 0, nullptr, &t.q_view, &t.o_view))) return 28;
  return 0;
}

int new_context_works() {
  const HostContext context(1);
  HostRing ring(context, "n=24 dim=8 mask=causal ranks=2");
  return ring.execute_all() == RINGATTN_OK && ring.hash() != 0 ? 0 : 30;
}

TEST_F(ApiHandles, AChildOfForkGetsForkedAndANewContextWorks) {
  ringattn_request* request = nullptr;
  ASSERT_EQ(ring_.execute(0, &request), RINGATTN_OK);
  EXPECT_EQ(ringattn_request_wait(request, -1), RINGATTN_OK);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ringattn_plan* const plan = ring_.plan(0);
    int code = in_child_with_plan(ring_, plan);
    if (code == 0) code = in_child(context_.get(), ring_, request);
    ringattn_request_destroy(request);  // does nothing
    ringattn_plan_destroy(plan);
    ringattn_comm_destroy(ring_.comm(0));
    ringattn_context_destroy(context_.get());
    if (code == 0) code = new_context_works();
    _exit(code);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(ring_.execute(0), RINGATTN_OK) << "the parent goes on";
  ringattn_request_destroy(request);
}

}  // namespace
}  // namespace ringattn::support
