// The same bits whatever the number of threads, the timing, the form of the call and the transport (D12).
#include <gtest/gtest.h>

#include <string>

#include "tests/e2e/closed_forms.h"
#include "tests/e2e/fake_transports.h"

namespace ringattn::support {
namespace {

struct Hashes {
  std::uint64_t o, lse;
  bool operator==(const Hashes&) const = default;
};

Hashes hashes_of(const RunResult& run) {
  EXPECT_TRUE(run.ok()) << run.error();
  return {run.o.hash(), run.lse.hash()};
}

class Determinism : public ::testing::TestWithParam<const char*> {
 protected:
  ProblemLine problem_ = parsed(GetParam());
  Inputs inputs_ = random_inputs(problem_, 12);
};

TEST_P(Determinism, ThreadsOfTheHost) {
  problem_.threads = 1;
  const Hashes expected = hashes_of(run_ring(problem_, inputs_));
  for (int threads = 1; threads <= 4; ++threads) {
    problem_.threads = threads;
    RunOptions options;
    options.host_parallel_for = true;
    options.repeat = 3;
    const RunResult run = run_ring(problem_, inputs_, options);
    EXPECT_EQ(hashes_of(run), expected) << threads << " threads";
    // HostPool gives every thread its share of the bodies, so a loop that asks for all workers meets all threads.
    // One worker needs no loop.
    if (threads > 1) {
      EXPECT_EQ(run.distinct_threads, threads);
    }
  }
}

TEST_P(Determinism, ThreadsOfTheLibrary) {
  if (!kLibraryThreads) GTEST_SKIP() << "ThreadSanitizer does not know oneTBB's synchronisation";
  problem_.threads = 1;
  const Hashes expected = hashes_of(run_ring(problem_, inputs_));
  for (const int threads : {2, 3, 4}) {
    problem_.threads = threads;
    EXPECT_EQ(hashes_of(run_ring(problem_, inputs_)), expected) << threads << " threads";
  }
}

TEST_P(Determinism, FormsOfTheCallAndStartDelays) {
  problem_.threads = 2;
  const Hashes expected = hashes_of(run_ring(problem_, inputs_));
  Random random(3);
  for (const Drive drive : {Drive::kArray, Drive::kThreads}) {
    for (const bool asynchronous : {false, true}) {
      for (const bool host : {false, true}) {
        RunOptions options;
        options.drive = drive;
        options.asynchronous = asynchronous;
        options.host_parallel_for = host;
        for (int rank = 0; rank < problem_.ranks; ++rank) {
          options.start_delay_ms.push_back(static_cast<int>(random.below(30)));
        }
        EXPECT_EQ(hashes_of(run_ring(problem_, inputs_, options)), expected)
            << "threads " << (drive == Drive::kThreads) << " asynchronous " << asynchronous << " host "
            << host;
      }
    }
  }
}

TEST_P(Determinism, LayoutsOfTheTensors) {
  const Hashes expected = hashes_of(run_ring(problem_, inputs_));
  for (const Layout layout : {Layout::kBhsd, Layout::kSbhd, Layout::kSliced}) {
    problem_.layout = layout;
    EXPECT_EQ(hashes_of(run_ring(problem_, random_inputs(problem_, 12))), expected);
  }
}

// Copying, lending, slow and out of order: how a block travels must not change what is computed from it.
TEST_P(Determinism, Transports) {
  register_fake_transports();
  problem_.transport = "local";
  const Hashes expected = hashes_of(run_ring(problem_, inputs_));
  for (const char* transport : {"fake_copy", "fake_lend"}) {
    for (const bool disturbed : {false, true}) {
      test::FakeScript script;
      script.max_delay_us = disturbed ? 2000 : 0;
      script.reorder = disturbed;
      test::fake_script(script);
      problem_.transport = transport;
      EXPECT_EQ(hashes_of(run_ring(problem_, inputs_)), expected) << transport << " disturbed " << disturbed;
      EXPECT_GT(test::fake_counts().sent_bytes, 0u) << "nothing went through " << transport;
      EXPECT_EQ(test::fake_counts().open_loans, 0u);
    }
  }
  test::fake_script({});
}

INSTANTIATE_TEST_SUITE_P(
    Problems, Determinism,
    ::testing::Values(
        "n=700 heads=4 kv_heads=2 dim=64 mask=causal partition=zigzag ranks=4",
        "n=613 heads=3 dim=72 dtype=bf16 dtype_out=f32 mask=causal,window:200 partition=striped:8 ranks=3",
        "n=640 heads=2 dim=64 dtype=f16 docs=300,17,250 mask=causal partition=zigzag scope=document ranks=5",
        "q=64 k=2000 heads=8 kv_heads=1 dim=128 dtype=bf16 mask=causal partition=contiguous ranks=4"));

}  // namespace
}  // namespace ringattn::support
