// Public bug reports about options that are ignored and messages that do not help (B015, B094, B097).
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "tests/e2e/closed_forms.h"
#include "tests/support/ready_ring.h"

namespace ringattn::support {
namespace {

ringattn_plan_desc good_desc() {
  ringattn_plan_desc desc = RINGATTN_STRUCT(ringattn_plan_desc);
  desc.batch = 1;
  desc.seq_q = desc.seq_k = 64;
  desc.heads = 4;
  desc.kv_heads = 2;
  desc.head_dim_qk = 32;
  desc.dtype = RINGATTN_DTYPE_F32;
  return desc;
}

// There is no sink parameter: a newer header's field that this library does not know must not be dropped silently.
TEST(CaseB015, AnUnknownTrailingFieldIsRefusedUnlessZero) {
  const CommRing ring(1);
  struct {
    ringattn_plan_desc desc;
    double sink;
  } newer{good_desc(), 3.0};
  newer.desc.struct_size = sizeof newer;
  EXPECT_EQ(ringattn_supports(ring.context(), &newer.desc), RINGATTN_ERR_STRUCT_SIZE);
  EXPECT_STRNE(ringattn_last_error(), "");
  ringattn_plan* plan = nullptr;
  EXPECT_EQ(ringattn_plan_create(ring.comm(0), &newer.desc, &plan), RINGATTN_ERR_STRUCT_SIZE);
  EXPECT_EQ(plan, nullptr);
  newer.sink = 0;
  EXPECT_EQ(ringattn_supports(ring.context(), &newer.desc), RINGATTN_OK) << ringattn_last_error();
}

TEST(CaseB015, AnUnknownTrailingArgumentOfForwardIsRefusedUnlessZero) {
  const ProblemLine problem = parsed("n=16 dim=8 mask=causal ranks=1");
  ReadyRing ring(problem, u1_inputs(problem));
  struct {
    ringattn_forward_args args;
    const void* sink;
  } newer{ring.tensors(0).args, &newer};
  newer.args.struct_size = sizeof newer;
  EXPECT_EQ(ringattn_forward(ring.plan(0), &newer.args, nullptr), RINGATTN_ERR_STRUCT_SIZE);
  EXPECT_TRUE(std::isnan(ring.tensors(0).o.get(0, 15, 0, 0))) << "an output was written";
  newer.sink = nullptr;
  EXPECT_EQ(ringattn_forward(ring.plan(0), &newer.args, nullptr), RINGATTN_OK) << ringattn_last_error();
  EXPECT_NEAR(ring.tensors(0).o.get(0, 15, 0, 0), 7.5, 1e-5);
}

TEST(CaseB097, UnknownOptionsAreErrorsEverywhere) {
  const ProblemLine problem = parsed("n=16 dim=8 mask=causal docs=9 ranks=1");
  ReadyRing ring(problem, u1_inputs(problem));
  const auto refused = [&](const char* what) {
    EXPECT_EQ(ring.forward(0), RINGATTN_ERR_INVALID_ARGUMENT) << what;
    EXPECT_NE(std::string(ringattn_last_error()).find("flags"), std::string::npos) << ringattn_last_error();
  };
  ring.tensors(0).args.flags = 1u << 7;
  refused("flags of the arguments");
  ring.tensors(0).args.flags = 0;
  ring.tensors(0).k_view.flags |= 1u << 9;
  refused("flags of a tensor");
  ring.tensors(0).k_view = ring.tensors(0).k.view();
  ringattn_call call = *ring.plans().values().call();
  call.flags |= 1u << 5;
  ring.tensors(0).args.call = &call;
  refused("flags of the call");
  ring.tensors(0).args.call = ring.plans().values().call();
  EXPECT_EQ(ring.forward(0), RINGATTN_OK) << ringattn_last_error();

  ringattn_context_desc context = RINGATTN_STRUCT(ringattn_context_desc);
  context.reserved = 1;
  ringattn_context* out = nullptr;
  EXPECT_EQ(ringattn_context_create(&context, &out), RINGATTN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(out, nullptr);
  ProblemLine unread;
  EXPECT_TRUE(parse_problem("n=16 dropout=0.1", unread).has_value());
}

struct Refusal {
  const char* what;
  std::function<void(ringattn_plan_desc&)> bend;
  std::vector<const char*> words;  // the feature, the value given, what is allowed
};

std::vector<Refusal> refusals_of_sizes() {
  return {
      {"batch", [](auto& d) { d.batch = -1; }, {"batch", "-1", "0"}},
      {"seq_q", [](auto& d) { d.seq_q = -7; }, {"seq_q", "-7", "0"}},
      {"seq_k",
       [](auto& d) { d.seq_k = std::numeric_limits<std::int64_t>::max(); },
       {"seq_k", "9223372036854775807"}},
      {"heads", [](auto& d) { d.heads = 0; }, {"heads", "0", "1"}},
      {"kv_heads", [](auto& d) { d.kv_heads = 3; }, {"kv_heads", "3", "heads", "4"}},
      {"head_dim_qk", [](auto& d) { d.head_dim_qk = 577; }, {"head_dim_qk", "577", "576"}},
      {"head_dim_qk 0", [](auto& d) { d.head_dim_qk = 0; }, {"head_dim_qk", "0", "1"}},
      {"head_dim_v", [](auto& d) { d.head_dim_v = 600; }, {"head_dim_v", "600", "576"}},
      {"max_sequences", [](auto& d) { d.max_sequences = -2; }, {"max_sequences", "-2", "0"}},
      {"product",
       [](auto& d) { d.batch = d.heads = d.seq_q = std::int64_t{1} << 30; },
       {"1073741824", "seq"}},
  };
}

std::vector<Refusal> refusals_of_choices() {
  return {
      {"dtype", [](auto& d) { d.dtype = RINGATTN_DTYPE_I64; }, {"dtype", "5", "BF16"}},
      {"dtype 0", [](auto& d) { d.dtype = 0; }, {"dtype", "0", "F32"}},
      {"dtype_out", [](auto& d) { d.dtype_out = RINGATTN_DTYPE_BF16; }, {"dtype_out", "3", "F32"}},
      {"mask", [](auto& d) { d.mask = 64; }, {"mask", "64", "CAUSAL"}},
      {"window_left",
       [](auto& d) { d.mask = RINGATTN_MASK_WINDOW_LEFT, d.window_left = -1; },
       {"window_left", "-1", "0"}},
      {"window_right",
       [](auto& d) { d.mask = RINGATTN_MASK_WINDOW_RIGHT, d.window_right = -5; },
       {"window_right", "-5", "0"}},
      {"causal and right",
       [](auto& d) { d.mask = RINGATTN_MASK_CAUSAL | RINGATTN_MASK_WINDOW_RIGHT, d.window_right = 2; },
       {"window_right", "2", "CAUSAL"}},
      {"scale", [](auto& d) { d.scale = -0.5; }, {"scale", "-0.5", "positive"}},
      {"scale", [](auto& d) { d.scale = std::nan(""); }, {"scale", "nan", "positive"}},
      {"accuracy", [](auto& d) { d.accuracy = 5; }, {"accuracy", "5", "1"}},
      {"partition", [](auto& d) { d.partition = 9; }, {"partition", "9", "3"}},
      {"query_cut", [](auto& d) { d.query_cut = -3; }, {"query_cut", "-3", "2"}},
      {"scope", [](auto& d) { d.scope = 4; }, {"scope", "4", "2"}},
      {"like_keys and call",
       [](auto& d) { d.scope = RINGATTN_SCOPE_CALL, d.query_cut = RINGATTN_QUERY_CUT_LIKE_KEYS; },
       {"query_cut", "LIKE_KEYS", "CAPACITY"}},
      {"stripe",
       [](auto& d) { d.partition = RINGATTN_PARTITION_STRIPED, d.stripe = -4; },
       {"stripe", "-4", "0"}},
      {"schedule", [](auto& d) { d.schedule = 77; }, {"schedule", "77", "1"}},
      {"flags", [](auto& d) { d.flags = 1u << 20; }, {"flags", "1048576", "TRACE"}},
      {"explicit and call",
       [](auto& d) { d.partition = RINGATTN_PARTITION_EXPLICIT, d.scope = RINGATTN_SCOPE_CALL; },
       {"scope", "CAPACITY", "EXPLICIT"}},
      {"runs_k",
       [](auto& d) { d.partition = RINGATTN_PARTITION_EXPLICIT, d.runs_k_count = 2; },
       {"runs_k", "2", "NULL"}},
  };
}

TEST(CaseB094, MessagesNameFeatureValueAndWhatIsAllowed) {
  const CommRing ring(1);
  ringattn_plan_desc desc = good_desc();
  ASSERT_EQ(ringattn_supports(ring.context(), &desc), RINGATTN_OK) << ringattn_last_error();
  for (const std::vector<Refusal>& refusals : {refusals_of_sizes(), refusals_of_choices()}) {
    for (const Refusal& refusal : refusals) {
      desc = good_desc();
      refusal.bend(desc);
      const ringattn_status status = ringattn_supports(ring.context(), &desc);
      const std::string message = ringattn_last_error();
      EXPECT_TRUE(status == RINGATTN_ERR_INVALID_ARGUMENT || status == RINGATTN_ERR_UNSUPPORTED)
          << refusal.what << ": " << status;
      for (const char* word : refusal.words) {
        EXPECT_NE(message.find(word), std::string::npos)
            << refusal.what << ": \"" << word << "\" is not in: " << message;
      }
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;

      ringattn_plan* plan = reinterpret_cast<ringattn_plan*>(&desc);  // plan_create is the same decision
      EXPECT_EQ(ringattn_plan_create(ring.comm(0), &desc, &plan), status) << refusal.what;
      EXPECT_EQ(plan, nullptr);
    }
  }
  desc = good_desc();
  ringattn_plan* plan = nullptr;
  EXPECT_EQ(ringattn_plan_create(ring.comm(0), &desc, &plan), RINGATTN_OK) << "the comm stays usable";
  ringattn_plan_destroy(plan);
}

TEST(CaseB094, MessagesOfContextAndComm) {
  const auto context_message = [](const std::function<void(ringattn_context_desc&)>& bend) {
    ringattn_context_desc desc = RINGATTN_STRUCT(ringattn_context_desc);
    bend(desc);
    ringattn_context* out = reinterpret_cast<ringattn_context*>(&desc);
    EXPECT_LT(ringattn_context_create(&desc, &out), 0);
    EXPECT_EQ(out, nullptr);
    return std::string(ringattn_last_error());
  };
  EXPECT_NE(context_message([](auto& d) { d.device_type = 3; }).find("device_type"), std::string::npos);
  EXPECT_NE(context_message([](auto& d) { d.threads = -2; }).find("-2"), std::string::npos);
  EXPECT_NE(context_message([](auto& d) { d.max_workers = 4; }).find("max_workers"), std::string::npos);
  EXPECT_NE(context_message([](auto& d) { d.log_level = 9; }).find("log_level"), std::string::npos);

  const CommRing ring(1);
  const auto comm_refusal = [&](ringattn_status expected,
                                const std::function<void(ringattn_comm_desc&)>& bend) {
    ringattn_comm_desc desc = RINGATTN_STRUCT(ringattn_comm_desc);
    desc.world_size = 1;
    bend(desc);
    ringattn_comm* out = nullptr;
    EXPECT_EQ(ringattn_comm_create_local(ring.context(), &desc, &out), expected) << ringattn_last_error();
    return std::string(ringattn_last_error());
  };
  const std::string transport =
      comm_refusal(RINGATTN_ERR_NOT_FOUND, [](auto& d) { d.transport = "smoke_signals"; });
  EXPECT_NE(transport.find("smoke_signals"), std::string::npos) << transport;
  EXPECT_NE(transport.find("local"), std::string::npos) << "which ones there are: " << transport;
  const std::string zero = comm_refusal(RINGATTN_ERR_INVALID_ARGUMENT, [](auto& d) { d.world_size = 0; });
  EXPECT_NE(zero.find("world_size"), std::string::npos) << zero;
  const std::string many = comm_refusal(RINGATTN_ERR_INVALID_ARGUMENT, [](auto& d) { d.world_size = 4097; });
  EXPECT_NE(many.find("4097"), std::string::npos) << many;
  EXPECT_NE(many.find("4096"), std::string::npos) << many;
  const std::string timeout = comm_refusal(RINGATTN_ERR_INVALID_ARGUMENT, [](auto& d) { d.timeout_ms = -2; });
  EXPECT_NE(timeout.find("timeout_ms"), std::string::npos) << timeout;
}

TEST(CaseB094, MessagesBelongToTheThread) {
  const CommRing ring(1);
  ringattn_plan_desc desc = good_desc();
  desc.kv_heads = 3;
  ASSERT_NE(ringattn_supports(ring.context(), &desc), RINGATTN_OK);
  std::thread([&] {
    EXPECT_STREQ(ringattn_last_error(), "");
    ringattn_plan_desc other = good_desc();
    other.head_dim_qk = 999;
    EXPECT_NE(ringattn_supports(ring.context(), &other), RINGATTN_OK);
  }).join();
  EXPECT_NE(std::string(ringattn_last_error()).find("kv_heads"), std::string::npos);
  desc = good_desc();
  EXPECT_EQ(ringattn_supports(ring.context(), &desc), RINGATTN_OK);
  EXPECT_STREQ(ringattn_last_error(), "") << "a success clears the message";
}

// Messages about ranks name the rank, on all ranks.
TEST(CaseB094, RefusalOfOneRankReachesAllWithItsReason) {
  const ProblemLine problem = parsed("n=32 dim=8 mask=causal ranks=3");
  ReadyRing ring(problem, u1_inputs(problem));
  ring.tensors(1).v_view.dtype = RINGATTN_DTYPE_F16;
  std::vector<ringattn_status> statuses(3);
  std::vector<std::string> messages(3);
  const auto forward = [&](int rank) {
    statuses[static_cast<std::size_t>(rank)] = ring.forward(rank);
    messages[static_cast<std::size_t>(rank)] = ringattn_last_error();
  };
  const auto run_all = [&] {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) threads.emplace_back(forward, rank);
    for (std::thread& thread : threads) thread.join();
  };
  run_all();
  EXPECT_EQ(statuses[1], RINGATTN_ERR_INVALID_ARGUMENT);
  EXPECT_NE(messages[1].find("v"), std::string::npos) << messages[1];
  EXPECT_NE(messages[1].find("dtype"), std::string::npos) << messages[1];
  for (const std::size_t rank : {0u, 2u}) {
    EXPECT_EQ(statuses[rank], RINGATTN_ERR_PEER_REFUSED);
    EXPECT_NE(messages[rank].find("rank 1"), std::string::npos) << messages[rank];
    EXPECT_NE(messages[rank].find("dtype"), std::string::npos) << messages[rank];
    EXPECT_TRUE(std::isnan(ring.tensors(static_cast<int>(rank)).o.get(0, 0, 0, 0)))
        << "an output was written";
  }
  ring.tensors(1).v_view = ring.tensors(1).v.view();
  run_all();
  EXPECT_EQ(statuses, (std::vector<ringattn_status>(3, RINGATTN_OK))) << "the comm stays usable";
}

}  // namespace
}  // namespace ringattn::support
