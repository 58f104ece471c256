// Keys and values that are not finite reach the rows that see them and no others (D22).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/e2e/closed_forms.h"
#include "tests/support/oracle.h"

namespace ringattn::support {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Spoiled {
  std::int64_t key;
  double value;
  bool in_v;  // else in k
};

std::uint32_t bits(double value) { return bits_of(static_cast<float>(value)); }

// Rows that see a spoiled key are non-finite at least where the oracle is; all others are bitwise what they are with that
// key zeroed.
void expect_contained(const std::string& line, const std::vector<Spoiled>& spoiled) {
  SCOPED_TRACE(line);
  const ProblemLine problem = parsed(line);
  Inputs zeroed = random_inputs(problem, 22), inputs = zeroed;
  for (const Spoiled& one : spoiled) {
    for (std::int64_t h = 0; h < problem.effective_kv_heads(); ++h) {
      for (std::int64_t d = 0; d < problem.dim; ++d) zeroed.k.set(0, one.key, h, d, 0);
      for (std::int64_t d = 0; d < problem.effective_dim_v(); ++d) zeroed.v.set(0, one.key, h, d, 0);
    }
  }
  inputs = zeroed;
  for (const Spoiled& one : spoiled) (one.in_v ? inputs.v : inputs.k).set(0, one.key, 0, 3, one.value);
  const RunResult clean = run_ring(problem, zeroed), run = run_ring(problem, inputs);
  ASSERT_TRUE(clean.ok()) << clean.error();
  ASSERT_TRUE(run.ok()) << run.error();
  const OracleResult oracle = oracle_attention(problem, inputs.q, inputs.k, inputs.v);
  const std::vector<TokenPlace> queries = query_places(problem, 0), keys = key_places(problem, 0);
  const std::int64_t group = problem.heads / problem.effective_kv_heads();
  int untouched = 0, reached = 0;
  for (std::int64_t i = 0; i < problem.queries; ++i) {
    for (std::int64_t h = 0; h < problem.heads; ++h) {
      bool sees = false;  // only kv head 0 is spoiled
      for (const Spoiled& one : spoiled) {
        sees |= h < group && visible(problem, queries[static_cast<std::size_t>(i)],
                                     keys[static_cast<std::size_t>(one.key)]);
      }
      ++(sees ? reached : untouched);
      const std::size_t row = oracle.row(0, i, h);
      if (sees) {
        EXPECT_FALSE(!std::isfinite(oracle.lse[row]) && std::isfinite(run.lse.get(0, h, i, 0)))
            << "lse of row " << i;
      } else {
        EXPECT_EQ(bits(run.lse.get(0, h, i, 0)), bits(clean.lse.get(0, h, i, 0)))
            << "lse of row " << i << " head " << h;
      }
      for (std::int64_t d = 0; d < problem.effective_dim_v(); ++d) {
        const double o = run.o.get(0, i, h, d), expected = oracle.o[oracle.element(0, i, h, d)];
        if (sees) {
          EXPECT_FALSE(!std::isfinite(expected) && std::isfinite(o))
              << "row " << i << " head " << h << " channel " << d;
        } else {
          EXPECT_EQ(bits(o), bits(clean.o.get(0, i, h, d)))
              << "row " << i << " head " << h << " channel " << d;
        }
      }
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(untouched, 0);
  EXPECT_GT(reached, 0);
}

TEST(NonFinite, ReachesOnlyTheRowsThatSeeIt) {
  for (const double value : {std::nan(""), kInf, -kInf}) {
    for (const bool in_v : {false, true}) {
      for (const char* more :
           {"partition=contiguous ranks=1", "partition=zigzag ranks=3", "partition=striped ranks=4",
            "partition=striped:16 ranks=2 dtype=bf16", "partition=zigzag ranks=2 dtype=f16"}) {
        expect_contained(std::string("n=150 heads=4 kv_heads=2 dim=40 mask=causal ") + more,
                         {{70, value, in_v}, {133, value, in_v}});
      }
    }
  }
}

TEST(NonFinite, StaysInsideItsDocumentAndWindow) {
  for (const double value : {std::nan(""), kInf, -kInf}) {
    for (const bool in_v : {false, true}) {
      expect_contained("n=120 heads=2 dim=32 docs=30,50,20 partition=zigzag ranks=3", {{40, value, in_v}});
      expect_contained(
          "n=120 heads=2 dim=32 docs=30,50,20 mask=causal scope=document partition=striped ranks=4",
          {{40, value, in_v}});
      expect_contained("n=120 heads=2 dim=32 mask=window:5:3 ranks=4", {{0, value, in_v}, {77, value, in_v}});
    }
  }
}

// A masked key may hold anything at all: with the whole other half of the keys spoiled, the first half stays bitwise.
TEST(NonFinite, AHalfFullOfNaNDoesNotLeak) {
  std::vector<Spoiled> spoiled;
  for (std::int64_t key = 64; key < 128; ++key) spoiled.push_back({key, std::nan(""), key % 2 == 0});
  for (const std::string& partition : three_partitions()) {
    expect_contained("n=128 heads=2 dim=64 mask=causal ranks=4 partition=" + partition, spoiled);
  }
}

}  // namespace
}  // namespace ringattn::support
