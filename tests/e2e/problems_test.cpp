// Every line of tests/problems/ci.txt, run on random data and held against the fp64 oracle.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "comm/plugins.h"
#include "tests/support/verify.h"

namespace ringattn::support {
namespace {

const std::vector<NumberedLine>& ci_lines() {
  static const std::vector<NumberedLine> lines = [] {
    std::ifstream file(RINGATTN_SOURCE_DIR "/tests/problems/ci.txt");
    std::stringstream text;
    text << file.rdbuf();
    return problem_lines(text.str());
  }();
  return lines;
}

// How the ranks are driven changes from line to line, so that every way meets every kind of problem.
RunOptions options_for(int line_number) {
  RunOptions options;
  options.drive = line_number % 3 == 0 ? Drive::kThreads : Drive::kArray;
  options.host_parallel_for = line_number % 4 == 1;
  options.asynchronous = line_number % 5 == 2;
  options.repeat = line_number % 7 == 3 ? 2 : 1;
  options.with_d_lse = line_number % 2 == 0;
  return options;
}

class Problems : public ::testing::TestWithParam<int> {};

constexpr int kChunks = 40;

TEST_P(Problems, AreWithinTheirLimits) {
  const std::vector<NumberedLine>& lines = ci_lines();
  for (std::size_t i = static_cast<std::size_t>(GetParam()); i < lines.size(); i += kChunks) {
    ProblemLine problem;
    const std::optional<std::string> error = parse_problem(lines[i].text, problem);
    ASSERT_FALSE(error.has_value()) << "ci.txt:" << lines[i].number << ": " << *error;
    const VerifyResult result = verify(problem, 1, options_for(lines[i].number));
    EXPECT_TRUE(result.ok) << "ci.txt:" << lines[i].number << ": " << to_text(result);
  }
}

// Every 19th of them, from `first` on, over a transport that copies.
void check_over(const char* transport, std::size_t first) {
  const std::vector<NumberedLine>& lines = ci_lines();
  std::size_t backward = 0, forward = 0;
  for (std::size_t i = first; i < lines.size(); i += 19) {
    ProblemLine problem;
    ASSERT_FALSE(parse_problem(lines[i].text, problem).has_value()) << "ci.txt:" << lines[i].number;
    problem.transport = transport;
    const VerifyResult result = verify(problem, 1, options_for(lines[i].number));
    EXPECT_TRUE(result.ok) << "ci.txt:" << lines[i].number << ": " << to_text(result);
    (problem.backward ? backward : forward) += 1;
  }
  EXPECT_GE(forward, 10u);
  EXPECT_GE(backward, 10u);
}

TEST(ProblemsOverTcp, AreWithinTheirLimits) { check_over("tcp", 0); }

TEST(ProblemsOverUcx, AreWithinTheirLimits) {
  const char* why = nullptr;
  if (comm::ucx_table()->score(&why) == 0) GTEST_SKIP() << "ucx: " << why;
  check_over("ucx", 7);
}

INSTANTIATE_TEST_SUITE_P(Ci, Problems, ::testing::Range(0, kChunks));

TEST(ProblemsFile, HasManyDifferentProblemsOfEveryKind) {
  std::set<std::string> different;
  std::map<int, int> ranks;
  std::set<std::int32_t> partitions, scopes, dtypes;
  std::size_t backward = 0;
  for (const NumberedLine& line : ci_lines()) {
    ProblemLine problem;
    const std::optional<std::string> error = parse_problem(line.text, problem);
    ASSERT_FALSE(error.has_value()) << "ci.txt:" << line.number << ": " << *error;
    different.insert(to_line(problem));
    ++ranks[problem.ranks];
    partitions.insert(problem.partition);
    scopes.insert(problem.scope);
    dtypes.insert(problem.dtype);
    backward += problem.backward ? 1 : 0;
  }
  EXPECT_GE(different.size() - backward, 320u);
  EXPECT_GE(backward, 300u);
  for (const int count : {1, 2, 3, 4, 5, 7, 8, 16}) EXPECT_GE(ranks[count], 9) << "ranks=" << count;
  EXPECT_EQ(partitions.size(), 4u);
  EXPECT_EQ(scopes.size(), 3u);
  EXPECT_EQ(dtypes.size(), 3u);
}

}  // namespace
}  // namespace ringattn::support
