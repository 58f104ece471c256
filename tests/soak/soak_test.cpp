// Random problems, forward and backward, over random transports, timings and ways to call, against the fp64
// oracle. RINGATTN_SOAK tells how many (40), RINGATTN_SOAK_SEED the seed of the first (1).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "tests/e2e/fake_transports.h"
#include "tests/support/spawn.h"
#include "tests/support/verify.h"

namespace ringattn::support {
namespace {

using Lengths = std::vector<std::int64_t>;

struct SoakCase {
  ProblemLine problem;
  RunOptions options;
  test::FakeScript script;
};

// Only legal problems: what the header refuses is never drawn, so that every refusal is a failure.
class SoakGenerator {
 public:
  explicit SoakGenerator(std::uint64_t seed) : random_(seed), seed_(seed) {}

  SoakCase next() {
    SoakCase soak;
    draw_sizes(soak.problem);
    draw_mask(soak.problem);
    draw_types(soak.problem);
    draw_cut(soak.problem);
    draw_lengths(soak.problem);
    draw_query_cut(soak.problem);
    shrink(soak.problem);
    draw_run(soak);
    soak.problem.backward = true;
    soak.problem.seed = seed_;
    return soak;
  }

 private:
  bool one_in(std::int64_t n) { return random_.below(n) == 0; }
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least + random_.below(most - least + 1);
  }

  void draw_sizes(ProblemLine& p) {
    p.keys = one_in(30) ? between(0, 3) : between(1, 120);
    p.queries = one_in(3) ? between(0, 120) : p.keys;
    p.batch = one_in(3) ? between(2, 3) : one_in(60) ? 0 : 1;
    p.kv_heads = between(1, 3);
    p.heads = p.kv_heads * between(1, 4);
    p.dim = between(1, 48);
    p.dim_v = one_in(2) ? between(1, 48) : 0;
    p.ranks = static_cast<std::int32_t>(between(1, 8));
    p.threads = static_cast<std::int32_t>(between(1, 3));
  }

  void draw_mask(ProblemLine& p) {
    const std::int64_t most = std::max<std::int64_t>(1, one_in(2) ? p.keys : 9);
    const auto bound = [&](std::uint32_t flag, std::int64_t& size) {
      p.mask |= flag;
      size = random_.below(most + 1);
    };
    if (one_in(2)) p.mask |= RINGATTN_MASK_CAUSAL;
    if (one_in(3)) bound(RINGATTN_MASK_WINDOW_LEFT, p.window_left);
    // CAUSAL has a right side already: with it, 0 alone is legal.
    if ((p.mask & RINGATTN_MASK_CAUSAL) == 0 && one_in(3)) bound(RINGATTN_MASK_WINDOW_RIGHT, p.window_right);
    if ((p.mask & RINGATTN_MASK_CAUSAL) != 0 && one_in(20)) p.mask |= RINGATTN_MASK_WINDOW_RIGHT;
  }

  void draw_types(ProblemLine& p) {
    constexpr ringattn_dtype kDtypes[] = {RINGATTN_DTYPE_F32, RINGATTN_DTYPE_F16, RINGATTN_DTYPE_BF16};
    p.dtype = kDtypes[random_.below(3)];
    p.dtype_out = one_in(2) ? RINGATTN_DTYPE_F32 : 0;
    p.dtype_grad = one_in(2) ? RINGATTN_DTYPE_F32 : 0;
    p.accuracy = one_in(4) ? RINGATTN_ACCURACY_EXACT : RINGATTN_ACCURACY_DEFAULT;
    constexpr double kScales[] = {0.05, 0.5, 1};
    if (one_in(5)) p.scale = kScales[random_.below(3)];
    p.layout = static_cast<Layout>(random_.below(4));
  }

  void draw_cut(ProblemLine& p) {
    p.partition = static_cast<std::int32_t>(random_.below(4));
    if (p.partition == RINGATTN_PARTITION_STRIPED && one_in(2)) p.stripe = between(1, 20);
    // EXPLICIT runs are positions of the capacity.
    if (p.partition != RINGATTN_PARTITION_EXPLICIT) p.scope = static_cast<std::int32_t>(random_.below(3));
  }

  // `count` lengths: of documents that share a row of `room`, or of rows with `room` each.
  Lengths draw_documents(std::int64_t count, std::int64_t room, bool share) {
    Lengths lengths;
    for (std::int64_t i = 0; i < count; ++i) {
      lengths.push_back(one_in(6) ? 0 : random_.below((one_in(3) ? room : room / (count + 1)) + 1));
      if (share) room -= lengths.back();
    }
    return lengths;
  }

  void draw_lengths(ProblemLine& p) {
    if (p.batch > 0 && one_in(2)) {
      const bool share = p.batch == 1;
      const std::int64_t count = share ? between(0, 6) : p.batch;
      // Without lengths of their own the keys have those of the queries.
      const bool own_keys = p.keys != p.queries || one_in(3);
      p.docs = draw_documents(count, p.queries, share);
      if (own_keys) p.docs_k = draw_documents(count, p.keys, share);
      if (one_in(3)) p.max_docs = std::max(p.batch, count) + between(1, 4);
    }
    if (one_in(4)) p.offset = one_in(4) ? between(-150, 150) : between(-3, std::max<std::int64_t>(0, p.keys));
  }

  // LIKE_KEYS places a query where a key of its position is or could be.
  static bool fits_like_keys(const ProblemLine& p) {
    const Lengths q = p.docs.value_or(Lengths{p.queries});
    const Lengths k = p.docs_k ? *p.docs_k : p.docs.value_or(Lengths{p.keys});
    const bool alone = (p.docs && p.batch > 1) || q.size() == 1;
    for (std::size_t s = 0; s < q.size(); ++s) {
      const std::int64_t offset = p.offset.value_or(k[s] - q[s]);
      const std::int64_t bound = alone ? p.keys : k[s];
      if (q[s] > 0 && (offset < 0 || offset + q[s] > bound)) return false;
    }
    return true;
  }

  void draw_query_cut(ProblemLine& p) {
    p.query_cut = static_cast<std::int32_t>(random_.below(3));
    const bool capacity = p.scope == RINGATTN_SCOPE_CAPACITY;
    if (p.query_cut == RINGATTN_QUERY_CUT_LIKE_KEYS && !capacity) p.query_cut = RINGATTN_QUERY_CUT_AUTO;
    if (capacity && !fits_like_keys(p)) p.query_cut = RINGATTN_QUERY_CUT_BY_INDEX;
  }

  // Fewer heads where the oracle would take more than some milliseconds: it is lengths that make cases
  // different.
  static void shrink(ProblemLine& p) {
    const auto work = [&p] { return p.batch * p.heads * p.queries * p.keys * (p.dim + p.effective_dim_v()); };
    while (work() > 3'000'000 && p.heads > p.kv_heads) p.heads -= p.kv_heads;
    while (work() > 3'000'000 && p.heads > 1) p.heads = p.kv_heads = p.heads - 1;
    while (work() > 3'000'000 && p.dim > 1) p.dim = p.dim_v = (p.dim + 1) / 2;
  }

  void draw_run(SoakCase& soak) {
    RunOptions& options = soak.options;
    options.drive = one_in(2) ? Drive::kThreads : Drive::kArray;
    options.host_parallel_for = one_in(2);
    options.asynchronous = one_in(2);
    options.with_d_lse = one_in(2);
    options.repeat = one_in(4) ? 2 : 1;
    options.watchdog_seconds = 0;  // the test's own names the problem
    if (options.drive == Drive::kThreads && one_in(2)) {
      for (int rank = 0; rank < soak.problem.ranks; ++rank)
        options.start_delay_ms.push_back(static_cast<int>(random_.below(4)));
    }
    constexpr const char* kTransports[] = {"local", "fake_lend", "fake_copy", "tcp"};
    soak.problem.transport = kTransports[random_.below(4)];
    soak.script.seed = random_.bits();
    soak.script.reorder = one_in(2);
    constexpr std::uint32_t kDelays[] = {0, 30, 300};
    soak.script.max_delay_us = kDelays[random_.below(3)];
  }

  Random random_;
  std::uint64_t seed_;
};

// Everything that a case differs in and that its line does not tell.
std::string text_of(const SoakCase& soak) {
  std::string text(soak.options.drive == Drive::kThreads ? "threads" : "array");
  if (soak.options.host_parallel_for) text.append(" host_parallel_for");
  if (soak.options.asynchronous) text.append(" asynchronous");
  if (soak.options.with_d_lse) text.append(" with_d_lse");
  text.append(" repeat=").append(std::to_string(soak.options.repeat));
  for (const int delay : soak.options.start_delay_ms)
    text.append(" start+").append(std::to_string(delay)).append("ms");
  text.append(" max_delay_us=").append(std::to_string(soak.script.max_delay_us));
  return text.append(soak.script.reorder ? " reorder" : "");
}

// The command line knows no fake transports, and the data do not depend on the transport.
std::string command_of(const SoakCase& soak) {
  ProblemLine problem = soak.problem;
  if (problem.transport.starts_with("fake_")) problem.transport.clear();
  return std::string("ringattn verify \"").append(to_line(problem)).append("\"");
}

class SoakCounts {
 public:
  void add(const SoakCase& soak) {
    const ProblemLine& p = soak.problem;
    ++seen_[std::string("transport ").append(p.transport)];
    ++seen_[std::string("ranks ").append(std::to_string(p.ranks))];
    ++seen_[std::string("partition ").append(std::to_string(p.partition))];
    ++seen_[std::string("scope ").append(std::to_string(p.scope))];
    ++seen_[std::string("query_cut ").append(std::to_string(p.query_cut))];
    ++seen_[std::string("mask ").append(std::to_string(p.mask))];
    ++seen_[std::string("docs ").append(p.docs ? "given" : "none")];
    ++seen_[std::string("offset ").append(p.offset ? "given" : "none")];
    ++seen_[std::string("drive ").append(soak.options.drive == Drive::kThreads ? "threads" : "array")];
  }
  // 4 transports, 8 rings, 4 partitions, 3 scopes, 3 cuts, 8 masks, and three times two.
  std::size_t kinds() const { return seen_.size(); }
  static constexpr std::size_t kAll = 4 + 8 + 4 + 3 + 3 + 8 + 2 + 2 + 2;

 private:
  std::map<std::string, int> seen_;
};

std::uint64_t environment_or(const char* name, std::uint64_t standard) {
  const char* const text = std::getenv(name);
  return text == nullptr ? standard : std::strtoull(text, nullptr, 10);
}

TEST(Soak, RandomProblems) {
  register_fake_transports();
  const std::uint64_t count = environment_or("RINGATTN_SOAK", 40);
  const std::uint64_t first = environment_or("RINGATTN_SOAK_SEED", 1);
  SoakCounts counts;
  int failed = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const SoakCase soak = SoakGenerator(seed).next();
    counts.add(soak);
    const std::string where = std::string("RINGATTN_SOAK=1 RINGATTN_SOAK_SEED=")
                                  .append(std::to_string(seed))
                                  .append(": ")
                                  .append(text_of(soak))
                                  .append("\n  ")
                                  .append(to_line(soak.problem))
                                  .append("\n  ")
                                  .append(command_of(soak));
    const Watchdog watchdog(where, 120);
    test::fake_script(soak.script);
    const VerifyResult result = verify(soak.problem, 0, soak.options);
    EXPECT_TRUE(result.ok) << where << "\n  " << to_text(result);
    EXPECT_EQ(test::fake_counts().open_loans, 0u) << where;
    failed += result.ok ? 0 : 1;
    if (failed >= 20) break;  // they say no more than the first ones
    if ((seed - first + 1) % 1000 == 0)
      std::fprintf(stderr, "soak: %llu of %llu\n", static_cast<unsigned long long>(seed - first + 1),
                   static_cast<unsigned long long>(count));
  }
  test::fake_script({});
  if (count >= 500 && failed == 0) {
    EXPECT_EQ(counts.kinds(), SoakCounts::kAll) << "some kind of problem is no longer drawn";
  }
}

}  // namespace
}  // namespace ringattn::support
