// The same gradients bit for bit whatever the number of threads, the timing, the form of the call and the
// transport (D12).
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/e2e/closed_forms.h"
#include "tests/e2e/fake_transports.h"

namespace ringattn::support {
namespace {

// Of o, lse, d_q, d_k, d_v.
std::vector<std::uint64_t> hashes_of(const RunResult& run) {
  EXPECT_TRUE(run.ok()) << run.error();
  return {run.o.hash(), run.lse.hash(), run.d_q.hash(), run.d_k.hash(), run.d_v.hash()};
}

class BackwardDeterminism : public ::testing::TestWithParam<const char*> {
 protected:
  BackwardDeterminism() { options_.with_d_lse = true; }
  std::vector<std::uint64_t> hashes() const { return hashes_of(run_ring(problem_, inputs_, options_)); }

  ProblemLine problem_ = parsed(std::string(GetParam()) + " pass=backward");
  Inputs inputs_ = random_inputs(problem_, 12);
  RunOptions options_;
};

TEST_P(BackwardDeterminism, ThreadsOfTheHost) {
  const std::vector<std::uint64_t> expected = hashes();
  options_.host_parallel_for = true;
  options_.repeat = 2;
  for (int threads = 1; threads <= 4; ++threads) {
    problem_.threads = threads;
    const RunResult run = run_ring(problem_, inputs_, options_);
    EXPECT_EQ(hashes_of(run), expected) << threads << " threads";
    // As in Determinism: HostPool gives every thread its share of the bodies, and the problems have tiles for
    // all. Of the last backward alone.
    if (threads > 1) {
      EXPECT_EQ(run.distinct_threads, threads);
    }
  }
}

TEST_P(BackwardDeterminism, ThreadsOfTheLibrary) {
  if (!kLibraryThreads) GTEST_SKIP() << "ThreadSanitizer does not know oneTBB's synchronisation";
  const std::vector<std::uint64_t> expected = hashes();
  options_.repeat = 2;
  for (const int threads : {2, 3, 4}) {
    problem_.threads = threads;
    EXPECT_EQ(hashes(), expected) << threads << " threads";
  }
}

// Delays that were met: each rank called no sooner than its delay, and the first one could not end before the
// last one came.
void expect_delayed(const RunResult& run, const std::vector<int>& delay_ms) {
  ASSERT_EQ(run.start_seconds.size(), delay_ms.size());
  ASSERT_EQ(run.times.size(), delay_ms.size());
  const double last = *std::max_element(run.start_seconds.begin(), run.start_seconds.end());
  for (std::size_t rank = 0; rank < delay_ms.size(); ++rank) {
    EXPECT_GE(run.start_seconds[rank], 1e-3 * delay_ms[rank]) << "rank " << rank;
    const double seconds = 1e-9 * static_cast<double>(run.times[rank].total_ns);
    EXPECT_GE(seconds, last - run.start_seconds[rank] - 1e-3) << "rank " << rank;
  }
}

TEST_P(BackwardDeterminism, StartDelays) {
  const std::vector<std::uint64_t> expected = hashes();
  problem_.threads = 2;
  options_.drive = Drive::kThreads;
  Random random(3);
  for (const bool asynchronous : {false, true}) {
    for (const bool host : {false, true}) {
      options_.asynchronous = asynchronous;
      options_.host_parallel_for = host;
      options_.start_delay_ms.clear();
      for (int rank = 0; rank < problem_.ranks; ++rank) {
        options_.start_delay_ms.push_back(static_cast<int>(random.below(40)));
      }
      const RunResult run = run_ring(problem_, inputs_, options_);
      EXPECT_EQ(hashes_of(run), expected) << "asynchronous " << asynchronous << " host " << host;
      expect_delayed(run, options_.start_delay_ms);
    }
  }
}

TEST_P(BackwardDeterminism, FormsOfTheCall) {
  const std::vector<std::uint64_t> expected = hashes();
  for (const Drive drive : {Drive::kArray, Drive::kThreads}) {
    for (const bool asynchronous : {false, true}) {
      options_.drive = drive;
      options_.asynchronous = asynchronous;
      EXPECT_EQ(hashes(), expected) << "threads " << (drive == Drive::kThreads) << " asynchronous "
                                    << asynchronous;
    }
  }
}

TEST_P(BackwardDeterminism, LayoutsOfTheTensors) {
  const std::vector<std::uint64_t> expected = hashes();
  for (const Layout layout : {Layout::kBhsd, Layout::kSbhd, Layout::kSliced}) {
    problem_.layout = layout;
    inputs_ = random_inputs(problem_, 12);
    EXPECT_EQ(hashes(), expected);
  }
}

// A plan that can do backward computes the same forward.
TEST_P(BackwardDeterminism, ForwardOfAPlanWithoutGradients) {
  const RunResult with = run_ring(problem_, inputs_, options_);
  problem_.backward = false;
  const RunResult without = run_ring(problem_, inputs_, options_);
  ASSERT_TRUE(with.ok() && without.ok()) << with.error() << without.error();
  EXPECT_EQ(with.o.hash(), without.o.hash());
  EXPECT_EQ(with.lse.hash(), without.lse.hash());
}

// Copying, lending, slow and out of order: how blocks and their gradients travel must not change what is
// computed.
TEST_P(BackwardDeterminism, Transports) {
  register_fake_transports();
  problem_.transport = "local";
  const std::vector<std::uint64_t> expected = hashes();
  for (const char* transport : {"fake_copy", "fake_lend"}) {
    for (const bool disturbed : {false, true}) {
      test::FakeScript script;
      script.max_delay_us = disturbed ? 2000 : 0;
      script.reorder = disturbed;
      test::fake_script(script);
      problem_.transport = transport;
      EXPECT_EQ(hashes(), expected) << transport << " disturbed " << disturbed;
      EXPECT_GT(test::fake_counts().sent_bytes, 0u) << "nothing went through " << transport;
      EXPECT_EQ(test::fake_counts().open_loans, 0u);
    }
  }
  test::fake_script({});
}

INSTANTIATE_TEST_SUITE_P(
    Problems, BackwardDeterminism,
    ::testing::Values(
        "n=700 heads=4 kv_heads=2 dim=64 mask=causal partition=zigzag ranks=4",
        "n=613 heads=3 dim=72 dtype=bf16 dtype_out=f32 mask=causal,window:200 partition=striped:8 ranks=3",
        "n=640 heads=2 dim=64 dtype=f16 docs=300,17,250 mask=causal partition=zigzag scope=document ranks=5",
        "q=64 k=1500 heads=8 kv_heads=1 dim=96 dtype=bf16 mask=causal partition=contiguous ranks=4"));

}  // namespace
}  // namespace ringattn::support
