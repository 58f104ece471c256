// Rings that meet by unique id, by the caller's all-gather and by the environment. Here the ranks are threads, each with a
// context of its own, so that failures are seen from both sides; tests of the tool run real processes.
#include <gtest/gtest.h>

#include <array>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "tests/ring/host_ring.h"

namespace ringattn::support {
namespace {

constexpr const char* kProblem = "n=75 heads=2 dim=16 mask=causal partition=zigzag ranks=3 pass=backward";

struct Answer {
  ringattn_status status = RINGATTN_ERR_INTERNAL;
  std::string message;
};

// MPI_Allgather between threads.
class Board {
 public:
  explicit Board(int world) : world_(world) {}
  static std::int32_t gather(void* user, const void* own, std::uint64_t bytes, void* all) {
    auto& seat = *static_cast<Seat*>(user);
    return seat.board->exchange(seat.rank, own, bytes, all);
  }
  struct Seat {
    Board* board;
    int rank;
  };

 private:
  std::int32_t exchange(int rank, const void* own, std::uint64_t bytes, void* all) {
    std::unique_lock lock(mutex_);
    const std::uint64_t round = rounds_;
    data_.resize(static_cast<std::size_t>(world_) * bytes);
    std::memcpy(data_.data() + static_cast<std::size_t>(rank) * bytes, own, bytes);
    if (++here_ == world_) {
      done_ = data_;
      here_ = 0;
      ++rounds_;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&] { return rounds_ != round; });
    }
    std::memcpy(all, done_.data(), done_.size());
    return 0;
  }

  const int world_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int here_ = 0;
  std::uint64_t rounds_ = 0;
  std::vector<char> data_, done_;
};

ringattn_comm_desc comm_desc(int world) {
  ringattn_comm_desc desc = RINGATTN_STRUCT(ringattn_comm_desc);
  desc.world_size = world;
  desc.timeout_ms = 20'000;
  desc.arrival_timeout_ms = 20'000;
  return desc;
}

// Makes a plan and runs it on this rank's comm, forward and backward, and hashes dQ, dK, dV.
std::uint64_t run_rank(ringattn_comm* comm, const ProblemLine& problem, const ProblemPlan& values, int rank) {
  ringattn_plan* plan = nullptr;
  require_ok(ringattn_plan_create(comm, &values.desc(rank), &plan), "plan");
  ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
  require_ok(ringattn_plan_get_info(plan, nullptr, &info), "info");
  RankTensors tensors(problem, info.local_q, info.local_k, nullptr);
  const Inputs inputs = random_inputs(problem, 1);
  const ringattn_tensor q = inputs.q.view(), k = inputs.k.view(), v = inputs.v.view(),
                        d_o = inputs.d_o.view();
  require_ok(ringattn_shard(plan, RINGATTN_AXIS_QUERY, rank, nullptr, &q, &tensors.q_view), "q");
  require_ok(ringattn_shard(plan, RINGATTN_AXIS_KEY, rank, nullptr, &k, &tensors.k_view), "k");
  require_ok(ringattn_shard(plan, RINGATTN_AXIS_KEY, rank, nullptr, &v, &tensors.v_view), "v");
  require_ok(ringattn_shard(plan, RINGATTN_AXIS_QUERY, rank, nullptr, &d_o, &tensors.d_o_view), "d_o");
  EXPECT_EQ(ringattn_forward(plan, &tensors.args, nullptr), RINGATTN_OK) << ringattn_last_error();
  EXPECT_EQ(ringattn_backward(plan, &tensors.backward_args, nullptr), RINGATTN_OK) << ringattn_last_error();
  const std::uint64_t hash = (tensors.d_q.hash() * 31 + tensors.d_k.hash()) * 31 + tensors.d_v.hash();
  ringattn_plan_destroy(plan);
  return hash;
}

// The same by ranks of one context, over the local transport.
std::vector<std::uint64_t> local_hashes(const ProblemLine& problem) {
  const HostContext context(1);
  std::vector<ringattn_comm*> comms(static_cast<std::size_t>(problem.ranks));
  ringattn_comm_desc desc = comm_desc(problem.ranks);
  require_ok(ringattn_comm_create_local(context.get(), &desc, comms.data()), "comms");
  const ProblemPlan values(problem);
  std::vector<std::uint64_t> hashes(comms.size());
  run_threads(problem.ranks, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    hashes[r] = run_rank(comms[r], problem, values, rank);
  });
  for (ringattn_comm* comm : comms) ringattn_comm_destroy(comm);
  return hashes;
}

TEST(RingProcesses, MeetByUniqueIdAndComputeTheSameBits) {
  const Watchdog watchdog("ranks that meet by unique id", 60);
  const ProblemLine problem = parse_line(kProblem);
  const ProblemPlan values(problem);
  const std::vector<std::uint64_t> expected = local_hashes(problem);
  const HostContext host(1);
  const ringattn_comm_desc desc = comm_desc(problem.ranks);
  ringattn_unique_id made, id;
  ASSERT_EQ(ringattn_unique_id_create(host.get(), &desc, &made), RINGATTN_OK) << ringattn_last_error();
  char text[RINGATTN_UNIQUE_ID_TEXT];
  ASSERT_EQ(ringattn_unique_id_to_text(&made, text, sizeof text), RINGATTN_OK) << ringattn_last_error();
  ASSERT_EQ(ringattn_unique_id_from_text(text, &id), RINGATTN_OK) << ringattn_last_error();
  EXPECT_EQ(std::memcmp(&made, &id, sizeof id), 0);
  std::vector<std::uint64_t> hashes(expected.size());
  run_threads(problem.ranks, [&](int rank) {
    const HostContext context(1);
    ringattn_comm* comm = nullptr;
    ASSERT_EQ(ringattn_comm_create_from_id(context.get(), &desc, rank, &id, &comm), RINGATTN_OK)
        << ringattn_last_error();
    std::int32_t number = -1, world = -1;
    EXPECT_EQ(ringattn_comm_rank(comm, &number, &world), RINGATTN_OK);
    EXPECT_EQ(number, rank);
    EXPECT_EQ(world, problem.ranks);
    hashes[static_cast<std::size_t>(rank)] = run_rank(comm, problem, values, rank);
    ringattn_comm_destroy(comm);
  });
  EXPECT_EQ(hashes, expected);
}

TEST(RingProcesses, MeetByTheCallersAllGather) {
  const Watchdog watchdog("ranks that meet by an all-gather", 60);
  const ProblemLine problem = parse_line(kProblem);
  const ProblemPlan values(problem);
  const std::vector<std::uint64_t> expected = local_hashes(problem);
  Board board(problem.ranks);
  std::vector<std::uint64_t> hashes(expected.size());
  run_threads(problem.ranks, [&](int rank) {
    const HostContext context(1);
    const ringattn_comm_desc desc = comm_desc(problem.ranks);
    Board::Seat seat{&board, rank};
    ringattn_comm* comm = nullptr;
    ASSERT_EQ(ringattn_comm_create_from_allgather(context.get(), &desc, rank, Board::gather, &seat, &comm),
              RINGATTN_OK)
        << ringattn_last_error();
    hashes[static_cast<std::size_t>(rank)] = run_rank(comm, problem, values, rank);
    ringattn_comm_destroy(comm);
  });
  EXPECT_EQ(hashes, expected);
}

// Ranks that wish for different things: all hear of it, nobody hangs.
std::vector<Answer> meet(const std::function<void(int, ringattn_comm_desc&)>& bend, int world = 3) {
  Board board(world);
  std::vector<Answer> answers(static_cast<std::size_t>(world));
  run_threads(world, [&](int rank) {
    const HostContext context(1);
    ringattn_comm_desc desc = comm_desc(world);
    bend(rank, desc);
    Board::Seat seat{&board, rank};
    ringattn_comm* comm = nullptr;
    const ringattn_status status =
        ringattn_comm_create_from_allgather(context.get(), &desc, rank, Board::gather, &seat, &comm);
    answers[static_cast<std::size_t>(rank)] = {status, ringattn_last_error()};
    EXPECT_EQ(comm == nullptr, status != RINGATTN_OK);
    ringattn_comm_destroy(comm);
  });
  return answers;
}

TEST(RingProcesses, DifferentWishesAreNamedOnEveryRank) {
  const auto answers = meet([](int rank, ringattn_comm_desc& desc) {
    if (rank == 2) desc.transport = "tcp";
  });
  for (const Answer& answer : answers) {
    EXPECT_EQ(answer.status, RINGATTN_ERR_RANK_MISMATCH) << answer.message;
    EXPECT_NE(answer.message.find("transport: rank 0 has \"\", rank 2 has \"tcp\""), std::string::npos)
        << answer.message;
  }
}

TEST(RingProcesses, ATransportThatCannotIsRefusedWithTheReason) {
  for (const auto& [name, status, words] : {std::tuple{"local", RINGATTN_ERR_UNSUPPORTED, "one process only"},
                                            std::tuple{"pigeon", RINGATTN_ERR_NOT_FOUND, "does not exist"}}) {
    for (const Answer& answer :
         meet([name = name](int, ringattn_comm_desc& desc) { desc.transport = name; })) {
      EXPECT_EQ(answer.status, status) << answer.message;
      EXPECT_NE(answer.message.find(words), std::string::npos) << answer.message;
    }
  }
}

TEST(RingProcesses, OneRankNeedsNobody) {
  for (const Answer& answer : meet([](int, ringattn_comm_desc&) {}, 1))
    EXPECT_EQ(answer.status, RINGATTN_OK) << answer.message;
}

TEST(RingProcesses, AnAllGatherThatFailsEndsTheCall) {
  const HostContext context(1);
  const ringattn_comm_desc desc = comm_desc(2);
  ringattn_comm* comm = nullptr;
  const auto failing = [](void*, const void*, std::uint64_t, void*) -> std::int32_t { return 7; };
  EXPECT_EQ(ringattn_comm_create_from_allgather(context.get(), &desc, 0, failing, nullptr, &comm),
            RINGATTN_ERR_TRANSPORT);
  EXPECT_NE(std::string(ringattn_last_error()).find("returned 7"), std::string::npos);
}

TEST(RingProcesses, BadArgumentsAreRefusedByName) {
  const HostContext context(1);
  const ringattn_comm_desc desc = comm_desc(2);
  ringattn_comm* comm = nullptr;
  ringattn_unique_id id{};
  const auto says = [](const char* word) {
    const std::string message = ringattn_last_error();
    return message.find(word) != std::string::npos && message.find("expected") != std::string::npos;
  };
  EXPECT_EQ(ringattn_comm_create_from_id(context.get(), &desc, 2, &id, &comm), RINGATTN_ERR_INVALID_ARGUMENT);
  EXPECT_TRUE(says("rank: 2")) << ringattn_last_error();
  EXPECT_EQ(ringattn_comm_create_from_id(context.get(), &desc, 0, &id, &comm), RINGATTN_ERR_INVALID_ARGUMENT)
      << "an id of zeros";
  EXPECT_EQ(ringattn_comm_create_from_id(context.get(), &desc, 0, nullptr, &comm),
            RINGATTN_ERR_INVALID_ARGUMENT);
  EXPECT_TRUE(says("id: NULL")) << ringattn_last_error();
  EXPECT_EQ(ringattn_comm_create_from_allgather(context.get(), &desc, 0, nullptr, nullptr, &comm),
            RINGATTN_ERR_INVALID_ARGUMENT);
  EXPECT_TRUE(says("allgather: NULL")) << ringattn_last_error();
  EXPECT_EQ(ringattn_unique_id_from_text("not an id", &id), RINGATTN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(ringattn_unique_id_from_text(nullptr, &id), RINGATTN_ERR_INVALID_ARGUMENT);
  ASSERT_EQ(ringattn_unique_id_create(context.get(), &desc, &id), RINGATTN_OK) << ringattn_last_error();
  char small[8];
  EXPECT_EQ(ringattn_unique_id_to_text(&id, small, sizeof small), RINGATTN_ERR_INVALID_ARGUMENT);
  EXPECT_TRUE(says("capacity: 8")) << ringattn_last_error();
  EXPECT_EQ(ringattn_unique_id_to_text(&id, nullptr, 0), RINGATTN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(comm, nullptr);
}

// Of two ranks one never comes.
TEST(RingProcesses, AMissingRankIsATimeoutThatNamesIt) {
  const HostContext context(1);
  ringattn_comm_desc desc = comm_desc(2);
  desc.arrival_timeout_ms = 300;
  ringattn_unique_id id;
  ASSERT_EQ(ringattn_unique_id_create(context.get(), &desc, &id), RINGATTN_OK) << ringattn_last_error();
  ringattn_comm* comm = nullptr;
  EXPECT_EQ(ringattn_comm_create_from_id(context.get(), &desc, 0, &id, &comm), RINGATTN_ERR_TIMEOUT);
  EXPECT_NE(std::string(ringattn_last_error()).find("1"), std::string::npos) << ringattn_last_error();
  EXPECT_EQ(comm, nullptr);
}

TEST(RingProcesses, WithoutALauncherTheEnvironmentIsNamed) {
  const HostContext context(1);
  const ringattn_comm_desc desc = comm_desc(0);
  ringattn_comm* comm = nullptr;
  for (const char* name : {"RINGATTN_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    if (std::getenv(name) != nullptr) GTEST_SKIP() << "this machine's environment is that of a launcher";
  }
  EXPECT_EQ(ringattn_comm_create_from_environment(context.get(), &desc, &comm), RINGATTN_ERR_NOT_FOUND);
  EXPECT_NE(std::string(ringattn_last_error()).find("RINGATTN_RANK"), std::string::npos)
      << ringattn_last_error();
}

}  // namespace
}  // namespace ringattn::support
