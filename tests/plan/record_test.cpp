// Records of the agreement: what is written is read back, and every rank judges alike.
#include "plan/record.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ringattn::plan {
namespace {

Record full_record() {
  Record record;
  record.verdict = RINGATTN_ERR_UNSUPPORTED;
  record.reason = "dtype: 9 = strange, expected less";
  record.fields = {{"batch", "3"}, {"empty", ""}, {"mask", "causal,window:5"}, {"a=b", "c"}};
  record.runs_q = {{0, 5, 1}, {7, 9223372036854775807LL, 3}};
  record.runs_k = {{-1, 0, -9}};
  return record;
}

TEST(PlanRecord, ComesBackAsItWas) {
  Record record = full_record();
  record.fields.pop_back();  // names hold no '='
  Record out;
  ASSERT_TRUE(decode(encode(record), out));
  EXPECT_EQ(out.verdict, record.verdict);
  EXPECT_EQ(out.reason, record.reason);
  EXPECT_EQ(out.fields, record.fields);
  EXPECT_EQ(out.runs_q, record.runs_q);
  EXPECT_EQ(out.runs_k, record.runs_k);
}

TEST(PlanRecord, AValueMayHoldAnEqualsSign) {
  Record record, out;
  record.fields = {{"name", "x=y=z"}};
  ASSERT_TRUE(decode(encode(record), out));
  EXPECT_EQ(out.fields, record.fields);
}

TEST(PlanRecord, LineBreaksInAReasonDoNotBreakTheRecord) {
  Record record, out;
  record.verdict = -1;
  record.reason = "first\nv 0\rlast";
  ASSERT_TRUE(decode(encode(record), out));
  EXPECT_EQ(out.verdict, -1);
  EXPECT_EQ(out.reason, "first v 0 last");
}

TEST(PlanRecord, OldContentsAreReplaced) {
  Record out = full_record();
  ASSERT_TRUE(decode(encode(Record()), out));
  EXPECT_EQ(out.verdict, RINGATTN_OK);
  EXPECT_TRUE(out.reason.empty() && out.fields.empty() && out.runs_q.empty() && out.runs_k.empty());
}

TEST(PlanRecord, GarbageIsRefused) {
  Record out;
  for (const char* text :
       {"v", "v 0", "x 1\n", "v x\n", "\n", "v0\n", "f novalue\n", "q 1 2\n", "k 1 2 x\n", "v 0\nq\n"}) {
    EXPECT_FALSE(decode(text, out)) << text;
  }
  EXPECT_TRUE(decode("", out));
}

TEST(PlanRecord, EveryCutOfARecordIsRefusedOrShorter) {
  const std::string text = encode(full_record());
  for (std::size_t length = 0; length < text.size(); ++length) {
    Record out;
    const bool at_line_end = length == 0 || text[length - 1] == '\n';
    EXPECT_EQ(decode(text.substr(0, length), out), at_line_end) << length;
  }
}

std::vector<Record> records_of(int ranks) {
  std::vector<Record> records(static_cast<std::size_t>(ranks));
  for (Record& record : records)
    record.fields = {{"collective call", "plan_create"}, {"batch", "2"}, {"heads", "8"}};
  return records;
}

TEST(PlanJudge, EqualRecordsAreOk) {
  const auto records = records_of(4);
  for (int rank = 0; rank < 4; ++rank) EXPECT_TRUE(judge(records, rank).ok());
}

TEST(PlanJudge, ADifferenceIsTheSameMessageOnEveryRank) {
  auto records = records_of(4);
  records[2].fields[2].second = "16";
  records[3].fields[1].second = "7";
  for (int rank = 0; rank < 4; ++rank) {
    const Status status = judge(records, rank);
    EXPECT_EQ(status.code(), RINGATTN_ERR_RANK_MISMATCH);
    EXPECT_EQ(status.message(), "heads: rank 0 has 8, rank 2 has 16; expected the same on every rank");
  }
}

TEST(PlanJudge, ARefusalComesBeforeADifference) {
  auto records = records_of(3);
  records[1].fields[2].second = "16";
  records[2].verdict = RINGATTN_ERR_OUT_OF_MEMORY;
  records[2].reason = "out of memory";
  EXPECT_EQ(judge(records, 2).code(), RINGATTN_ERR_OUT_OF_MEMORY);
  EXPECT_EQ(judge(records, 2).message(), "out of memory");
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(judge(records, rank).code(), RINGATTN_ERR_PEER_REFUSED);
    EXPECT_EQ(judge(records, rank).message(), "rank 2 refused: out of memory");
  }
}

TEST(PlanJudge, TheFirstOfSeveralRefusingRanksIsNamedAndEachSaysItsOwn) {
  auto records = records_of(3);
  for (const int rank : {1, 2}) {
    records[static_cast<std::size_t>(rank)].verdict = RINGATTN_ERR_INVALID_ARGUMENT;
    records[static_cast<std::size_t>(rank)].reason = "reason of " + std::to_string(rank);
  }
  EXPECT_EQ(judge(records, 0).message(), "rank 1 refused: reason of 1");
  EXPECT_EQ(judge(records, 2).message(), "reason of 2");
}

TEST(PlanJudge, AnotherNumberOfFieldsIsADifference) {
  auto records = records_of(2);
  records[1].fields.pop_back();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(judge(records, rank).code(), RINGATTN_ERR_RANK_MISMATCH) << judge(records, rank).message();
  }
}

// Whatever the plan's description holds, two different problems never look alike.
TEST(PlanFields, EveryFieldOfAProblemIsInTheRecord) {
  Problem base;
  base.batch = base.seq_q = base.seq_k = base.heads = base.kv_heads = base.max_sequences = 4;
  base.head_dim_qk = base.head_dim_v = 8;
  base.partition = PartitionKind::striped;
  std::vector<Problem> others(17, base);
  others[0].batch = 5;
  others[1].seq_q = 5;
  others[2].seq_k = 5;
  others[3].heads = 8;
  others[4].kv_heads = 2;
  others[5].head_dim_qk = 9;
  others[6].head_dim_v = 9;
  others[7].max_sequences = 5;
  others[8].dtype = DType::bf16;
  others[9].dtype_out = DType::f16;
  others[10].mask.left = 3;
  others[11].mask.right = 3;
  others[12].accuracy = RINGATTN_ACCURACY_EXACT;
  others[13].scale = 1.0 + 1e-15;
  others[14].stripe = 2;
  others[15].query_like_keys = false;
  others[16].scope = Scope::call;
  Record own;
  add_problem_fields(base, own);
  for (std::size_t i = 0; i < others.size(); ++i) {
    Record other;
    add_problem_fields(others[i], other);
    ASSERT_EQ(other.fields.size(), own.fields.size());
    int different = 0;
    for (std::size_t f = 0; f < own.fields.size(); ++f) {
      EXPECT_EQ(own.fields[f].first, other.fields[f].first);
      different += own.fields[f] == other.fields[f] ? 0 : 1;
    }
    EXPECT_EQ(different, 1) << "change " << i;
  }
}

}  // namespace
}  // namespace ringattn::plan
