// A value of q, k, v or dO that is not finite reaches the gradients of what the mask connects with it and no
// others (D22).
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/e2e/closed_forms.h"
#include "tests/support/oracle.h"
#include "tests/support/oracle_backward.h"
#include "tests/support/visibility.h"

namespace ringattn::support {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr std::int64_t kChannel = 3;

// One element of head 0 (of kv head 0 in k and v).
struct Spoiled {
  HostTensor Inputs::*tensor;
  std::int64_t token;
  double value;

  bool of_query() const { return tensor == &Inputs::q || tensor == &Inputs::d_o; }
};

// Rows and keys that the element can reach: a query's reaches the keys it sees; a key's the rows that see it,
// and through their softmax all keys of these rows. Only in query head 0, or in the heads that share kv head
// 0.
struct Connected {
  Connected(const ProblemLine& problem, const Spoiled& spoiled)
      : rows(static_cast<std::size_t>(problem.queries)), keys(static_cast<std::size_t>(problem.keys)) {
    const Visibility visibility(problem);
    std::vector<std::int64_t> seen;
    for (std::int64_t row = 0; row < problem.queries; ++row) {
      visibility.keys_of(0, row, seen);
      const bool reached = spoiled.of_query()
                               ? row == spoiled.token
                               : std::find(seen.begin(), seen.end(), spoiled.token) != seen.end();
      if (!reached) continue;
      rows[static_cast<std::size_t>(row)] = true;
      for (const std::int64_t key : seen) keys[static_cast<std::size_t>(key)] = true;
    }
    heads = spoiled.of_query() ? 1 : problem.heads / problem.effective_kv_heads();
  }
  std::vector<bool> rows, keys;
  std::int64_t heads;  // query heads below it are connected
};

std::uint32_t bits(double value) { return bits_of(static_cast<float>(value)); }

void set_row(HostTensor& tensor, std::int64_t token, double value) {
  for (std::int64_t h = 0; h < tensor.shape(2); ++h) {
    for (std::int64_t d = 0; d < tensor.shape(3); ++d) tensor.set(0, token, h, d, value);
  }
}

// Elements of connected tokens are non-finite at least where the oracle's are, all others bitwise those of
// the clean run.
class Comparison {
 public:
  void add(const char* name, const HostTensor& run, const HostTensor& clean, const OracleGradient& oracle,
           const std::vector<bool>& tokens, std::int64_t heads) {
    for (std::int64_t s = 0; s < run.shape(1); ++s) {
      for (std::int64_t h = 0; h < run.shape(2); ++h) {
        const bool connected = tokens[static_cast<std::size_t>(s)] && h < heads;
        ++(connected ? reached : untouched);
        for (std::int64_t d = 0; d < run.shape(3); ++d) {
          const double value = run.get(0, s, h, d);
          const double exact = oracle.value[oracle.element(0, s, h, d)];
          const bool good = connected ? std::isfinite(exact) || !std::isfinite(value)
                                      : bits(value) == bits(clean.get(0, s, h, d));
          ASSERT_TRUE(good) << name << "[0, " << s << ", " << h << ", " << d << "] is " << value
                            << (connected ? ", fp64 " : ", with it zeroed ")
                            << (connected ? exact : clean.get(0, s, h, d));
        }
      }
    }
  }
  int untouched = 0, reached = 0;
};

void expect_contained(const std::string& line, const Spoiled& spoiled) {
  const char* tensor = spoiled.tensor == &Inputs::q   ? "q"
                       : spoiled.tensor == &Inputs::k ? "k"
                       : spoiled.tensor == &Inputs::v ? "v"
                                                      : "dO";
  SCOPED_TRACE(line + ": " + std::to_string(spoiled.value) + " in " + tensor + " of token " +
               std::to_string(spoiled.token));
  const ProblemLine problem = parsed(line + " pass=backward");
  Inputs zeroed = random_inputs(problem, 22);
  set_row(zeroed.*spoiled.tensor, spoiled.token, 0);
  Inputs inputs = zeroed;
  (inputs.*spoiled.tensor).set(0, spoiled.token, 0, kChannel, spoiled.value);
  RunOptions options;
  options.with_d_lse = true;
  const RunResult clean = run_ring(problem, zeroed, options), run = run_ring(problem, inputs, options);
  ASSERT_TRUE(clean.ok()) << clean.error();
  ASSERT_TRUE(run.ok()) << run.error();
  const OracleGradients oracle =
      oracle_backward(problem, inputs.q, inputs.k, inputs.v, inputs.d_o, &inputs.d_lse);
  const Connected connected(problem, spoiled);
  Comparison comparison;
  comparison.add("d_q", run.d_q, clean.d_q, oracle.d_q, connected.rows, connected.heads);
  comparison.add("d_k", run.d_k, clean.d_k, oracle.d_k, connected.keys, 1);
  comparison.add("d_v", run.d_v, clean.d_v, oracle.d_v, connected.keys, 1);
  EXPECT_GT(comparison.untouched, 0);
  EXPECT_GT(comparison.reached, 0);
}

void expect_contained_everywhere(const std::string& line, std::int64_t token) {
  for (const auto tensor : {&Inputs::q, &Inputs::k, &Inputs::v, &Inputs::d_o}) {
    for (const double value : {std::nan(""), kInf, -kInf}) {
      expect_contained(line, {tensor, token, value});
      if (::testing::Test::HasFailure()) return;  // one problem of a kind tells enough
    }
  }
}

TEST(BackwardNonFinite, ReachesOnlyWhatTheMaskConnects) {
  for (const char* more :
       {"partition=contiguous ranks=1", "partition=zigzag ranks=3", "partition=striped ranks=4",
        "partition=striped:16 ranks=2 dtype=bf16", "partition=zigzag ranks=2 dtype=f16"}) {
    expect_contained_everywhere(std::string("n=150 heads=4 kv_heads=2 dim=40 mask=causal,window:25 ") + more,
                                70);
  }
}

TEST(BackwardNonFinite, ReachesOnlyItsHeadsUnderAFullCausalMask) {
  for (const char* more : {"ranks=1", "partition=zigzag ranks=4 dtype=bf16"}) {
    expect_contained_everywhere(std::string("n=130 heads=4 kv_heads=2 dim=32 mask=causal ") + more, 64);
  }
}

TEST(BackwardNonFinite, StaysInsideItsDocument) {
  expect_contained_everywhere("n=120 heads=2 dim=32 docs=30,50,20 partition=zigzag ranks=3", 40);
  expect_contained_everywhere(
      "n=120 heads=2 dim=32 docs=30,50,20 mask=causal scope=document partition=striped ranks=4 dtype=f16",
      40);
}

TEST(BackwardNonFinite, StaysInsideItsWindow) {
  expect_contained_everywhere("n=120 heads=2 kv_heads=1 dim=32 mask=window:5:3 ranks=4", 77);
  expect_contained_everywhere("n=120 heads=2 dim=32 mask=window:5:3 ranks=1 dtype=bf16 dtype_out=f32", 0);
}

}  // namespace
}  // namespace ringattn::support
