// The values of one call: every bad one is refused by name; good ones become sequences with places and
// offsets.
#include "plan/call_check.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace ringattn::plan {
namespace {

Problem problem_of(std::int64_t batch, std::int64_t seq_q, std::int64_t seq_k, std::int64_t max_sequences) {
  Problem problem;
  problem.batch = batch;
  problem.seq_q = seq_q;
  problem.seq_k = seq_k;
  problem.max_sequences = max_sequences;
  return problem;
}

ringattn_call call_of(const std::vector<std::int64_t>& cu_q,
                      const std::vector<std::int64_t>* cu_k = nullptr) {
  ringattn_call call = RINGATTN_STRUCT(ringattn_call);
  call.flags = RINGATTN_CALL_SEQUENCES;
  call.sequences = static_cast<std::int64_t>(cu_q.size()) - 1;
  call.cu_q = cu_q.data();
  call.cu_k = cu_k == nullptr ? nullptr : cu_k->data();
  return call;
}

void expect_refusal(const Problem& problem, const ringattn_call& call,
                    const std::vector<std::string>& words) {
  Call out;
  const Status status = check_call(problem, &call, out);
  EXPECT_EQ(status.code(), RINGATTN_ERR_INVALID_ARGUMENT) << words[0];
  for (const std::string& word : words) {
    EXPECT_NE(status.message().find(word), std::string::npos) << word << " is not in: " << status.message();
  }
}

TEST(PlanCall, BadValuesAreRefusedByName) {
  const Problem row = problem_of(1, 10, 20, 3), batch = problem_of(3, 10, 20, 3);
  const std::vector<std::int64_t> one{0, 4};
  ringattn_call call = call_of(one);
  call.flags = 8;
  expect_refusal(row, call, {"call.flags: 8", "CALL_SEQUENCES (1)"});
  call = call_of(one);
  call.sequences = -1;
  expect_refusal(row, call, {"call.sequences: -1", "max_sequences (3)"});
  call.sequences = 4;
  expect_refusal(row, call, {"call.sequences: 4", "max_sequences (3)"});
  call = call_of(one);
  call.cu_q = nullptr;
  expect_refusal(row, call, {"call.cu_q: NULL", "2 entries"});
  expect_refusal(row, call_of({1, 4}), {"call.cu_q[0]: 1", "expected 0"});
  expect_refusal(row, call_of({0, 4, 3}), {"call.cu_q[2]: 3", "(4)"});
  expect_refusal(row, call_of({0, 4, 11}), {"call.cu_q[2]: 11", "seq_q (10)"});
  expect_refusal(row, call_of({0, -1}), {"call.cu_q[1]: -1"});
  const std::vector<std::int64_t> keys_fall{0, 5, 2}, keys_long{0, 5, 21}, keys_start{2, 5, 6};
  expect_refusal(row, call_of({0, 4, 5}, &keys_fall), {"call.cu_k[2]: 2"});
  expect_refusal(row, call_of({0, 4, 5}, &keys_long), {"call.cu_k[2]: 21", "seq_k (20)"});
  expect_refusal(row, call_of({0, 4, 5}, &keys_start), {"call.cu_k[0]: 2"});
  expect_refusal(batch, call_of({0, 4, 5}), {"call.sequences: 2", "batch (3)"});
  expect_refusal(batch, call_of({0, 4, 15, 16}), {"call.cu_q[2]: 15", "11 tokens", "seq_q (10)"});
  const std::vector<std::int64_t> none{0};
  call = call_of(none);
  expect_refusal(batch, call, {"call.sequences: 0", "batch (3)"});
}

TEST(PlanCall, KeysThatFollowTheQueriesMustFitTheirOwnAxis) {
  expect_refusal(problem_of(1, 20, 10, 2), call_of({0, 15}), {"cu_q (for keys)", "15", "seq_k (10)"});
}

TEST(PlanCall, OffsetsBeyondReasonAreRefused) {
  ringattn_call call = RINGATTN_STRUCT(ringattn_call);
  call.flags = RINGATTN_CALL_QUERY_OFFSET;
  for (const std::int64_t offset : {std::numeric_limits<std::int64_t>::max(),
                                    std::numeric_limits<std::int64_t>::min(), (std::int64_t{1} << 48) + 1}) {
    call.query_offset = offset;
    expect_refusal(problem_of(1, 4, 4, 1), call, {"call.query_offset: " + std::to_string(offset)});
  }
  call.flags = 0;  // then it is not read
  Call out;
  EXPECT_TRUE(check_call(problem_of(1, 4, 4, 1), &call, out).ok());
}

Call resolved(const Problem& problem, const ringattn_call* call) {
  Call out;
  const Status status = check_call(problem, call, out);
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

TEST(PlanCall, NothingGivenIsOneFullSequenceForEveryRow) {
  const Call call = resolved(problem_of(3, 4, 9, 3), nullptr);
  EXPECT_EQ(call.rows, 1);
  ASSERT_EQ(call.sequences.size(), 1u);
  EXPECT_EQ(call.sequences[0].q_length, 4);
  EXPECT_EQ(call.sequences[0].k_length, 9);
  EXPECT_EQ(call.sequences[0].offset, 5) << "bottom-right";
}

TEST(PlanCall, DocumentsFollowOneAnother) {
  const std::vector<std::int64_t> cu_k{0, 6, 6, 20};
  const std::vector<std::int64_t> cu_q{0, 4, 7, 7};
  ringattn_call given = call_of(cu_q, &cu_k);
  Call call = resolved(problem_of(1, 10, 20, 3), &given);
  EXPECT_EQ(call.rows, 1);
  ASSERT_EQ(call.sequences.size(), 3u);
  EXPECT_EQ(call.sequences[1].q_start, 4);
  EXPECT_EQ(call.sequences[1].k_start, 6);
  EXPECT_EQ(call.sequences[1].offset, -3);
  EXPECT_EQ(call.sequences[2].offset, 14);
  EXPECT_EQ(call.total_q(0), 7);
  EXPECT_EQ(call.total_k(0), 20);
  given.flags |= RINGATTN_CALL_QUERY_OFFSET;
  given.query_offset = -2;
  call = resolved(problem_of(1, 10, 20, 3), &given);
  for (const Sequence& sequence : call.sequences) EXPECT_EQ(sequence.offset, -2);
}

TEST(PlanCall, RowsOfABatchBeginAtTheirOwnStart) {
  const std::vector<std::int64_t> cu{0, 10, 10, 13};
  const ringattn_call given = call_of(cu);
  const Call call = resolved(problem_of(3, 10, 10, 3), &given);
  EXPECT_EQ(call.rows, 3);
  for (const Sequence& sequence : call.sequences) EXPECT_EQ(sequence.q_start, 0);
  EXPECT_EQ(call.total_q(0), 10);
  EXPECT_EQ(call.total_q(1), 0);
  EXPECT_EQ(call.total_k(2), 3);
}

TEST(PlanCall, NoSequenceAtAllIsLegal) {
  ringattn_call given = RINGATTN_STRUCT(ringattn_call);
  given.flags = RINGATTN_CALL_SEQUENCES;
  const Call call = resolved(problem_of(1, 10, 10, 1), &given);
  EXPECT_TRUE(call.sequences.empty());
  EXPECT_EQ(call.total_q(0), 0);
}

TEST(PlanCall, OldSequencesAreReplaced) {
  Call out = resolved(problem_of(1, 10, 10, 5), nullptr);
  const std::vector<std::int64_t> cu{0, 1, 2};
  const ringattn_call given = call_of(cu);
  ASSERT_TRUE(check_call(problem_of(1, 10, 10, 5), &given, out).ok());
  EXPECT_EQ(out.sequences.size(), 2u);
  ASSERT_TRUE(check_call(problem_of(1, 10, 10, 5), nullptr, out).ok());
  EXPECT_EQ(out.sequences.size(), 1u);
}

}  // namespace
}  // namespace ringattn::plan
