// Ranks that disagree in backward, or in which call it is: all get the same words, or one refuses and the
// others hear of it; P = 2..5, by one thread for all ranks and by one each, also where two ranks never meet.
#include <algorithm>

#include "tests/api/wrong_use_copying.h"

namespace ringattn::wrong_use {
namespace {

constexpr ringattn_status kMismatch = RINGATTN_ERR_RANK_MISMATCH;

struct Shape {
  const char* name;
  int ranks;
  bool window;  // contiguous with a small window: of 5 ranks, 0 and 4 never meet
};
void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }

ringattn_plan_desc problem_of(const Shape& shape) {
  ringattn_plan_desc desc = batch_problem();
  desc.batch = 1;
  desc.seq_q = 20;
  desc.seq_k = 22;
  desc.max_sequences = 4;
  desc.scope = RINGATTN_SCOPE_CALL;
  desc.query_cut = RINGATTN_QUERY_CUT_BY_INDEX;
  if (shape.window) {
    desc.mask = RINGATTN_MASK_CAUSAL | RINGATTN_MASK_WINDOW_LEFT;
    desc.window_left = 2;
  }
  return desc;
}

constexpr std::int64_t kDocsQ[] = {0, 8, 17}, kDocsK[] = {0, 10, 21};
void two_documents(ringattn_call& call) {
  call.flags = RINGATTN_CALL_SEQUENCES;
  call.sequences = 2;
  call.cu_q = kDocsQ;
  call.cu_k = kDocsK;
}
void full_length(ringattn_call&) {}

struct CallChange {
  const char* what;
  std::function<void(ringattn_call&)> bend;
  std::vector<std::string> words;
};

std::vector<CallChange> call_changes() {
  static const std::int64_t other_q[] = {0, 7, 17}, shorter_q[] = {0, 8, 16}, other_k[] = {0, 10, 22},
                            three_q[] = {0, 8, 17, 20}, three_k[] = {0, 10, 21, 22};
  return {
      {"cu_q inside", [](auto& c) { c.cu_q = other_q; }, {"call.cu_q[1]: ", "8", "7"}},
      {"cu_q at the end", [](auto& c) { c.cu_q = shorter_q; }, {"call.cu_q[2]: ", "17", "16"}},
      {"cu_k", [](auto& c) { c.cu_k = other_k; }, {"call.cu_k[2]: ", "21", "22"}},
      {"cu_k NULL", [](auto& c) { c.cu_k = nullptr; }, {"call.cu_k[1]: ", "10", "8"}},
      {"sequences",
       [](auto& c) { c.sequences = 3, c.cu_q = three_q, c.cu_k = three_k; },
       {"call.sequences: ", "2", "3"}},
      {"no sequences", [](auto& c) { c.sequences = 0; }, {"call.sequences: ", "2", "0"}},
      {"full length", [](auto& c) { c.flags = 0; }, {"call.sequences: ", "2", "1"}},
      {"query_offset",
       [](auto& c) { c.flags |= RINGATTN_CALL_QUERY_OFFSET, c.query_offset = 1; },
       {"call.query_offset (sequence 0): ", "2", "1"}},
  };
}

class MismatchBackward : public ::testing::TestWithParam<Shape> {
 protected:
  int ranks() const { return GetParam().ranks; }
  // Each way to run a pass on all ranks.
  void expect_mismatch(Ring& ring, bool of_backward, const std::vector<std::string>& words) const {
    const auto answers = ring.on_threads([&](int rank) { return ring.run(of_backward, rank); });
    expect_all(answers, kMismatch, words);
    EXPECT_TRUE(ring.untouched());
    const Answer array = answer(ring.run_array(of_backward));
    EXPECT_TRUE(refused(array, kMismatch, words));
    EXPECT_EQ(array.message, answers[0].message) << "both forms say the same";
    EXPECT_TRUE(ring.untouched());
    EXPECT_TRUE(ring.works());
  }
  std::vector<std::string> with_odd(std::vector<std::string> words, int odd) const {
    words.push_back("rank 0 has");
    words.push_back("rank " + std::to_string(odd == 0 ? 1 : odd) + " has");
    return words;
  }
};

TEST_P(MismatchBackward, EveryValueOfACallForwardAndBackward) {
  Ring ring(ranks(), problem_of(GetParam()), {"local", two_documents});
  int odd = 0;
  for (const CallChange& change : call_changes()) {
    odd = (odd + 1) % ranks();
    for (const bool of_backward : {false, true}) {
      SCOPED_TRACE(std::string(change.what) + (of_backward ? ", backward" : ", forward"));
      ring.reset();
      change.bend(ring.shards(odd).call.value);
      expect_mismatch(ring, of_backward, with_odd(change.words, odd));
    }
  }
}

// What the cases of P5_window are about.
TEST(MismatchBackwardWindow, TheEndsOfTheRingNeverMeet) {
  Ring ring(5, problem_of({"", 5, true}), {"local", full_length});
  for (int rank = 0; rank < 5; ++rank) {
    ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
    ASSERT_EQ(ringattn_plan_get_info(ring.plan(rank), nullptr, &info), RINGATTN_OK);
    EXPECT_LE(info.steps, 2) << "its own keys and those of the rank before";
  }
}

// The first and the last never send each other anything where the window is small, and still hear of it.
TEST_P(MismatchBackward, OneRankCallsForwardTheOthersBackward) {
  Ring ring(ranks(), problem_of(GetParam()), {"local", full_length});
  for (int odd = 0; odd < ranks(); ++odd) {
    for (const bool most : {false, true}) {
      SCOPED_TRACE("rank " + std::to_string(odd) + (most ? ": forward" : ": backward"));
      const auto answers = ring.on_threads([&](int rank) { return ring.run((rank == odd) != most, rank); });
      const char* const first = (0 == odd) != most ? "rank 0 has backward" : "rank 0 has forward";
      expect_all(answers, kMismatch,
                 with_odd({"collective call", "forward", "backward", first, "expected"}, odd));
      EXPECT_TRUE(ring.untouched());
      EXPECT_TRUE(ring.works());
    }
  }
}

// Some ranks by an array each way: two calls that drive a part of the ring.
TEST_P(MismatchBackward, ArraysOfForwardAndOfBackward) {
  Ring ring(ranks(), problem_of(GetParam()), {"local", full_length});
  const int half = ranks() / 2, rest = ranks() - half;
  std::vector<ringattn_forward_args> forwards;
  std::vector<ringattn_backward_args> backwards;
  forwards.reserve(static_cast<std::size_t>(half));
  backwards.reserve(static_cast<std::size_t>(rest));
  for (int r = 0; r < half; ++r) forwards.push_back(ring.shards(r).forward.value);
  for (int r = half; r < ranks(); ++r) backwards.push_back(ring.shards(r).backward.value);
  Answer answers[2];
  support::run_threads(
      2,
      [&](int i) {
        answers[i] =
            answer(i == 0 ? ringattn_forward_array(half, ring.plans(), forwards.data(), nullptr)
                          : ringattn_backward_array(rest, ring.plans() + half, backwards.data(), nullptr));
      },
      60, "arrays of two kinds");
  const std::vector<std::string> words = {"collective call", "rank 0 has forward",
                                          "rank " + std::to_string(half) + " has backward"};
  for (const Answer& got : answers) EXPECT_TRUE(refused(got, kMismatch, words));
  EXPECT_EQ(answers[0].message, answers[1].message);
  EXPECT_TRUE(ring.untouched());
  EXPECT_TRUE(ring.works());
}

TEST_P(MismatchBackward, PlanCreateOnOneRankBackwardOnTheOthers) {
  Ring ring(ranks(), problem_of(GetParam()), {"local", full_length});
  const int odd = ranks() - 1;
  ringattn_plan* plan = ring.plan(0);
  const auto answers = ring.on_threads([&](int rank) {
    return rank == odd ? ringattn_plan_create(ring.comm(rank), &ring.desc(), &plan) : ring.backward(rank);
  });
  expect_all(answers, kMismatch, with_odd({"collective call", "rank 0 has backward", "plan_create"}, odd));
  EXPECT_EQ(plan, nullptr);
  EXPECT_TRUE(ring.untouched());
  EXPECT_TRUE(ring.works());
}

TEST_P(MismatchBackward, OtherPlansOfTheSameComm) {
  Ring ring(ranks(), problem_of(GetParam()), {"local", full_length});
  std::vector<ringattn_plan*> second(static_cast<std::size_t>(ranks()));
  const std::vector<ringattn_plan_desc> descs(second.size(), ring.desc());
  ASSERT_EQ(ringattn_plan_create_array(ranks(), ring.comms(), descs.data(), second.data()), RINGATTN_OK);
  const int odd = ranks() - 1;
  const auto answers = ring.on_threads([&](int rank) {
    ringattn_plan* const plan = rank == odd ? second[static_cast<std::size_t>(rank)] : ring.plan(rank);
    return ringattn_backward(plan, &ring.shards(rank).backward.value, nullptr);
  });
  expect_all(answers, kMismatch,
             {"plan (by order of creation)", "rank 0 has 1", "rank " + std::to_string(odd) + " has 2"});
  EXPECT_TRUE(ring.untouched());
  for (ringattn_plan* plan : second) ringattn_plan_destroy(plan);
  EXPECT_TRUE(ring.works());
}

// ---- a rank that refuses ----------------------------------------------------------------------------------

TEST_P(MismatchBackward, ARankWithABadTensorOfBackward) {
  Ring ring(ranks(), problem_of(GetParam()), {"local", full_length});
  int odd = 0;
  for (const int id : {kQ, kLse, kDo, kDlse, kDq, kDv}) {
    odd = (odd + 1) % ranks();
    SCOPED_TRACE(std::string(name_of(id)) + " of rank " + std::to_string(odd));
    ring.reset();
    ring.shards(odd).view[id].value.dtype = RINGATTN_DTYPE_I64;
    const std::string word = std::string(name_of(id)) + ".dtype: 5";
    // The odd one's error comes from the call itself, also where it asked for a request.
    const auto answers = ring.on_threads([&](int rank) {
      ringattn_request* request = reinterpret_cast<ringattn_request*>(&ring);
      const ringattn_status status = ring.run(true, rank, rank == odd ? &request : nullptr);
      EXPECT_EQ(request == nullptr, rank == odd);
      return status;
    });
    expect_one_refused(answers, odd, RINGATTN_ERR_INVALID_ARGUMENT, {word});
    const std::string name = "rank " + std::to_string(odd) + ": ";
    EXPECT_TRUE(refused(answer(ring.backward_array()), RINGATTN_ERR_INVALID_ARGUMENT, {word, name}));
    EXPECT_TRUE(ring.untouched());
    EXPECT_TRUE(ring.works());
  }
}

// Its refusal reaches those who wait for a request, in the request's own message.
TEST_P(MismatchBackward, ARefusalReachesRequests) {
  Ring ring(ranks(), problem_of(GetParam()), {"local", full_length});
  const int odd = ranks() - 1;
  ring.shards(odd).backward.value.d_k = nullptr;
  const auto answers = ring.on_threads([&](int rank) {
    if (rank == odd) return ring.backward(rank);
    ringattn_request* request = nullptr;
    EXPECT_EQ(ring.backward(rank, &request), RINGATTN_OK) << ringattn_last_error();
    const ringattn_status status = ringattn_request_wait(request, -1);
    EXPECT_STREQ(ringattn_request_message(request), ringattn_last_error());
    ringattn_request_destroy(request);
    return status;
  });
  expect_one_refused(answers, odd, RINGATTN_ERR_INVALID_ARGUMENT, {"d_k: NULL"});
  EXPECT_TRUE(ring.untouched());
  EXPECT_TRUE(ring.works());
}

TEST_P(MismatchBackward, ARankThatLacksTheWorkspace) {
  ringattn_plan_desc desc = problem_of(GetParam());
  desc.flags |= RINGATTN_PLAN_CALLER_WORKSPACE;
  Ring ring(ranks(), desc, {"local", full_length, 1, 20'000, false});
  std::vector<ringattn_plan*> plans(static_cast<std::size_t>(ranks()));
  const std::vector<ringattn_plan_desc> descs(plans.size(), desc);
  Ring::require(ringattn_plan_create_array(ranks(), ring.comms(), descs.data(), plans.data()));
  std::vector<std::unique_ptr<Shards>> shards;
  std::vector<std::vector<std::byte>> memory;
  for (ringattn_plan* plan : plans) {
    ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
    Ring::require(ringattn_plan_get_info(plan, nullptr, &info));
    shards.push_back(std::make_unique<Shards>(desc, info.local_capacity_q, info.local_capacity_k, 3));
    memory.emplace_back(info.workspace_bytes + 64);
    ringattn_backward_args& args = shards.back()->backward.value;
    args.workspace =
        memory.back().data() + (64 - reinterpret_cast<std::uintptr_t>(memory.back().data()) % 64) % 64;
    args.workspace_bytes = info.workspace_bytes;
  }
  const auto run = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return ringattn_backward(plans[r], &shards[r]->backward.value, nullptr);
  };
  const int odd = ranks() - 1;
  ringattn_backward_args& args = shards.back()->backward.value;
  const ringattn_backward_args good = args;
  args.workspace_bytes -= 1;
  expect_one_refused(ring.on_threads(run), odd, RINGATTN_ERR_INVALID_ARGUMENT, {"workspace_bytes: "});
  args.workspace_bytes = 0;
  args.workspace = nullptr;
  expect_one_refused(ring.on_threads(run), odd, RINGATTN_ERR_INVALID_ARGUMENT, {"workspace_bytes: 0"});
  args = good;
  args.workspace = static_cast<std::byte*>(good.workspace) + 1;
  expect_one_refused(ring.on_threads(run), odd, RINGATTN_ERR_INVALID_ARGUMENT, {"workspace: not aligned"});
  for (const auto& one : shards) EXPECT_TRUE(one->untouched());
  args = good;
  for (const Answer& got : ring.on_threads(run)) EXPECT_EQ(got.status, RINGATTN_OK) << got.message;
  for (ringattn_plan* plan : plans) ringattn_plan_destroy(plan);
}

// Blocks in transit are what rank 1 has no room for; the others bring their own workspace, which comes later.
TEST_P(MismatchBackward, ARankWithoutMemoryForThePlan) {
  if (!kNewMayFail) GTEST_SKIP() << "operator new of a sanitizer does not throw";
  ringattn_plan_desc desc = problem_of(GetParam());
  desc.flags = 0;
  desc.seq_q = 1;
  desc.seq_k = std::int64_t{1} << 46;
  Ring ring(ranks(), desc, {copying_transport(), full_length, 1, 20'000, false});
  std::vector<ringattn_plan_desc> descs(static_cast<std::size_t>(ranks()), desc);
  for (int rank = 0; rank < ranks(); ++rank) {
    if (rank != 1) descs[static_cast<std::size_t>(rank)].flags = RINGATTN_PLAN_CALLER_WORKSPACE;
  }
  std::vector<ringattn_plan*> plans(descs.size());
  const auto create = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return ringattn_plan_create(ring.comm(rank), &descs[r], &plans[r]);
  };
  expect_one_refused(ring.on_threads(create), 1, RINGATTN_ERR_OUT_OF_MEMORY, {"out of memory"});
  EXPECT_TRUE(refused(answer(ringattn_plan_create_array(ranks(), ring.comms(), descs.data(), plans.data())),
                      RINGATTN_ERR_OUT_OF_MEMORY, {"rank 1: ", "out of memory"}));
  EXPECT_EQ(std::count(plans.begin(), plans.end(), nullptr), ranks());
  descs[1].flags = RINGATTN_PLAN_CALLER_WORKSPACE;
  for (const Answer& got : ring.on_threads(create)) EXPECT_EQ(got.status, RINGATTN_OK) << got.message;
  for (ringattn_plan* plan : plans) ringattn_plan_destroy(plan);
}

INSTANTIATE_TEST_SUITE_P(Rings, MismatchBackward,
                         ::testing::Values(Shape{"P2", 2, false}, Shape{"P3", 3, false},
                                           Shape{"P4", 4, false}, Shape{"P5", 5, false},
                                           Shape{"P5_window", 5, true}),
                         [](const auto& info) { return std::string(info.param.name); });

// ---- fields of the description that backward has brought --------------------------------------------------

struct DescChange {
  const char* name;
  std::function<void(ringattn_plan_desc&)> bend;
  std::vector<std::string> words;
};

// mismatch_test.cpp has all others, on forward plans; here they are seen on plans with backward as well.
std::vector<DescChange> desc_changes() {
  return {
      {"flags", [](auto& d) { d.flags = 0; }, {"PLAN_BACKWARD: ", "1", "0"}},
      {"dtype_grad", [](auto& d) { d.dtype_grad = RINGATTN_DTYPE_F32; }, {"dtype_grad: ", "bf16", "f32"}},
      {"dtype_out", [](auto& d) { d.dtype_out = RINGATTN_DTYPE_F32; }, {"dtype_out: ", "bf16", "f32"}},
      {"dtype", [](auto& d) { d.dtype = RINGATTN_DTYPE_F16; }, {"dtype: ", "bf16", "f16"}},
      {"batch", [](auto& d) { d.batch = 2; }, {"batch: ", "1", "2"}},
      {"seq_q", [](auto& d) { d.seq_q = 21; }, {"seq_q: ", "20", "21"}},
      {"seq_k", [](auto& d) { d.seq_k = 23; }, {"seq_k: ", "22", "23"}},
      {"heads", [](auto& d) { d.heads = 2; }, {"heads: ", "4", "2"}},
      {"kv_heads", [](auto& d) { d.kv_heads = 4; }, {"kv_heads: ", "2", "4"}},
      {"head_dim_qk", [](auto& d) { d.head_dim_qk = 24; }, {"head_dim_qk: ", "16", "24"}},
      {"head_dim_v", [](auto& d) { d.head_dim_v = 0; }, {"head_dim_v: ", "8", "16"}},
      {"max_sequences", [](auto& d) { d.max_sequences = 5; }, {"max_sequences: ", "4", "5"}},
      {"mask", [](auto& d) { d.mask = RINGATTN_MASK_FULL; }, {"mask: ", "causal", "full"}},
      {"accuracy", [](auto& d) { d.accuracy = RINGATTN_ACCURACY_EXACT; }, {"accuracy: ", "0", "1"}},
      {"scale", [](auto& d) { d.scale = 0.5; }, {"scale: ", "0.25", "0.5"}},
      {"partition",
       [](auto& d) { d.partition = RINGATTN_PARTITION_ZIGZAG; },
       {"partition: ", "contiguous", "zigzag"}},
      {"scope", [](auto& d) { d.scope = RINGATTN_SCOPE_DOCUMENT; }, {"scope: ", "call", "document"}},
      {"window_left",
       [](auto& d) { d.mask |= RINGATTN_MASK_WINDOW_LEFT, d.window_left = 3; },
       {"mask: ", "causal", "window:3"}},
  };
}

// What only other problems have.
std::vector<DescChange> striped_changes() {
  return {
      {"stripe", [](auto& d) { d.stripe = 3; }, {"partition: ", "striped:2", "striped:3"}},
      {"window_left", [](auto& d) { d.window_left = 6; }, {"mask: ", "window:5:3", "window:6:3"}},
      {"window_right", [](auto& d) { d.window_right = 4; }, {"mask: ", "window:5:3", "window:5:4"}},
      {"query_cut",
       [](auto& d) { d.query_cut = RINGATTN_QUERY_CUT_LIKE_KEYS; },
       {"query_cut: ", "by_index", "like_keys"}},
  };
}
ringattn_plan_desc striped_problem() {
  ringattn_plan_desc desc = problem_of({"", 2, false});
  desc.mask = RINGATTN_MASK_WINDOW_LEFT | RINGATTN_MASK_WINDOW_RIGHT;
  desc.window_left = 5;
  desc.window_right = 3;
  desc.partition = RINGATTN_PARTITION_STRIPED;
  desc.stripe = 2;
  desc.scope = RINGATTN_SCOPE_CAPACITY;
  return desc;
}

void check_changes(Ring& ring, int ranks, const std::vector<DescChange>& changes) {
  int odd = 0;
  for (const DescChange& change : changes) {
    odd = (odd + 1) % ranks;
    SCOPED_TRACE(std::string(change.name) + " of rank " + std::to_string(odd) + " of " +
                 std::to_string(ranks));
    std::vector<ringattn_plan_desc> descs(static_cast<std::size_t>(ranks), ring.desc());
    change.bend(descs[static_cast<std::size_t>(odd)]);
    std::vector<ringattn_plan*> plans(descs.size(), ring.plan(0));
    const auto answers = ring.on_threads([&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      return ringattn_plan_create(ring.comm(rank), &descs[r], &plans[r]);
    });
    std::vector<std::string> words = change.words;
    words.push_back("rank 0 has");
    words.push_back("rank " + std::to_string(odd == 0 ? 1 : odd) + " has");
    expect_all(answers, kMismatch, words);
    EXPECT_EQ(std::count(plans.begin(), plans.end(), nullptr), ranks);
    std::fill(plans.begin(), plans.end(), ring.plan(0));
    const Answer array = answer(ringattn_plan_create_array(ranks, ring.comms(), descs.data(), plans.data()));
    EXPECT_TRUE(refused(array, kMismatch, words));
    EXPECT_EQ(array.message, answers[0].message);
    EXPECT_EQ(std::count(plans.begin(), plans.end(), nullptr), ranks);
  }
  EXPECT_TRUE(ring.works());
}

TEST(MismatchBackwardPlan, EveryFieldP2To5) {
  for (int ranks = 2; ranks <= 5; ++ranks) {
    ringattn_plan_desc desc = problem_of({"", ranks, false});
    desc.dtype = RINGATTN_DTYPE_BF16;
    Ring ring(ranks, desc, {"local", full_length});
    check_changes(ring, ranks, desc_changes());
    Ring striped(ranks, striped_problem(), {"local", full_length});
    check_changes(striped, ranks, striped_changes());
  }
}

}  // namespace
}  // namespace ringattn::wrong_use
