// The wrong arguments of one rank of two, by one thread for both and by two threads: the rank that is wrong
// gets its own error, the other PEER_REFUSED with its name and reason, nobody hangs, nothing is written, and
// both go on. And one comm used by two threads at once.
#include <future>

#include "tests/api/wrong_use_table.h"

namespace ringattn::wrong_use {
namespace {

std::vector<Answer> on_two_threads(const std::function<ringattn_status(int)>& body) {
  std::future<Answer> other = std::async(std::launch::async, [&] { return answer(body(1)); });
  Answer own = answer(body(0));
  return {own, other.get()};
}

void check_ring(Ring& ring, const ArgsBend& bend, int odd, bool threads) {
  ring.reset();
  bend.bend(ring.shards(odd));
  if (threads) {
    const auto answers = on_two_threads([&](int rank) { return ring.run(bend.of_backward, rank); });
    expect_one_refused(answers, odd, bend.status, bend.words);
  } else {
    std::vector<std::string> words = bend.words;
    // An array whose first struct has no size cannot be stepped through: no rank is to blame.
    const bool steps = !(odd == 0 && has(bend.field, "_args.struct_size") &&
                         bend.status == RINGATTN_ERR_STRUCT_SIZE && has(bend.what, "size"));
    if (steps) words.push_back("rank " + std::to_string(odd) + ": ");
    EXPECT_TRUE(refused(answer(ring.run_array(bend.of_backward)), bend.status, words));
  }
  EXPECT_TRUE(ring.untouched());
  EXPECT_TRUE(ring.works());
}

void check_all(const std::vector<ArgsBend>& bends, const ringattn_plan_desc& desc) {
  const support::Watchdog watchdog("wrong arguments of one rank of two", 60);
  Ring ring(2, desc);
  int odd = 0, count = 0;
  for (const ArgsBend& bend : bends) {
    odd = 1 - odd;
    SCOPED_TRACE((bend.of_backward ? "backward: " : "forward: ") + bend.field + " " + bend.what);
    check_ring(ring, bend, odd, false);
    check_ring(ring, bend, odd, true);
    ++count;
  }
  EXPECT_GE(count, 10);
}

// Of every field the first and the last value: what is refused how is in the table, this is about the ranks.
template <typename List>
List first_and_last(const List& all) {
  List few;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool first = i == 0 || all[i - 1].field != all[i].field;
    const bool last = i + 1 == all.size() || all[i + 1].field != all[i].field;
    if (first || last) few.push_back(all[i]);
  }
  return few;
}

// The table's shapes are those of one rank: twice the tokens for two.
ringattn_plan_desc twice(ringattn_plan_desc desc) {
  desc.seq_q *= 2;
  desc.seq_k *= 2;
  return desc;
}

TEST(WrongUseRanks, Tensors) { check_all(first_and_last(tensor_bends()), twice(batch_problem())); }
TEST(WrongUseRanks, Overlaps) { check_all(overlap_bends(), twice(batch_problem())); }
TEST(WrongUseRanks, Arguments) { check_all(args_bends(), twice(batch_problem())); }

TEST(WrongUseRanks, Calls) {
  std::vector<ArgsBend> bends;
  for (const bool of_backward : {false, true}) {
    for (const Bend<ringattn_call>& bend : first_and_last(call_bends())) {
      bends.push_back({bend.field, bend.what, of_backward, [bend](Shards& s) { bend.bend(s.call); },
                       bend.status, bend.words});
    }
  }
  const support::Watchdog watchdog("wrong calls of one rank of two", 60);
  Ring ring(2, packed_problem(), {"local", packed_call});
  for (std::size_t i = 0; i < bends.size(); ++i) {
    SCOPED_TRACE(bends[i].field + " " + bends[i].what);
    check_ring(ring, bends[i], static_cast<int>(i % 2), false);
    check_ring(ring, bends[i], static_cast<int>(i % 2), true);
  }
}

TEST(WrongUseRanks, Descriptions) {
  const support::Watchdog watchdog("wrong descriptions of one rank of two", 60);
  Ring ring(2);
  int odd = 0;
  for (const Bend<ringattn_plan_desc>& bend : plan_desc_bends()) {
    odd = 1 - odd;
    SCOPED_TRACE(bend.field + " " + bend.what);
    Padded<ringattn_plan_desc> descs[2];
    for (auto& desc : descs) desc.value = ring.desc();
    bend.bend(descs[odd]);
    ringattn_plan* const kept = ring.plan(0);
    ringattn_plan* plans[2] = {kept, kept};
    expect_one_refused(on_two_threads([&](int rank) {
                         return ringattn_plan_create(ring.comm(rank), &descs[rank].value, &plans[rank]);
                       }),
                       odd, bend.status, bend.words);
    EXPECT_TRUE(plans[0] == nullptr && plans[1] == nullptr);
    plans[0] = plans[1] = kept;
    for (auto& desc : descs) desc = in_array(desc);
    std::vector<std::string> words = bend.words;
    // The first one's size is the step of the array: where it is none, no rank is to blame.
    const bool steps = !(odd == 0 && bend.status == RINGATTN_ERR_STRUCT_SIZE && has(bend.what, "size"));
    if (steps) words.push_back("rank " + std::to_string(odd) + ": ");
    EXPECT_TRUE(refused(answer(ringattn_plan_create_array(2, ring.comms(), &descs[0].value, plans)),
                        bend.status, words));
    EXPECT_TRUE(plans[0] == nullptr && plans[1] == nullptr);
  }
  EXPECT_TRUE(ring.works());
}

// ---- one comm, two threads --------------------------------------------------------------------------------

TEST(WrongUseThreads, ACommThatAnotherThreadUsesIsBusy) {
  const support::Watchdog watchdog("busy", 60);
  ringattn_plan_desc desc = batch_problem();
  desc.flags |= RINGATTN_PLAN_TRACE;
  Ring ring(2, desc);
  for (const bool of_backward : {false, true}) {
    ring.reset();
    std::future<Answer> blocked =
        std::async(std::launch::async, [&] { return answer(ring.run(of_backward, 0)); });
    // Rank 0 waits for rank 1: every other use of its comm is refused meanwhile.
    std::uint64_t count = 0;
    while (ringattn_plan_trace(ring.plan(0), nullptr, 0, &count, nullptr) != RINGATTN_ERR_BUSY)
      std::this_thread::yield();
    ringattn_plan* plan = ring.plan(1);
    EXPECT_TRUE(refused(answer(ringattn_plan_create(ring.comm(0), &ring.desc(), &plan)), RINGATTN_ERR_BUSY,
                        {"comm", "rank 0", "expected"}));
    EXPECT_EQ(plan, nullptr);
    Shards other(ring.desc(), 6, 6, 9);
    EXPECT_TRUE(refused(answer(ringattn_forward(ring.plan(0), &other.forward.value, nullptr)),
                        RINGATTN_ERR_BUSY, {"expected"}));
    EXPECT_TRUE(refused(answer(ringattn_backward(ring.plan(0), &other.backward.value, nullptr)),
                        RINGATTN_ERR_BUSY, {"expected"}));
    ringattn_request* request = reinterpret_cast<ringattn_request*>(&ring);
    EXPECT_TRUE(refused(answer(ringattn_forward(ring.plan(0), &other.forward.value, &request)),
                        RINGATTN_ERR_BUSY, {"expected"}));
    EXPECT_EQ(request, nullptr);
    EXPECT_TRUE(refused(answer(ring.run_array(of_backward)), RINGATTN_ERR_BUSY, {"rank 0", "expected"}));
    EXPECT_TRUE(other.untouched());
    // What destroys must not pull the rug away either: it logs.
    ringattn_plan_destroy(ring.plan(0));
    ringattn_comm_destroy(ring.comm(0));
    EXPECT_EQ(ring.run(of_backward, 1), RINGATTN_OK) << ringattn_last_error();
    EXPECT_EQ(blocked.get().status, RINGATTN_OK);
    EXPECT_TRUE(ring.works());
  }
}

// Whoever comes second is told so, or comes when the first has ended; never anything else.
TEST(WrongUseThreads, TwoThreadsThatHammerOnOneComm) {
  Ring ring(1);
  const auto hammer = [&](int thread) {
    Shards own(ring.desc(), 12, 12, static_cast<std::uint64_t>(thread) + 5);
    int done = 0;
    for (int i = 0; i < 10'000 && done < 50; ++i) {
      const Answer got = answer(i % 2 == 0 ? ringattn_forward(ring.plan(0), &own.forward.value, nullptr)
                                           : ringattn_backward(ring.plan(0), &own.backward.value, nullptr));
      if (got.status == RINGATTN_OK) ++done;
      if (got.status != RINGATTN_OK) {
        EXPECT_TRUE(refused(got, RINGATTN_ERR_BUSY, {"comm", "expected"}));
        std::this_thread::yield();
      }
    }
    EXPECT_GT(done, 0);
  };
  support::run_threads(2, hammer, 60, "two threads on one comm");
  EXPECT_TRUE(ring.works());
}

TEST(WrongUseThreads, ARequestInFlightKeepsItsCommBusyForAnyPlan) {
  const support::Watchdog watchdog("busy with a request", 60);
  Ring ring(2);
  ringattn_plan* second[2] = {nullptr, nullptr};
  const ringattn_plan_desc descs[] = {ring.desc(), ring.desc()};
  ASSERT_EQ(ringattn_plan_create_array(2, ring.comms(), descs, second), RINGATTN_OK);
  for (const bool of_backward : {false, true}) {
    ring.reset();
    ringattn_request* request = nullptr;
    ASSERT_EQ(ring.run(of_backward, 0, &request), RINGATTN_OK) << ringattn_last_error();
    EXPECT_TRUE(refused(answer(ringattn_forward(second[0], &ring.shards(0).forward.value, nullptr)),
                        RINGATTN_ERR_BUSY, {"expected"}));
    EXPECT_TRUE(refused(answer(ringattn_backward(second[0], &ring.shards(0).backward.value, nullptr)),
                        RINGATTN_ERR_BUSY, {"expected"}));
    ringattn_plan* plan = nullptr;
    EXPECT_TRUE(
        refused(answer(ringattn_plan_create(ring.comm(0), descs, &plan)), RINGATTN_ERR_BUSY, {"expected"}));
    std::future<Answer> peer =
        std::async(std::launch::async, [&] { return answer(ring.run(of_backward, 1)); });
    EXPECT_EQ(ringattn_request_wait(request, -1), RINGATTN_OK) << ringattn_last_error();
    EXPECT_EQ(peer.get().status, RINGATTN_OK);
    ringattn_request_destroy(request);
    EXPECT_TRUE(ring.works());
  }
  for (ringattn_plan* plan : second) ringattn_plan_destroy(plan);
}

// ---- handles of another ring ------------------------------------------------------------------------------

// Rank 0 of one ring and rank 1 of another are no ring: each waits for its own peer, and says for whom.
TEST(WrongUseRanks, PlansOfTwoRingsEndByTheArrivalTimeout) {
  const support::Watchdog watchdog("plans of two rings", 60);
  ringattn_context_desc context_desc = RINGATTN_STRUCT(ringattn_context_desc);
  context_desc.threads = 1;
  ringattn_context* context = nullptr;
  ASSERT_EQ(ringattn_context_create(&context_desc, &context), RINGATTN_OK);
  ringattn_comm_desc comm_desc = RINGATTN_STRUCT(ringattn_comm_desc);
  comm_desc.world_size = 2;
  comm_desc.arrival_timeout_ms = 100;
  ringattn_comm *first[2], *second[2];
  ASSERT_EQ(ringattn_comm_create_local(context, &comm_desc, first), RINGATTN_OK);
  ASSERT_EQ(ringattn_comm_create_local(context, &comm_desc, second), RINGATTN_OK);
  const ringattn_plan_desc descs[] = {batch_problem(), batch_problem()};
  ringattn_plan *plans[2], *others[2];
  ASSERT_EQ(ringattn_plan_create_array(2, first, descs, plans), RINGATTN_OK);
  ASSERT_EQ(ringattn_plan_create_array(2, second, descs, others), RINGATTN_OK);
  Shards shards[] = {{batch_problem(), 6, 6, 1}, {batch_problem(), 6, 6, 2}};
  ringattn_plan* const mixed[] = {plans[0], others[1]};
  const ringattn_forward_args args[] = {shards[0].forward.value, shards[1].forward.value};
  EXPECT_TRUE(
      refused(answer(ringattn_forward_array(2, mixed, args, nullptr)), RINGATTN_ERR_TIMEOUT, {"rank"}));
  for (ringattn_comm* const dead : {first[0], second[1]})
    EXPECT_TRUE(refused(answer(ringattn_comm_status(dead)), RINGATTN_ERR_TIMEOUT, {"rank"}));
  ringattn_plan* plan = plans[0];
  EXPECT_TRUE(refused(answer(ringattn_plan_create(first[0], descs, &plan)), RINGATTN_ERR_TIMEOUT, {"rank"}));
  EXPECT_EQ(plan, nullptr);
  for (int i = 0; i < 2; ++i) {
    ringattn_plan_destroy(plans[i]);
    ringattn_plan_destroy(others[i]);
    ringattn_comm_destroy(first[i]);
    ringattn_comm_destroy(second[i]);
  }
  ringattn_context_destroy(context);
}

// Whoever refuses and is alone with it waits for the others no longer than for any call, and hears its own
// error or that the ring, which never answered, is dead.
TEST(WrongUseRanks, ARefusalThatNobodyHearsEndsByTheArrivalTimeout) {
  const support::Watchdog watchdog("a refusal that nobody hears", 60);
  for (const int kind : {0, 1, 2}) {
    SCOPED_TRACE(kind == 0 ? "forward" : kind == 1 ? "backward" : "plan_create");
    Ring ring(2, batch_problem(), {"local", nullptr, 1, 100});
    ring.shards(0).view[kQ].value.dtype = 9;
    ringattn_request* request = reinterpret_cast<ringattn_request*>(&ring);
    ringattn_plan_desc desc = ring.desc();
    desc.dtype = 9;
    ringattn_plan* plan = nullptr;
    const Answer got = answer(kind == 2 ? ringattn_plan_create(ring.comm(0), &desc, &plan)
                                        : ring.run(kind == 1, 0, &request));
    EXPECT_TRUE(refused(got, RINGATTN_ERR_INVALID_ARGUMENT, {"dtype: 9", "expected"}));
    if (kind != 2) {
      EXPECT_EQ(request, nullptr);
    }
    EXPECT_TRUE(refused(answer(ringattn_comm_status(ring.comm(1))), RINGATTN_ERR_TIMEOUT, {"rank 1"}));
    EXPECT_TRUE(ring.untouched());
  }
}

}  // namespace
}  // namespace ringattn::wrong_use
