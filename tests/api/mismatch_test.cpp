// Ranks that pass different values: the same error with the same words on all of them; a rank that refuses
// its own: its
// own error there, PEER_REFUSED elsewhere; and the comm is as good as before.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/ring/host_ring.h"

namespace ringattn::support {
namespace {

constexpr std::int32_t kMismatch = RINGATTN_ERR_RANK_MISMATCH;

struct Change {
  const char* name;
  std::function<void(ringattn_plan_desc&)> bend;
  std::vector<std::string> words;  // field, value of rank 0, value of the odd rank
};
void PrintTo(const Change& change, std::ostream* out) { *out << change.name; }

// Changes of "q=40 k=48 batch=2 heads=4 dim=16 dtype=bf16 mask=window:5:3 partition=striped:2 scope=call".
std::vector<Change> changes() {
  return {
      {"batch", [](auto& d) { d.batch = d.max_sequences = 3; }, {"batch: ", " has 2", " has 3"}},
      {"seq_q", [](auto& d) { d.seq_q = 41; }, {"seq_q: ", " has 40", " has 41"}},
      {"seq_k", [](auto& d) { d.seq_k = 49; }, {"seq_k: ", " has 48", " has 49"}},
      {"heads", [](auto& d) { d.heads = 8; }, {"heads: ", " has 4", " has 8"}},
      {"kv_heads", [](auto& d) { d.kv_heads = 2; }, {"kv_heads: ", " has 4", " has 2"}},
      {"head_dim_qk",
       [](auto& d) { d.head_dim_qk = 17, d.scale = 0.25, d.head_dim_v = 16; },
       {"head_dim_qk: ", " has 16", " has 17"}},
      {"head_dim_v", [](auto& d) { d.head_dim_v = 24; }, {"head_dim_v: ", " has 16", " has 24"}},
      {"max_sequences", [](auto& d) { d.max_sequences = 9; }, {"max_sequences: ", " has 2", " has 9"}},
      {"dtype", [](auto& d) { d.dtype = RINGATTN_DTYPE_F16; }, {"dtype: ", " has bf16", " has f16"}},
      {"dtype_out",
       [](auto& d) { d.dtype_out = RINGATTN_DTYPE_F32; },
       {"dtype_out: ", " has bf16", " has f32"}},
      {"mask", [](auto& d) { d.mask = RINGATTN_MASK_CAUSAL; }, {"mask: ", " has window:5:3", " has causal"}},
      {"window_left", [](auto& d) { d.window_left = 6; }, {"mask: ", " has window:5:3", " has window:6:3"}},
      {"window_right", [](auto& d) { d.window_right = 4; }, {"mask: ", " has window:5:3", " has window:5:4"}},
      {"accuracy", [](auto& d) { d.accuracy = RINGATTN_ACCURACY_EXACT; }, {"accuracy: ", " has 0", " has 1"}},
      {"scale", [](auto& d) { d.scale = 0.125; }, {"scale: ", " has 0.25", " has 0.125"}},
      {"partition",
       [](auto& d) { d.partition = RINGATTN_PARTITION_ZIGZAG, d.stripe = 0; },
       {"partition: ", " has striped:2", " has zigzag"}},
      {"stripe", [](auto& d) { d.stripe = 3; }, {"partition: ", " has striped:2", " has striped:3"}},
      {"query_cut",
       [](auto& d) { d.scope = RINGATTN_SCOPE_CAPACITY, d.query_cut = RINGATTN_QUERY_CUT_LIKE_KEYS; },
       {"query_cut: ", " has by_index", " has like_keys"}},
      {"scope",
       [](auto& d) { d.scope = RINGATTN_SCOPE_DOCUMENT; },
       {"scope: ", " has call", " has document"}},
  };
}

constexpr const char* kProblem =
    "q=40 k=48 batch=2 heads=4 dim=16 dtype=bf16 mask=window:5:3 partition=striped:2 scope=call";

// What every rank's own call returned.
struct Answers {
  std::vector<ringattn_status> statuses;
  std::vector<std::string> messages;

  explicit Answers(int ranks) : statuses(static_cast<std::size_t>(ranks)), messages(statuses.size()) {}
  void take(int rank, ringattn_status status) {
    statuses[static_cast<std::size_t>(rank)] = status;
    messages[static_cast<std::size_t>(rank)] = ringattn_last_error();
  }
  void expect_same(ringattn_status status, const std::vector<std::string>& words) const {
    for (std::size_t rank = 0; rank < statuses.size(); ++rank) {
      EXPECT_EQ(statuses[rank], status) << "rank " << rank << ": " << messages[rank];
      EXPECT_EQ(messages[rank], messages[0]);
    }
    for (const std::string& word : words) {
      EXPECT_NE(messages[0].find(word), std::string::npos) << word << " is not in: " << messages[0];
    }
  }
  // `odd` has its own error, all others are told who and why.
  void expect_refusal(int odd, ringattn_status own, const std::string& reason) const {
    for (int rank = 0; rank < static_cast<int>(statuses.size()); ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      EXPECT_EQ(statuses[r], rank == odd ? own : RINGATTN_ERR_PEER_REFUSED)
          << "rank " << rank << ": " << messages[r];
      EXPECT_NE(messages[r].find(reason), std::string::npos) << messages[r];
      if (rank != odd) {
        EXPECT_EQ(messages[r].find("rank " + std::to_string(odd) + " refused"), 0u) << messages[r];
      }
    }
  }
};

HostRingOptions without_plans() {
  HostRingOptions options;
  options.plans = false;
  return options;
}

class ApiPlanMismatch : public ::testing::TestWithParam<Change> {};

TEST_P(ApiPlanMismatch, OnThreadsAndAsArrayThenTheRingStillWorks) {
  const HostContext context(1);
  for (const int ranks : {2, 3, 5}) {
    const int odd = ranks - 1;
    HostRing ring(context, std::string(kProblem) + " ranks=" + std::to_string(ranks), without_plans());
    std::vector<ringattn_plan_desc> descs(static_cast<std::size_t>(ranks), ring.desc(0));
    GetParam().bend(descs.back());
    std::vector<ringattn_plan*> plans(descs.size(), reinterpret_cast<ringattn_plan*>(&ring));
    Answers answers(ranks);
    run_threads(
        ranks,
        [&](int rank) {
          const auto r = static_cast<std::size_t>(rank);
          answers.take(rank, ringattn_plan_create(ring.comm(rank), &descs[r], &plans[r]));
        },
        30, "plan_create with a mismatch");
    std::vector<std::string> words = GetParam().words;
    words.push_back("rank 0 has");
    words.push_back("rank " + std::to_string(odd) + " has");
    answers.expect_same(kMismatch, words);
    for (ringattn_plan* plan : plans) EXPECT_EQ(plan, nullptr);

    std::vector<ringattn_comm*> comms;
    for (int rank = 0; rank < ranks; ++rank) comms.push_back(ring.comm(rank));
    EXPECT_EQ(ringattn_plan_create_array(ranks, comms.data(), descs.data(), plans.data()), kMismatch);
    EXPECT_EQ(answers.messages[0], ringattn_last_error());
    descs.back() = descs[0];
    EXPECT_EQ(ringattn_plan_create_array(ranks, comms.data(), descs.data(), plans.data()), RINGATTN_OK)
        << ringattn_last_error();
    for (ringattn_plan* plan : plans) ringattn_plan_destroy(plan);
  }
}

INSTANTIATE_TEST_SUITE_P(Fields, ApiPlanMismatch, ::testing::ValuesIn(changes()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ApiMismatch, WhatIsARanksOwnBusinessMayDiffer) {
  const HostContext context(1);
  HostRing ring(context, "n=20 dim=8 ranks=2", without_plans());
  std::vector<ringattn_plan_desc> descs(2, ring.desc(0));
  descs[1].flags = RINGATTN_PLAN_TRACE | RINGATTN_PLAN_CALLER_WORKSPACE;
  descs[1].scale = 1 / std::sqrt(8.0);  // the default, in words
  descs[1].kv_heads = descs[1].head_dim_v = 0;
  descs[0].kv_heads = 1;
  descs[0].head_dim_v = 8;
  descs[1].window_left = 77;  // not read
  ringattn_comm* comms[] = {ring.comm(0), ring.comm(1)};
  ringattn_plan* plans[2];
  EXPECT_EQ(ringattn_plan_create_array(2, comms, descs.data(), plans), RINGATTN_OK) << ringattn_last_error();
  for (ringattn_plan* plan : plans) ringattn_plan_destroy(plan);
}

TEST(ApiMismatch, ARankThatRefusesItsDescription) {
  const HostContext context(1);
  for (int ranks = 2; ranks <= 5; ++ranks) {
    for (const int odd : {0, ranks - 1}) {
      HostRing ring(context, "n=20 dim=8 ranks=" + std::to_string(ranks), without_plans());
      std::vector<ringattn_plan_desc> descs(static_cast<std::size_t>(ranks), ring.desc(0));
      descs[static_cast<std::size_t>(odd)].head_dim_qk = 1000;
      std::vector<ringattn_plan*> plans(descs.size());
      Answers answers(ranks);
      const auto create = [&](int rank) {
        const auto r = static_cast<std::size_t>(rank);
        answers.take(rank, ringattn_plan_create(ring.comm(rank),
                                                rank == odd && odd == 0 ? nullptr : &descs[r], &plans[r]));
      };
      run_threads(ranks, create, 30, "a refused description");
      answers.expect_refusal(odd, RINGATTN_ERR_INVALID_ARGUMENT,
                             odd == 0 ? "plan_desc: NULL" : "head_dim_qk: 1000");
      descs[static_cast<std::size_t>(odd)] = ring.desc(0);
      run_threads(
          ranks,
          [&](int rank) {
            const auto r = static_cast<std::size_t>(rank);
            answers.take(rank, ringattn_plan_create(ring.comm(rank), &descs[r], &plans[r]));
          },
          30, "the second try");
      answers.expect_same(RINGATTN_OK, {});
      for (ringattn_plan* plan : plans) ringattn_plan_destroy(plan);
    }
  }
}

// ---- the values of a call ---------------------------------------------------------------------------------

constexpr const char* kCalls = "q=24 k=30 dim=8 mask=causal docs=8,9 docs_k=10,11 max_docs=4 ranks=";

struct CallChange {
  const char* name;
  std::function<void(ringattn_call&)> bend;
  std::vector<std::string> words;
};

std::vector<CallChange> call_changes() {
  static const std::int64_t other_q[] = {0, 7, 17}, other_k[] = {0, 10, 22}, three[] = {0, 8, 17, 20},
                            three_k[] = {0, 10, 21, 24};
  return {
      {"cu_q", [](auto& c) { c.cu_q = other_q; }, {"call.cu_q[1]: ", " has 8", " has 7"}},
      {"cu_k", [](auto& c) { c.cu_k = other_k; }, {"call.cu_k[2]: ", " has 21", " has 22"}},
      {"sequences",
       [](auto& c) { c.sequences = 3, c.cu_q = three, c.cu_k = three_k; },
       {"call.sequences: ", " has 2", " has 3"}},
      {"query_offset",
       [](auto& c) { c.flags |= RINGATTN_CALL_QUERY_OFFSET, c.query_offset = 1; },
       {"call.query_offset (sequence 0): ", " has 2", " has 1"}},
      {"flags", [](auto& c) { c.flags = 0; }, {"call.sequences: ", " has 2", " has 1"}},
  };
}

void expect_untouched(HostRing& ring) {
  for (int rank = 0; rank < ring.ranks(); ++rank) {
    for (const HostTensor* out : {&ring.tensors(rank).o, &ring.tensors(rank).lse}) {
      for (const float value : out->to_floats())
        ASSERT_TRUE(std::isnan(value)) << "an output of rank " << rank << " was written";
    }
  }
}

TEST(ApiMismatch, ForwardNamesEveryValueOfACall) {
  const HostContext context(1);
  for (const CallChange& change : call_changes()) {
    for (const int ranks : {2, 4}) {
      HostRing ring(context, kCalls + std::to_string(ranks));
      ringattn_call odd = *ring.call();
      change.bend(odd);
      ring.tensors(ranks - 1).args.call = &odd;
      Answers answers(ranks);
      run_threads(
          ranks, [&](int rank) { answers.take(rank, ring.execute(rank)); }, 30, "forward with a mismatch");
      std::vector<std::string> words = change.words;
      words.push_back("rank " + std::to_string(ranks - 1) + " has");
      answers.expect_same(kMismatch, words);
      EXPECT_EQ(ring.execute_all(), kMismatch) << change.name;
      EXPECT_EQ(answers.messages[0], ringattn_last_error());
      expect_untouched(ring);
      ring.tensors(ranks - 1).args.call = ring.call();
      for (const ringattn_status status : ring.execute_on_threads())
        EXPECT_EQ(status, RINGATTN_OK) << change.name;
      EXPECT_EQ(ring.execute_all(), RINGATTN_OK) << ringattn_last_error();
    }
  }
}

TEST(ApiMismatch, EqualValuesInOtherWordsAreEqual) {
  const HostContext context(1);
  HostRing ring(context, "n=24 dim=8 ranks=2");
  const std::int64_t cu[] = {0, 24};
  ringattn_call call = RINGATTN_STRUCT(ringattn_call);
  call.flags = RINGATTN_CALL_SEQUENCES | RINGATTN_CALL_QUERY_OFFSET;
  call.sequences = 1;
  call.cu_q = call.cu_k = cu;
  ring.tensors(1).args.call = &call;
  for (const ringattn_status status : ring.execute_on_threads()) EXPECT_EQ(status, RINGATTN_OK);
}

TEST(ApiMismatch, DifferentPlansOfOneCommAreNamed) {
  const HostContext context(1);
  HostRing ring(context, "n=24 dim=8 ranks=2");
  ringattn_comm* comms[] = {ring.comm(0), ring.comm(1)};
  const ringattn_plan_desc descs[] = {ring.desc(0), ring.desc(1)};
  ringattn_plan* second[2];
  ASSERT_EQ(ringattn_plan_create_array(2, comms, descs, second), RINGATTN_OK);
  Answers answers(2);
  run_threads(
      2,
      [&](int rank) {
        ringattn_plan* plan = rank == 0 ? ring.plan(0) : second[1];
        answers.take(rank, ringattn_forward(plan, &ring.tensors(rank).args, nullptr));
      },
      30, "two plans");
  answers.expect_same(kMismatch, {"plan (by order of creation)", "rank 0 has 1", "rank 1 has 2"});
  for (ringattn_plan* plan : second) ringattn_plan_destroy(plan);
}

TEST(ApiMismatch, ARankThatRefusesItsArguments) {
  const HostContext context(1);
  for (int ranks = 2; ranks <= 5; ++ranks) {
    for (int odd = 0; odd < ranks; odd += ranks - 1) {
      HostRing ring(context, kCalls + std::to_string(ranks));
      ring.tensors(odd).q_view.dtype = RINGATTN_DTYPE_F16;
      Answers answers(ranks);
      run_threads(
          ranks,
          [&](int rank) {
            ringattn_request* request = reinterpret_cast<ringattn_request*>(&ring);
            const bool asynchronous = rank == odd;  // its error comes from the call itself
            answers.take(rank, ring.execute(rank, asynchronous ? &request : nullptr));
            EXPECT_EQ(request == nullptr, asynchronous);
          },
          30, "a refused forward");
      answers.expect_refusal(odd, RINGATTN_ERR_INVALID_ARGUMENT, "q.dtype: 2");
      EXPECT_EQ(ring.execute_all(), RINGATTN_ERR_INVALID_ARGUMENT);
      EXPECT_NE(std::string(ringattn_last_error()).find("rank " + std::to_string(odd)), std::string::npos);
      expect_untouched(ring);
      ring.tensors(odd).q_view.dtype = RINGATTN_DTYPE_F32;
      for (const ringattn_status status : ring.execute_on_threads()) EXPECT_EQ(status, RINGATTN_OK);
    }
  }
}

TEST(ApiMismatch, AllRanksRefuseEachSaysItsOwn) {
  const HostContext context(1);
  HostRing ring(context, "n=24 dim=8 ranks=3");
  for (int rank = 0; rank < 3; ++rank) ring.tensors(rank).args.flags = 1u << rank;
  Answers answers(3);
  run_threads(
      3, [&](int rank) { answers.take(rank, ring.execute(rank)); }, 30, "all refuse");
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(answers.statuses[static_cast<std::size_t>(rank)], RINGATTN_ERR_INVALID_ARGUMENT);
    EXPECT_NE(answers.messages[static_cast<std::size_t>(rank)].find("flags: " + std::to_string(1 << rank)),
              std::string::npos);
  }
  for (int rank = 0; rank < 3; ++rank) ring.tensors(rank).args.flags = 0;
  for (const ringattn_status status : ring.execute_on_threads()) EXPECT_EQ(status, RINGATTN_OK);
}

TEST(ApiMismatch, PlanCreateOnOneRankWhileAnotherCallsForward) {
  const HostContext context(1);
  for (const int ranks : {2, 3}) {
    HostRing ring(context, "n=24 dim=8 ranks=" + std::to_string(ranks));
    ringattn_plan* plan = nullptr;
    Answers answers(ranks);
    run_threads(
        ranks,
        [&](int rank) {
          answers.take(rank, rank == 1 ? ringattn_plan_create(ring.comm(1), &ring.desc(1), &plan)
                                       : ring.execute(rank));
        },
        30, "different collective calls");
    answers.expect_same(kMismatch, {"collective call", "rank 0 has forward", "rank 1 has plan_create"});
    EXPECT_EQ(plan, nullptr);
    for (const ringattn_status status : ring.execute_on_threads()) EXPECT_EQ(status, RINGATTN_OK);
  }
}

}  // namespace
}  // namespace ringattn::support
