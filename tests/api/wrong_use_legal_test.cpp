// What looks wrong and is legal works, with the same bits; and what is huge but legal is planned without a
// number that overflows, or refused for want of memory.
#include <sstream>

#include "tests/api/wrong_use_table.h"

namespace ringattn::wrong_use {
namespace {

// Both passes with every tensor `shift` bytes further: their results lie there too.
void check_shifted(Ring& ring, std::size_t shift) {
  SCOPED_TRACE("shifted by " + std::to_string(shift));
  std::vector<std::vector<std::byte>> right;
  ring.reset();
  ASSERT_EQ(ring.forward_array(), RINGATTN_OK);
  ASSERT_EQ(ring.backward_array(), RINGATTN_OK) << ringattn_last_error();
  for (int r = 0; r < ring.ranks(); ++r) {
    for (int id = 0; id < kTensors; ++id) {
      const auto* data = static_cast<const std::byte*>(ring.shards(r).fresh(id).data);
      right.emplace_back(data, data + bytes_of(ring.shards(r).fresh(id)));
    }
  }
  ring.reset();
  for (int r = 0; r < ring.ranks(); ++r) {
    Shards& s = ring.shards(r);
    for (int id = 0; id < kTensors; ++id) {
      auto* const data = static_cast<std::byte*>(s.fresh(id).data);
      std::memmove(data + shift, data, bytes_of(s.fresh(id)));
      s.view[id].value.data = data + shift;
    }
  }
  ASSERT_EQ(ring.forward_array(), RINGATTN_OK) << ringattn_last_error();
  ASSERT_EQ(ring.backward_array(), RINGATTN_OK) << ringattn_last_error();
  std::size_t i = 0;
  for (int r = 0; r < ring.ranks(); ++r) {
    for (int id = 0; id < kTensors; ++id, ++i) {
      const auto* data = static_cast<const std::byte*>(ring.shards(r).fresh(id).data) + shift;
      EXPECT_EQ(std::memcmp(data, right[i].data(), right[i].size()), 0) << name_of(id) << " of rank " << r;
      EXPECT_EQ(data[right[i].size()], Shards::kGuard) << "written behind " << name_of(id);
    }
  }
  EXPECT_TRUE(ring.works());
}

TEST(WrongUseLegal, AnyAlignmentForwardAndBackward) {
  for (const ringattn_dtype dtype : {1, 2, 3}) {
    for (const ringattn_dtype grad : {ringattn_dtype{0}, ringattn_dtype{RINGATTN_DTYPE_F32}}) {
      ringattn_plan_desc desc = batch_problem();
      desc.seq_q = desc.seq_k = 39;
      desc.dtype = dtype;
      desc.dtype_grad = grad;
      Ring ring(2, desc);
      for (const std::size_t shift : {1u, 2u, 3u, 5u}) check_shifted(ring, shift);
    }
  }
}

TEST(WrongUseLegal, StructsOfANewerHeaderWhoseUnknownBytesAreZero) {
  Ring ring(2, packed_problem(), {"local", packed_call});
  Padded<ringattn_plan_desc> desc;
  desc.value = ring.desc();
  desc.value.struct_size = sizeof desc;
  EXPECT_EQ(ringattn_supports(ring.context(), &desc.value), RINGATTN_OK) << ringattn_last_error();
  for (int r = 0; r < 2; ++r) {
    Shards& s = ring.shards(r);
    for (auto& view : s.view) view.value.struct_size = sizeof view;
    s.call.value.struct_size = sizeof s.call;
    s.forward.value.struct_size = sizeof s.forward;
    s.backward.value.struct_size = sizeof s.backward;
  }
  EXPECT_EQ(ring.forward_array(), RINGATTN_OK) << ringattn_last_error();
  EXPECT_EQ(ring.backward_array(), RINGATTN_OK) << ringattn_last_error();
  EXPECT_TRUE(ring.shards(0).right() && ring.shards(1).right());
}

TEST(WrongUseLegal, StridesWithoutTheirFlagAndUnusedFieldsAreNotRead) {
  Ring ring(2);
  for (int r = 0; r < 2; ++r) {
    Shards& s = ring.shards(r);
    for (auto& view : s.view) {
      view.value.flags = 0;
      std::fill_n(view.value.stride, 4, kLeast);
    }
    s.call.value.sequences = -7;
    s.call.value.cu_q = s.call.value.cu_k = reinterpret_cast<const std::int64_t*>(1);
    s.call.value.query_offset = kLeast;
  }
  EXPECT_EQ(ring.forward_array(), RINGATTN_OK) << ringattn_last_error();
  EXPECT_EQ(ring.backward_array(), RINGATTN_OK) << ringattn_last_error();
  EXPECT_TRUE(ring.shards(0).right() && ring.shards(1).right());
}

TEST(WrongUseLegal, DestroyKeepsTheLastError) {
  Ring ring(1);
  ringattn_request* request = nullptr;
  ASSERT_EQ(ring.forward(0, &request), RINGATTN_OK);
  ASSERT_EQ(ringattn_request_wait(request, -1), RINGATTN_OK);
  ringattn_plan* plan = nullptr;
  ASSERT_EQ(ringattn_plan_preview(ring.context(), &ring.desc(), 0, 1, nullptr, &plan), RINGATTN_OK);
  ASSERT_LT(ringattn_request_wait(request, -2), 0);
  const std::string before = ringattn_last_error();
  ringattn_request_destroy(request);
  EXPECT_EQ(ringattn_last_error(), before);
  ringattn_plan_destroy(plan);
  EXPECT_EQ(ringattn_last_error(), before);
}

// A reason of several lines is one line wherever it is read.
TEST(WrongUseLegal, AReasonOfManyLinesBecomesOne) {
  Ring ring(2);
  ringattn_request* request = nullptr;
  ASSERT_EQ(ring.forward(0, &request), RINGATTN_OK);
  ASSERT_EQ(ringattn_comm_abort(ring.comm(1), "first\nsecond\r\n\tthird"), RINGATTN_OK);
  EXPECT_TRUE(refused(answer(ringattn_request_wait(request, -1)), RINGATTN_ERR_ABORTED,
                      {"first", "second", "third"}));
  EXPECT_FALSE(has(ringattn_request_message(request), "\n")) << ringattn_request_message(request);
  ringattn_request_destroy(request);
  for (const int rank : {0, 1})
    EXPECT_TRUE(
        refused(answer(ringattn_comm_status(ring.comm(rank))), RINGATTN_ERR_ABORTED, {"first", "second"}));
  const std::string endless(100'000, 'x');
  EXPECT_EQ(ringattn_comm_abort(ring.comm(0), endless.c_str()), RINGATTN_OK) << "the first reason stays";
  EXPECT_TRUE(refused(answer(ringattn_comm_status(ring.comm(0))), RINGATTN_ERR_ABORTED, {"first"}));
}

struct Huge {
  const char* name;
  std::int64_t batch, seq_q, seq_k, heads;
  std::int64_t head_dim = 16;
};
void PrintTo(const Huge& huge, std::ostream* out) { *out << huge.name; }

void expect_planned_or_overflow(const Answer& got) {
  if (got.status == RINGATTN_OK) return;
  EXPECT_TRUE(refused(got, RINGATTN_ERR_INVALID_ARGUMENT, {"overflow", "expected"}));
}

// A row of the batch may have its own length: what describes 2^31 of them or more is too much for a machine.
void expect_figures(const ringattn_plan* plan, const Huge& huge) {
  ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
  const Answer got = answer(ringattn_plan_get_info(plan, nullptr, &info));
  if (huge.batch > 1 && got.status == RINGATTN_ERR_OUT_OF_MEMORY) return;
  ASSERT_EQ(got.status, RINGATTN_OK) << got.message;
  EXPECT_GE(info.local_q, huge.seq_q / 2 - huge.seq_k / 8);
  EXPECT_GE(info.pairs, 0);
  EXPECT_GE(info.flops, 0);
  std::int64_t length = -1;
  EXPECT_EQ(ringattn_plan_local_length(plan, 1, 0, 0, nullptr, &length), RINGATTN_OK)
      << ringattn_last_error();
  EXPECT_GE(length, huge.seq_k / 2);
}

class WrongUseHuge : public ::testing::TestWithParam<Huge> {};

// Everything that a preview tells has to hold; plan_create has no memory for it, on both ranks.
TEST_P(WrongUseHuge, IsPlannedOrHasNoMemory) {
  const support::Watchdog watchdog("a huge problem", 60);
  const Huge& huge = GetParam();
  Ring ring(2);
  for (const std::int32_t partition :
       {RINGATTN_PARTITION_CONTIGUOUS, RINGATTN_PARTITION_ZIGZAG, RINGATTN_PARTITION_STRIPED}) {
    SCOPED_TRACE(partition);
    ringattn_plan_desc desc = batch_problem();
    desc.batch = huge.batch;
    desc.seq_q = huge.seq_q;
    desc.seq_k = huge.seq_k;
    desc.heads = desc.kv_heads = huge.heads;
    desc.head_dim_qk = desc.head_dim_v = huge.head_dim;
    desc.partition = partition;
    // A cut into stripes as short as a token has as many runs as tokens, and nothing to show here.
    if (partition == RINGATTN_PARTITION_STRIPED) desc.stripe = std::max<std::int64_t>(1, huge.seq_k / 8);
    ringattn_plan* plan = nullptr;
    expect_planned_or_overflow(answer(ringattn_supports(ring.context(), &desc)));
    expect_planned_or_overflow(answer(ringattn_plan_preview(ring.context(), &desc, 1, 2, nullptr, &plan)));
    if (plan != nullptr && (huge.batch == 1 || kNewMayFail)) expect_figures(plan, huge);
    ringattn_plan_destroy(plan);
    if (!kNewMayFail) continue;
    ringattn_plan* plans[2] = {ring.plan(0), ring.plan(1)};
    const ringattn_plan_desc descs[] = {desc, desc};
    const Answer created = answer(ringattn_plan_create_array(2, ring.comms(), descs, plans));
    EXPECT_TRUE(created.status == RINGATTN_ERR_OUT_OF_MEMORY || has(created.message, "overflows"))
        << created.message;
    EXPECT_TRUE(has(created.message, "rank 0: ")) << created.message;
    EXPECT_TRUE(plans[0] == nullptr && plans[1] == nullptr);
  }
  EXPECT_TRUE(ring.works());
}

constexpr std::int64_t k2G = std::int64_t{1} << 31, k1T = std::int64_t{1} << 40,
                       kLimit = std::int64_t{1} << 48;
INSTANTIATE_TEST_SUITE_P(Sizes, WrongUseHuge,
                         ::testing::Values(Huge{"seq_2_48", 1, kLimit, kLimit, 1},
                                           Huge{"seq_q_2_48", 1, kLimit, 1, 1},
                                           Huge{"seq_k_2_48", 1, 1, kLimit, 1},
                                           Huge{"heads_2_40", 1, 1000, 1000, k1T},
                                           Huge{"batch_2_40", k1T, 1000, 1000, 1},
                                           Huge{"batch_2_31_heads_2_20", k2G, 1, 1, 1 << 20},
                                           Huge{"seq_2_31_heads_2_20", 1, k2G, k2G, 1 << 20, 128},
                                           Huge{"batch_2_48", kLimit, 4, 4, 4}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ringattn::wrong_use
