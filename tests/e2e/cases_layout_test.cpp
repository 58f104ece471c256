// Public bug reports about who holds what: uneven and empty shards, labels, balance, sizes (parts c and e).
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/e2e/closed_forms.h"
#include "tests/e2e/process_counts.h"
#include "tests/support/ready_ring.h"

namespace ringattn::support {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
using Indices = std::vector<std::int64_t>;

class Preview {
 public:
  Preview(const CommRing& ring, const std::string& line, int rank, bool lends = false)
      : problem_(parsed(line)), values_(problem_) {
    const ringattn_facts facts = values_.facts(lends);
    require_ok(
        ringattn_plan_preview(ring.context(), &values_.desc(rank), rank, problem_.ranks, &facts, &plan_),
        "ringattn_plan_preview");
  }
  ~Preview() { ringattn_plan_destroy(plan_); }
  Preview(const Preview&) = delete;
  Preview& operator=(const Preview&) = delete;

  ringattn_plan_info info() const {
    ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
    require_ok(ringattn_plan_get_info(plan_, values_.call(), &info), "ringattn_plan_get_info");
    return info;
  }
  // Index in the row, or position in the sequence, of each local query of a rank.
  Indices tokens(int rank, bool positions = false) const {
    Indices index(64, -1), position(64, -1);
    std::uint64_t count = 0;
    require_ok(ringattn_plan_positions(plan_, RINGATTN_AXIS_QUERY, rank, 0, values_.call(), index.data(),
                                       position.data(), index.size(), &count),
               "ringattn_plan_positions");
    Indices& wanted = positions ? position : index;
    wanted.resize(count);
    return wanted;
  }
  ringattn_plan* plan() const { return plan_; }

 private:
  ProblemLine problem_;
  ProblemPlan values_;
  ringattn_plan* plan_ = nullptr;
};

TEST(CaseB035, EmptyShardsDoNotHang) {
  for (const Drive drive : {Drive::kArray, Drive::kThreads}) {
    RunOptions options;
    options.drive = drive;
    expect_causal("n=8 dim=8 partition=explicit:4/0/4/0 ranks=4", options);
  }
}

TEST(CaseB058, RankWithoutTokensStillForwards) {
  expect_causal("n=5 dim=8 partition=explicit:2/2/1/0 ranks=4");
  expect_causal("n=5 dim=8 partition=explicit:2/2/0/1 ranks=4");
  expect_causal("n=2 dim=8 ranks=7");
}

TEST(CaseB054, ManyBatchRowsOfOneToken) {
  for (const char* ranks : {"1", "2"}) {
    const ProblemLine problem =
        parsed(std::string("n=") + ranks + " batch=4099 heads=2 dim=8 dtype=bf16 ranks=" + ranks);
    Inputs inputs = zero_inputs(problem);
    set_channel0(inputs.v, [](std::int64_t b, std::int64_t) { return static_cast<double>(b % 97); });
    expect_rows(problem, inputs, [&](std::int64_t b, std::int64_t) {
      return Row{static_cast<double>(b % 97), std::log(static_cast<double>(problem.keys))};
    });
  }
}

TEST(CaseB049, WorkspaceDoesNotGrowWithTheRing) {
  const CommRing ring(1);
  for (const bool lends : {false, true}) {
    std::vector<std::uint64_t> workspace;
    for (const int ranks : {2, 3, 4, 8}) {
      const Preview preview(
          ring,
          "n=" + std::to_string(4096 * ranks) + " heads=8 dim=64 mask=causal ranks=" + std::to_string(ranks),
          0, lends);
      workspace.push_back(preview.info().workspace_bytes);
    }
    for (const std::uint64_t bytes : workspace) EXPECT_EQ(bytes, workspace[0]) << "lends " << lends;
    EXPECT_GT(workspace[0], 0u);
  }
}

TEST(CaseB049, TheWholeSequenceInsteadOfAShardIsRefused) {
  const ProblemLine problem = parsed("n=64 dim=8 mask=causal ranks=4");
  const Inputs inputs = u1_inputs(problem);
  ReadyRing ring(problem, inputs);
  const ringattn_tensor whole = inputs.k.view();
  ring.tensors(2).args.k = &whole;
  EXPECT_EQ(ring.forward_all(), RINGATTN_ERR_INVALID_ARGUMENT);
  const std::string message = ringattn_last_error();
  EXPECT_NE(message.find("64"), std::string::npos) << message;
  EXPECT_NE(message.find("16"), std::string::npos) << message;
  EXPECT_NE(message.find("rank 2"), std::string::npos) << message;
  EXPECT_TRUE(std::isnan(ring.tensors(0).o.get(0, 0, 0, 0))) << "an output was written";
}

TEST(CaseB077, SizesBeyondTwoGigabytesAreExact) {
  const CommRing ring(1);
  // K and V of 70000 x 64 x 128 bf16 from the other rank: 2293760000 bytes, more than 2^31.
  const Preview half(ring, "n=140000 heads=64 dim=128 dtype=bf16 ranks=2", 0);
  EXPECT_EQ(half.info().bytes_received, 2293760000u);
  EXPECT_EQ(half.info().bytes_sent, 2293760000u);
  const Preview large(ring, "n=17179869184 heads=8 kv_heads=1 dim=128 dtype=bf16 ranks=4", 1);  // 2^34 tokens
  EXPECT_EQ(large.info().bytes_received, 3ull * (1ull << 32) * 128 * 2 * 2);
  EXPECT_EQ(large.info().local_q, std::int64_t{1} << 32);
  EXPECT_EQ(large.info().pairs, 8.0 * 0x1p32 * 0x1p34);
}

TEST(CaseB077, MessagesCarryTheExactNumber) {
  ReadyRing ring(parsed("n=16 dim=8 ranks=2"), u1_inputs(parsed("n=16 dim=8 ranks=2")));
  for (const std::int64_t length : {(std::int64_t{1} << 31) + 5, std::int64_t{1} << 40}) {
    ring.tensors(0).q_view.shape[1] = length;
    EXPECT_EQ(ring.forward_all(), RINGATTN_ERR_INVALID_ARGUMENT);
    const std::string message = ringattn_last_error();
    EXPECT_NE(message.find(std::to_string(length)), std::string::npos) << message;
  }
  ringattn_plan_desc desc = RINGATTN_STRUCT(ringattn_plan_desc);
  desc.batch = 1;
  desc.heads = (std::int64_t{1} << 40) + 3;
  desc.kv_heads = 2;
  desc.head_dim_qk = 8;
  desc.dtype = RINGATTN_DTYPE_F32;
  EXPECT_EQ(ringattn_supports(ring.comms().context(), &desc), RINGATTN_ERR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(ringattn_last_error()).find("1099511627779"), std::string::npos)
      << ringattn_last_error();
}

TEST(CaseB088, LabelsFollowTheGlobalIndex) {
  const CommRing ring(1);
  const Preview contiguous(ring, "n=16 dim=8 ranks=4", 0);
  EXPECT_EQ(contiguous.tokens(0), (Indices{0, 1, 2, 3}));
  const Preview zigzag(ring, "n=16 dim=8 partition=zigzag ranks=4", 0);
  EXPECT_EQ(zigzag.tokens(0), (Indices{0, 1, 14, 15}));
  EXPECT_EQ(zigzag.tokens(3), (Indices{6, 7, 8, 9}));
  const Preview striped(ring, "n=16 dim=8 partition=striped ranks=4", 0);
  EXPECT_EQ(striped.tokens(3), (Indices{3, 7, 11, 15}));

  // Labels = index + 1, the last one ignored (-100), cut by the library.
  HostTensor labels(RINGATTN_DTYPE_I64, {1, 16, 1, 1}), local(RINGATTN_DTYPE_I64, {1, 4, 1, 1});
  for (std::int64_t i = 0; i < 16; ++i) labels.set(0, i, 0, 0, i == 15 ? -100.0 : static_cast<double>(i) + 1);
  const ringattn_tensor from = labels.view(), to = local.view();
  const struct {
    const Preview& preview;
    int rank;
    std::vector<float> labels;
  } cases[] = {{contiguous, 0, {1, 2, 3, 4}},
               {zigzag, 0, {1, 2, 15, -100}},
               {zigzag, 3, {7, 8, 9, 10}},
               {striped, 3, {4, 8, 12, -100}}};
  for (const auto& one : cases) {
    ASSERT_EQ(ringattn_shard(one.preview.plan(), RINGATTN_AXIS_QUERY, one.rank, nullptr, &from, &to),
              RINGATTN_OK)
        << ringattn_last_error();
    EXPECT_EQ(local.to_floats(), one.labels);
  }
}

TEST(CaseB092, OddLengthsAndShortDocuments) {
  expect_causal("n=1237 dim=4 partition=zigzag ranks=4");
  const ProblemLine problem =
      parsed("n=13 dim=8 mask=causal docs=5,7,1 partition=zigzag scope=document ranks=4");
  expect_rows(problem, u1_inputs(problem), [](std::int64_t, std::int64_t i) {
    const std::int64_t start = i < 5 ? 0 : i < 12 ? 5 : 12;
    return Row{static_cast<double>(start + i) / 2, std::log(static_cast<double>(i - start) + 1)};
  });
}

TEST(CaseB092, LengthOf32769) {
  // V = j / 64 rounded down: every sum over the keys is a whole number below 2^24, exact in fp32.
  const std::string length = kSlowdown == 1 ? "32769" : "4097";
  const ProblemLine problem = parsed("n=" + length + " dim=4 mask=causal partition=zigzag ranks=4");
  Inputs inputs = zero_inputs(problem);
  set_channel0(inputs.v, [](std::int64_t, std::int64_t j) { return static_cast<double>(j / 64); });
  std::vector<double> sums(32769, 0.0);
  for (std::size_t j = 1; j < sums.size(); ++j) sums[j] = sums[j - 1] + static_cast<double>(j / 64);
  expect_rows(problem, inputs, [&](std::int64_t, std::int64_t i) {
    return Row{sums[static_cast<std::size_t>(i)] / (static_cast<double>(i) + 1), causal_row(i).lse};
  });
}

TEST(CaseB095, VirtualRanksInOneProcess) {
  for (const std::string& partition : three_partitions()) {
    for (const Drive drive : {Drive::kArray, Drive::kThreads}) {
      RunOptions options;
      options.drive = drive;
      expect_causal("n=32 dim=8 heads=2 ranks=4 partition=" + partition, options);
    }
  }
}

TEST(CaseB096, DocumentScopeBalancesMixedLengths) {
  const CommRing ring(1);
  const std::string line = "n=16 dim=8 mask=causal docs=4,12 partition=zigzag scope=document ranks=2";
  const Preview rank0(ring, line, 0), rank1(ring, line, 1);
  EXPECT_EQ(rank0.tokens(0), (Indices{0, 3, 4, 5, 6, 13, 14, 15}));
  EXPECT_EQ(rank0.tokens(0, true), (Indices{0, 3, 0, 1, 2, 9, 10, 11}));
  EXPECT_EQ(rank0.tokens(1, true), (Indices{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(rank0.info().pairs, 44);
  EXPECT_EQ(rank1.info().pairs, 44);
  EXPECT_EQ(rank0.info().pairs_max, 44);
  EXPECT_EQ(rank0.info().pairs_mean, 44);
}

TEST(CaseB004, RowsBeyondTheCallAreEmptyInEveryScope) {
  for (const char* scope : {"capacity", "call", "document"}) {
    const ProblemLine problem = parsed(std::string("n=20 dim=8 mask=causal docs=6 ranks=3 scope=") + scope);
    expect_rows(problem, u1_inputs(problem), [](std::int64_t, std::int64_t i) {
      return i < 6 ? causal_row(i) : Row{0, -kInf};
    });
  }
}

}  // namespace
}  // namespace ringattn::support
