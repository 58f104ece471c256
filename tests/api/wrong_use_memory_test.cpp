// Memory that one rank of an array writes and another one reads or writes: refused, the rank and both tensors named.
// And what looks alike and is legal: every rank's tensors as slices of one global tensor.
#include "tests/api/wrong_use_ring.h"

namespace ringattn::wrong_use {
namespace {

constexpr ringattn_status kInvalid = RINGATTN_ERR_INVALID_ARGUMENT;

ringattn_plan_desc three_ranks_problem() {
  ringattn_plan_desc desc = batch_problem();
  desc.seq_q = desc.seq_k = 24;
  return desc;
}

bool used(const Slot& slot, bool of_backward) {
  return of_backward ? slot.backward != nullptr : slot.forward != nullptr;
}

std::byte* last_byte(const ringattn_tensor& t) { return static_cast<std::byte*>(t.data) + bytes_of(t) - 1; }

TEST(WrongUseMemory, AnOutputOverATensorOfAnotherRank) {
  const support::Watchdog watchdog("outputs over other ranks' tensors", 60);
  Ring ring(3, three_ranks_problem());
  for (const bool of_backward : {false, true}) {
    for (const Slot& out : kSlots) {
      if (!used(out, of_backward) || !is_output(out.id)) continue;
      for (const Slot& other : kSlots) {
        if (!used(other, of_backward)) continue;
        for (const auto& [rank, peer] : {std::pair{0, 2}, std::pair{2, 1}}) {
          SCOPED_TRACE(std::string(of_backward ? "backward: " : "forward: ") + name_of(out.id) + " of rank " +
                       std::to_string(rank) + " over " + name_of(other.id) + " of rank " +
                       std::to_string(peer));
          ring.reset();
          ring.shards(rank).view[out.id].value.data = last_byte(ring.shards(peer).fresh(other.id));
          // Of two outputs the later rank's is told, so that one rank is to blame.
          const bool peer_later = is_output(other.id) && peer > rank;
          const int wrong = peer_later ? peer : rank, with = peer_later ? rank : peer;
          const std::string text = "rank " + std::to_string(wrong) + ": " +
                                   name_of(peer_later ? other.id : out.id) + ".data: overlaps " +
                                   name_of(peer_later ? out.id : other.id) + " of rank " +
                                   std::to_string(with) + ", expected memory of its own";
          EXPECT_TRUE(refused(answer(ring.run_array(of_backward)), kInvalid, {text}));
          EXPECT_TRUE(ring.untouched());
        }
      }
    }
  }
  EXPECT_TRUE(ring.works());
}

// Two ranks of three by one call: the third one's call hears of it.
TEST(WrongUseMemory, ARankOutsideTheArrayHearsOfIt) {
  const support::Watchdog watchdog("an array of two ranks of three", 60);
  Ring ring(3, three_ranks_problem());
  ring.shards(1).view[kOutO].value.data = ring.shards(0).fresh(kK).data;
  Answer answers[2];
  support::run_threads(
      2,
      [&](int i) {
        if (i == 1) {
          answers[1] = answer(ring.forward(2));
          return;
        }
        const Padded<ringattn_forward_args> args[] = {in_array(ring.shards(0).forward),
                                                      in_array(ring.shards(1).forward)};
        answers[0] = answer(ringattn_forward_array(2, ring.plans(), &args[0].value, nullptr));
      },
      60, "two calls");
  EXPECT_TRUE(refused(answers[0], kInvalid, {"o.data: overlaps k of rank 0"}));
  EXPECT_TRUE(
      refused(answers[1], RINGATTN_ERR_PEER_REFUSED, {"rank 1 refused: ", "o.data: overlaps k of rank 0"}));
  EXPECT_TRUE(ring.untouched());
  EXPECT_TRUE(ring.works());
}

// A ring whose ranks bring their workspaces: plans and what a call of them takes.
struct OwnWorkspaces {
  explicit OwnWorkspaces(Ring& ring) : ring_(ring), plans(static_cast<std::size_t>(ring.ranks())) {
    ringattn_plan_desc desc = ring.desc();
    desc.flags |= RINGATTN_PLAN_CALLER_WORKSPACE;
    const std::vector<ringattn_plan_desc> descs(plans.size(), desc);
    Ring::require(ringattn_plan_create_array(ring.ranks(), ring.comms(), descs.data(), plans.data()));
    ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
    Ring::require(ringattn_plan_get_info(plans[0], nullptr, &info));
    bytes = info.workspace_bytes;
    for (std::size_t r = 0; r < plans.size(); ++r) memory.emplace_back(bytes + 64);
  }
  ~OwnWorkspaces() {
    for (ringattn_plan* plan : plans) ringattn_plan_destroy(plan);
  }
  static std::byte* aligned(std::byte* at) {
    return at + (64 - reinterpret_cast<std::uintptr_t>(at) % 64) % 64;
  }
  std::byte* workspace(std::size_t rank) { return aligned(memory[rank].data()); }
  Answer forward(std::byte* of_last) {
    std::vector<Padded<ringattn_forward_args>> args;
    for (std::size_t r = 0; r < plans.size(); ++r) {
      args.push_back(in_array(ring_.shards(static_cast<int>(r)).forward));
      args.back().value.workspace = r + 1 == plans.size() ? of_last : workspace(r);
      args.back().value.workspace_bytes = bytes;
    }
    return answer(ringattn_forward_array(ring_.ranks(), plans.data(), &args[0].value, nullptr));
  }

  Ring& ring_;
  std::vector<ringattn_plan*> plans;
  std::vector<std::vector<std::byte>> memory;
  std::uint64_t bytes = 0;
};

TEST(WrongUseMemory, AWorkspaceOverAnything) {
  const support::Watchdog watchdog("workspaces over tensors", 60);
  Ring ring(3, three_ranks_problem());
  OwnWorkspaces own(ring);
  ASSERT_GT(own.bytes, 64u);
  std::byte* const last = own.workspace(2) + own.bytes - 1;
  for (const auto& [rank, id] : {std::pair{2, kV}, {2, kOutLse}, {0, kQ}, {1, kK}}) {
    SCOPED_TRACE(std::string(name_of(id)) + " of rank " + std::to_string(rank));
    ring.reset();
    ring.shards(rank).view[id].value.data = last;
    const std::string text = std::string("rank 2: workspace: overlaps ") + name_of(id) +
                             (rank == 2 ? "" : " of rank " + std::to_string(rank)) + ", expected";
    EXPECT_TRUE(refused(own.forward(own.workspace(2)), kInvalid, {text}));
  }
  ring.reset();
  // The later one of two that write is told.
  ring.shards(0).view[kOutO].value.data = last;
  EXPECT_TRUE(refused(own.forward(own.workspace(2)), kInvalid, {"rank 2: workspace: overlaps o of rank 0"}));
  ring.reset();
  EXPECT_TRUE(
      refused(own.forward(own.workspace(1)), kInvalid, {"rank 2: workspace: overlaps workspace of rank 1"}));
  EXPECT_TRUE(ring.untouched());
  EXPECT_EQ(own.forward(own.workspace(2)).status, RINGATTN_OK) << ringattn_last_error();
}

// Every tensor of every rank a slice [batch, its rows, heads, dim] of one with all rows.
class GlobalTensors {
 public:
  explicit GlobalTensors(Ring& ring) : ring_(ring) {
    const int ranks = ring.ranks();
    for (int id = 0; id < kTensors; ++id) {
      ringattn_tensor whole = ring.shards(0).fresh(id);
      const int seq = seq_axis(id);
      rows_[id] = whole.shape[seq];
      whole.shape[seq] *= ranks;
      dense_strides(whole);
      memory_[id].assign(bytes_of(whole), Shards::kGuard);
      for (int rank = 0; rank < ranks; ++rank) {
        ringattn_tensor& view = ring.shards(rank).view[id].value;
        std::copy_n(whole.stride, 4, view.stride);
        view.data = memory_[id].data() +
                    static_cast<std::size_t>(rank * rows_[id] * whole.stride[seq]) * dtype_bytes(whole.dtype);
        if (!is_output(id)) copy(ring.shards(rank).fresh(id), view);
      }
    }
  }
  // The bits of rank's part of an output, dense.
  std::vector<std::byte> part(int rank, int id) const {
    ringattn_tensor dense = ring_.shards(rank).fresh(id);
    std::vector<std::byte> bytes(bytes_of(dense));
    dense.data = bytes.data();
    copy(ring_.shards(rank).view[id].value, dense);
    return bytes;
  }

 private:
  static int seq_axis(int id) { return id == kOutLse || id == kLse || id == kDlse ? 2 : 1; }
  static void copy(const ringattn_tensor& from, const ringattn_tensor& to) {
    const std::size_t element = dtype_bytes(from.dtype);
    for (std::int64_t b = 0; b < from.shape[0]; ++b)
      for (std::int64_t s = 0; s < from.shape[1]; ++s)
        for (std::int64_t h = 0; h < from.shape[2]; ++h) {
          const auto at = [&](const ringattn_tensor& t) {
            const std::int64_t elements = b * t.stride[0] + s * t.stride[1] + h * t.stride[2];
            return static_cast<std::byte*>(t.data) + static_cast<std::size_t>(elements) * element;
          };
          std::memcpy(at(to), at(from), static_cast<std::size_t>(from.shape[3]) * element);
        }
  }

  Ring& ring_;
  std::vector<std::byte> memory_[kTensors];
  std::int64_t rows_[kTensors];
};

TEST(WrongUseMemory, SlicesOfOneGlobalTensorAreLegal) {
  Ring ring(3, three_ranks_problem());
  ASSERT_EQ(ring.forward_array(), RINGATTN_OK);
  ASSERT_EQ(ring.backward_array(), RINGATTN_OK);
  std::vector<std::vector<std::byte>> expected;
  for (int rank = 0; rank < 3; ++rank) {
    for (int id = 0; id < kTensors; ++id) {
      const ringattn_tensor& t = ring.shards(rank).fresh(id);
      const auto* const first = static_cast<const std::byte*>(t.data);
      expected.emplace_back(first, first + bytes_of(t));
    }
  }
  ring.reset();
  const GlobalTensors global(ring);
  ASSERT_EQ(ring.forward_array(), RINGATTN_OK) << ringattn_last_error();
  ASSERT_EQ(ring.backward_array(), RINGATTN_OK) << ringattn_last_error();
  for (int rank = 0; rank < 3; ++rank) {
    for (int id = 0; id < kTensors; ++id) {
      EXPECT_TRUE(global.part(rank, id) == expected[static_cast<std::size_t>(rank * kTensors + id)])
          << name_of(id) << " of rank " << rank;
    }
  }
  EXPECT_TRUE(ring.untouched()) << "nothing goes to the shards' own memory";
}

}  // namespace
}  // namespace ringattn::wrong_use
