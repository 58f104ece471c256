// Tensors of a forward: every bad one is refused by name and nothing is written; every legal memory order is
// right.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/ring/host_ring.h"

namespace ringattn::support {
namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

struct Bad {
  const char* name;
  std::function<void(RankTensors&)> bend;
  const char* word;
};

void dense_strides(ringattn_tensor& t) {
  t.flags = RINGATTN_TENSOR_STRIDES;
  t.stride[3] = 1;
  for (int axis = 2; axis >= 0; --axis) t.stride[axis] = t.stride[axis + 1] * t.shape[axis + 1];
}

std::vector<Bad> bad_tensors() {
  return {
      {"q dtype", [](auto& t) { t.q_view.dtype = RINGATTN_DTYPE_BF16; }, "q.dtype: 3"},
      {"k dtype", [](auto& t) { t.k_view.dtype = 0; }, "k.dtype: 0"},
      {"v dtype", [](auto& t) { t.v_view.dtype = 99; }, "v.dtype: 99"},
      {"o dtype", [](auto& t) { t.o_view.dtype = RINGATTN_DTYPE_F16; }, "o.dtype: 2"},
      {"lse dtype", [](auto& t) { t.lse_view.dtype = RINGATTN_DTYPE_BF16; }, "lse.dtype: 3"},
      {"q I32", [](auto& t) { t.q_view.dtype = RINGATTN_DTYPE_I32; }, "q.dtype: 4"},
      {"device", [](auto& t) { t.q_view.device_type = 2; }, "q.device_type"},
      {"device id", [](auto& t) { t.o_view.device_id = 1; }, "o.device_type, .device_id"},
      {"flags", [](auto& t) { t.v_view.flags = 2; }, "v.flags: 2"},
      {"q batch", [](auto& t) { t.q_view.shape[0] = 3; }, "q.shape[0] (batch): 3, expected 2"},
      {"q heads", [](auto& t) { t.q_view.shape[2] = 2; }, "q.shape[2] (head): 2, expected 4"},
      {"q dim", [](auto& t) { t.q_view.shape[3] = 8; }, "q.shape[3] (dim): 8, expected 16"},
      {"q too short", [](auto& t) { t.q_view.shape[1] = 9; }, "q.shape[1] (seq): 9"},
      {"q too long", [](auto& t) { t.q_view.shape[1] = 11; }, "q.shape[1] (seq): 11"},
      {"q negative", [](auto& t) { t.q_view.shape[1] = -1; }, "q.shape[1] (seq): -1"},
      {"k heads", [](auto& t) { t.k_view.shape[2] = 4; }, "k.shape[2] (head): 4, expected 2"},
      {"k too short", [](auto& t) { t.k_view.shape[1] = 0; }, "k.shape[1] (seq): 0"},
      {"v seq", [](auto& t) { t.v_view.shape[1] = 9; }, "v.shape[1] (seq): 9, expected 10"},
      {"v dim", [](auto& t) { t.v_view.shape[3] = 16; }, "v.shape[3] (dim): 16, expected 8"},
      {"o seq", [](auto& t) { t.o_view.shape[1] = 9; }, "o.shape[1] (seq): 9, expected 10"},
      {"o dim", [](auto& t) { t.o_view.shape[3] = 16; }, "o.shape[3] (dim): 16, expected 8"},
      {"lse like o", [](auto& t) { std::swap(t.lse_view.shape[1], t.lse_view.shape[2]); }, "lse.shape[1]"},
      {"lse dim", [](auto& t) { t.lse_view.shape[3] = 2; }, "lse.shape[3] (dim): 2, expected 1"},
      {"shape overflows", [](auto& t) { t.q_view.shape[1] = kHuge; }, "q.shape"},
      {"q NULL", [](auto& t) { t.q_view.data = nullptr; }, "q.data: NULL"},
      {"o NULL", [](auto& t) { t.o_view.data = nullptr; }, "o.data: NULL"},
      {"lse NULL", [](auto& t) { t.lse_view.data = nullptr; }, "lse.data: NULL"},
      {"inner stride", [](auto& t) { dense_strides(t.q_view), t.q_view.stride[3] = 2; },
       "q.stride[3] (dim): 2"},
      {"inner stride 0", [](auto& t) { dense_strides(t.k_view), t.k_view.stride[3] = 0; },
       "k.stride[3] (dim): 0"},
      {"negative stride", [](auto& t) { dense_strides(t.k_view), t.k_view.stride[1] = -16; },
       "k.stride[1]: -16"},
      {"stride overflows", [](auto& t) { dense_strides(t.v_view), t.v_view.stride[0] = kHuge; },
       "v.shape, .stride"},
      {"o stride 0", [](auto& t) { dense_strides(t.o_view), t.o_view.stride[1] = 0; }, "o.stride"},
      {"o overlaps itself", [](auto& t) { dense_strides(t.o_view), t.o_view.stride[2] = 4; }, "o.stride"},
      {"lse overlaps itself", [](auto& t) { dense_strides(t.lse_view), t.lse_view.stride[0] = 1; },
       "lse.stride"},
      {"o is q", [](auto& t) { t.o_view.data = t.q_view.data; }, "o.data: overlaps q"},
      {"o is k", [](auto& t) { t.o_view.data = t.k_view.data; }, "o.data: overlaps k"},
      {"o is v",
       [](auto& t) {
         static std::vector<float> room(2 * 10 * 4 * 8);  // o is larger than v, and q may lie behind v
         t.o_view.data = t.v_view.data = room.data();
       },
       "o.data: overlaps v"},
      {"o ends in q",
       [](auto& t) { t.o_view.data = static_cast<char*>(t.q_view.data) + 2 * 10 * 4 * 16 * 4 - 1; },
       "o.data: overlaps q"},
      {"lse is q", [](auto& t) { t.lse_view.data = t.q_view.data; }, "lse.data: overlaps q"},
      {"lse is k", [](auto& t) { t.lse_view.data = t.k_view.data; }, "lse.data: overlaps k"},
      {"lse is v", [](auto& t) { t.lse_view.data = t.v_view.data; }, "lse.data: overlaps v"},
      {"lse is o", [](auto& t) { t.lse_view.data = t.o_view.data; }, "lse.data: overlaps o"},
      {"workspace", [](auto& t) { t.args.workspace = &t; }, "workspace"},
      {"workspace_bytes", [](auto& t) { t.args.workspace_bytes = 1; }, "workspace"},
      {"args flags", [](auto& t) { t.args.flags = 1; }, "flags: 1"},
  };
}

constexpr const char* kProblem = "n=10 batch=2 heads=4 kv_heads=2 dim=16 dim_v=8 mask=causal ranks=1";

bool untouched(const RankTensors& t) {
  for (const HostTensor* out : {&t.o, &t.lse}) {
    for (const float value : out->to_floats()) {
      if (!std::isnan(value)) return false;
    }
  }
  return t.o.guards_intact() && t.lse.guards_intact() && t.q.guards_intact();
}

TEST(ApiTensors, BadOnesAreRefusedByNameAndNothingIsWritten) {
  const HostContext context(1);
  for (const Bad& bad : bad_tensors()) {
    HostRing ring(context, kProblem);
    RankTensors& t = ring.tensors(0);
    const std::uint64_t inputs = t.q.hash() ^ t.k.hash() ^ t.v.hash();
    bad.bend(t);
    EXPECT_EQ(ring.execute(0), RINGATTN_ERR_INVALID_ARGUMENT) << bad.name;
    EXPECT_NE(std::string(ringattn_last_error()).find(bad.word), std::string::npos)
        << bad.name << ": " << ringattn_last_error();
    EXPECT_TRUE(untouched(t)) << bad.name;
    EXPECT_EQ(t.q.hash() ^ t.k.hash() ^ t.v.hash(), inputs) << bad.name;
  }
}

TEST(ApiTensors, AnyAlignmentIsLegalAndRight) {
  const HostContext context(1);
  for (const char* line :
       {"n=37 heads=2 dim=24 mask=causal ranks=2", "n=37 heads=2 dim=24 dtype=bf16 mask=causal ranks=2"}) {
    const std::uint64_t expected = answer_of_local(line);
    HostRing ring(context, line);
    std::vector<std::vector<char>> memory;
    for (int rank = 0; rank < 2; ++rank) {
      RankTensors& t = ring.tensors(rank);
      const std::pair<HostTensor*, ringattn_tensor*> all[] = {
          {&t.q, &t.q_view}, {&t.k, &t.k_view}, {&t.v, &t.v_view}, {&t.o, &t.o_view}, {&t.lse, &t.lse_view}};
      for (const auto& [tensor, view] : all) {
        const auto bytes = static_cast<std::size_t>(tensor->size() * dtype_size(tensor->dtype()));
        memory.emplace_back(bytes + 70);
        char* at = memory.back().data();
        at += 64 - reinterpret_cast<std::uintptr_t>(at) % 64 + 1 + 2 * (memory.size() % 2);  // odd addresses
        std::memcpy(at, view->data, bytes);
        view->data = at;
      }
    }
    EXPECT_EQ(ring.execute_all(), RINGATTN_OK) << ringattn_last_error();
    for (int rank = 0; rank < 2; ++rank) {
      RankTensors& t = ring.tensors(rank);
      std::memcpy(t.o.data(), t.o_view.data, static_cast<std::size_t>(t.o.size() * dtype_size(t.o.dtype())));
      std::memcpy(t.lse.data(), t.lse_view.data, static_cast<std::size_t>(t.lse.size()) * 4);
    }
    EXPECT_EQ(ring.hash(), expected) << line;
  }
}

TEST(ApiTensors, StrideZeroIsLegalForInputs) {
  const HostContext context(1);
  HostRing ring(context, "n=10 batch=2 heads=4 dim=16 ranks=1");
  RankTensors& t = ring.tensors(0);
  // One key for all positions, heads and rows: every output is its value.
  for (ringattn_tensor* view : {&t.k_view, &t.v_view}) {
    dense_strides(*view);
    view->stride[0] = view->stride[1] = view->stride[2] = 0;
  }
  ASSERT_EQ(ring.execute(0), RINGATTN_OK) << ringattn_last_error();
  for (std::int64_t d = 0; d < 16; ++d) EXPECT_NEAR(t.o.get(1, 7, 3, d), t.v.get(0, 0, 0, d), 1e-5);
}

TEST(ApiTensors, StridesAreNotReadWithoutTheirFlag) {
  const HostContext context(1);
  HostRing ring(context, kProblem);
  RankTensors& t = ring.tensors(0);
  for (ringattn_tensor* view : {&t.q_view, &t.k_view, &t.v_view, &t.o_view, &t.lse_view}) {
    view->flags = 0;
    for (std::int64_t& stride : view->stride) stride = -77;
  }
  EXPECT_EQ(ring.execute(0), RINGATTN_OK) << ringattn_last_error();
  EXPECT_EQ(ring.hash(), answer_of_local(kProblem));
}

TEST(ApiTensors, NullDataIsLegalWhereASizeIsZero) {
  const HostContext context(1);
  HostRing ring(context, "n=2 dim=8 ranks=4");  // ranks 2 and 3 have nothing
  for (int rank = 2; rank < 4; ++rank) {
    RankTensors& t = ring.tensors(rank);
    for (ringattn_tensor* view : {&t.q_view, &t.k_view, &t.v_view, &t.o_view, &t.lse_view})
      view->data = nullptr;
  }
  EXPECT_EQ(ring.execute_all(), RINGATTN_OK) << ringattn_last_error();
  HostRing no_batch(context, "n=8 batch=0 dim=8 ranks=2");
  for (int rank = 0; rank < 2; ++rank) {
    RankTensors& t = no_batch.tensors(rank);
    for (ringattn_tensor* view : {&t.q_view, &t.k_view, &t.v_view, &t.o_view, &t.lse_view})
      view->data = nullptr;
  }
  EXPECT_EQ(no_batch.execute_all(), RINGATTN_OK) << ringattn_last_error();
}

// One row of memory a token: q, k, v and o beside one another, as a fused projection makes them.
TEST(ApiTensors, SlicesOfOneFusedBufferAreAcceptedAndRight) {
  constexpr const char* kFused = "n=20 heads=2 dim=8 mask=causal ranks=1";
  const HostContext context(1);
  HostRing ring(context, kFused);
  RankTensors& t = ring.tensors(0);
  constexpr std::int64_t kSlice = 2 * 8, kRow = 4 * kSlice;
  std::vector<float> buffer(20 * kRow, NAN);
  HostTensor* const tensors[] = {&t.q, &t.k, &t.v, &t.o};
  ringattn_tensor* const views[] = {&t.q_view, &t.k_view, &t.v_view, &t.o_view};
  for (int i = 0; i < 4; ++i) {
    views[i]->flags = RINGATTN_TENSOR_STRIDES;
    views[i]->data = buffer.data() + i * kSlice;
    const std::int64_t strides[] = {20 * kRow, kRow, 8, 1};
    std::copy_n(strides, 4, views[i]->stride);
    for (std::int64_t s = 0; s < 20; ++s) {
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t d = 0; d < 8; ++d) {
          buffer[static_cast<std::size_t>(s * kRow + i * kSlice + h * 8 + d)] =
              static_cast<float>(tensors[i]->get(0, s, h, d));
        }
      }
    }
  }
  const std::vector<float> before = buffer;
  ASSERT_EQ(ring.execute(0), RINGATTN_OK) << ringattn_last_error();
  for (std::int64_t s = 0; s < 20; ++s) {
    EXPECT_EQ(std::memcmp(&buffer[static_cast<std::size_t>(s * kRow)],
                          &before[static_cast<std::size_t>(s * kRow)], 3 * kSlice * 4),
              0)
        << "an input was written";
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t d = 0; d < 8; ++d)
        t.o.set(0, s, h, d, buffer[static_cast<std::size_t>(s * kRow + 3 * kSlice + h * 8 + d)]);
    }
  }
  EXPECT_EQ(ring.hash(), answer_of_local(kFused));
  // Moved by one element, o and v meet.
  t.o_view.data = buffer.data() + 3 * kSlice - 1;
  EXPECT_EQ(ring.execute(0), RINGATTN_ERR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(ringattn_last_error()).find("o.data: overlaps v"), std::string::npos)
      << ringattn_last_error();
}

// A stride along an axis of one entry is never used, however strange.
TEST(ApiTensors, StridesOfSingleEntriesDoNotMatter) {
  const HostContext context(1);
  HostRing ring(context, "n=1 dim=8 ranks=1");
  RankTensors& t = ring.tensors(0);
  for (ringattn_tensor* view : {&t.q_view, &t.k_view, &t.v_view, &t.o_view, &t.lse_view}) {
    dense_strides(*view);
    view->stride[0] = view->stride[1] = view->stride[2] = kHuge;
  }
  EXPECT_EQ(ring.execute(0), RINGATTN_OK) << ringattn_last_error();
  t.o_view.data = t.q_view.data;
  EXPECT_EQ(ring.execute(0), RINGATTN_ERR_INVALID_ARGUMENT);
}

TEST(ApiWorkspace, OfTheCaller) {
  const HostContext context(1);
  constexpr const char* kLine = "n=50 heads=2 dim=16 mask=causal ranks=1";
  HostRingOptions options;
  options.plan_flags = RINGATTN_PLAN_CALLER_WORKSPACE;
  HostRing first(context, kLine, options), second(context, "n=33 dim=24 ranks=1", options);
  ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info), other = info;
  ASSERT_EQ(ringattn_plan_get_info(first.plan(0), nullptr, &info), RINGATTN_OK);
  ASSERT_EQ(ringattn_plan_get_info(second.plan(0), nullptr, &other), RINGATTN_OK);
  const std::uint64_t bytes = std::max(info.workspace_bytes, other.workspace_bytes);
  std::vector<char> memory(bytes + 192, 'c');
  char* at = memory.data() + 64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
  ringattn_forward_args& args = first.tensors(0).args;
  const auto refused = [&](void* workspace, std::uint64_t size, const char* word) {
    args.workspace = workspace;
    args.workspace_bytes = size;
    EXPECT_EQ(first.execute(0), RINGATTN_ERR_INVALID_ARGUMENT) << word;
    EXPECT_NE(std::string(ringattn_last_error()).find(word), std::string::npos) << ringattn_last_error();
    EXPECT_TRUE(untouched(first.tensors(0)));
  };
  refused(nullptr, 0, "workspace_bytes: 0");
  refused(at, info.workspace_bytes - 1, "workspace_bytes");
  refused(nullptr, info.workspace_bytes, "workspace: NULL");
  refused(at + 8, info.workspace_bytes, "workspace: not aligned");
  const std::uint64_t expected = answer_of_local(kLine),
                      expected_second = answer_of_local("n=33 dim=24 ranks=1");
  for (int round = 0; round < 2; ++round) {  // both plans, one after the other, in the same memory
    for (HostRing* ring : {&first, &second}) {
      ring->tensors(0).args.workspace = at;
      ring->tensors(0).args.workspace_bytes = bytes;
      ring->poison_outputs();
      EXPECT_EQ(ring->execute(0), RINGATTN_OK) << ringattn_last_error();
    }
    EXPECT_EQ(first.hash(), expected);
    EXPECT_EQ(second.hash(), expected_second);
  }
  for (const char* c = memory.data(); c < at; ++c) EXPECT_EQ(*c, 'c');
  for (const char* c = at + bytes; c < memory.data() + memory.size(); ++c)
    EXPECT_EQ(*c, 'c') << "written beyond the workspace";
}

}  // namespace
}  // namespace ringattn::support
