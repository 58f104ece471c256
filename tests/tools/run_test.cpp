// `ringattn run`: processes, their output, signals and ends, as a user sees them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <sstream>
#include <thread>

#include "run_support.h"
#include "tool_process.h"

namespace ringattn::tools_test {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> run_words(int ranks, const std::string& script, std::vector<std::string> more = {}) {
  std::vector<std::string> words = {"run", "-n", std::to_string(ranks)};
  words.insert(words.end(), more.begin(), more.end());
  for (const char* word : {"--", "/bin/sh", "-c"}) words.emplace_back(word);
  words.push_back(script);
  return words;
}

// How many of these files are there?
bool all_there(const TemporaryFolder& folder, std::size_t count) { return folder.names().size() >= count; }

TEST(Run, EveryRankSeesItsPlace) {
  const ToolResult result =
      run_tool(run_words(3, "echo $RINGATTN_RANK/$RINGATTN_WORLD_SIZE/$RINGATTN_LOCAL_RANK"));
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(sorted_lines(result.out), (Lines{"[0] 0/3/0", "[1] 1/3/1", "[2] 2/3/2"}));
  EXPECT_EQ(result.err, "");
}

TEST(Run, RanksShareAPlaceAndASecretOfTheirOwn) {
  const std::string script = "echo $RINGATTN_RENDEZVOUS $RINGATTN_SECRET";
  const auto told = [&] {
    const Lines lines = sorted_lines(run_tool(run_words(2, script)).out);
    EXPECT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines.front().substr(4), lines.back().substr(4));
    return lines.front().substr(4);
  };
  const std::string one = told(), other = told();
  EXPECT_NE(one, other);
  EXPECT_EQ(one.find("127.0.0.1:"), 0u) << one;
  const std::string secret = one.substr(one.find(' ') + 1);
  EXPECT_EQ(secret.size(), 32u);
  EXPECT_EQ(secret.find_first_not_of("0123456789abcdef"), std::string::npos) << secret;
  EXPECT_EQ(run_tool(run_words(1, "echo $RINGATTN_RENDEZVOUS", {"--rendezvous", "[::1]:4000"})).out,
            "[0] [::1]:4000\n");
}

TEST(Run, WhatWasSetForAnotherRingIsReplaced) {
  const TemporaryFolder folder;
  const ToolResult result =
      run_shell("RINGATTN_RANK=7 RINGATTN_SECRET=old OTHER=kept % run -n 1 -- env", folder.path());
  const Lines lines = sorted_lines(result.out);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "[0] RINGATTN_RANK=0"), 1);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "[0] OTHER=kept"), 1);
  EXPECT_EQ(result.out.find("RINGATTN_RANK=7"), std::string::npos);
  EXPECT_EQ(result.out.find("RINGATTN_SECRET=old"), std::string::npos);
}

TEST(Run, LinesCarryTheirRankOnBothStreams) {
  const ToolResult result = run_tool(run_words(2, "printf 'a\\n\\nb'; printf 'c\\nd' >&2"));
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(sorted_lines(result.out), (Lines{"[0] ", "[0] a", "[0] b", "[1] ", "[1] a", "[1] b"}));
  EXPECT_EQ(sorted_lines(result.err), (Lines{"[0] c", "[0] d", "[1] c", "[1] d"}));
  EXPECT_EQ(run_tool(run_words(1, "printf 'a\\nb'", {"--no-prefix"})).out, "a\nb");
}

TEST(Run, MuchOutputArrivesWhole) {
  const ToolResult result = run_tool(run_words(2, "seq 1 60000"));
  EXPECT_EQ(result.exit_status, 0);
  int next[2] = {1, 1};
  std::istringstream stream(result.out);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t rank = line.substr(0, 4) == "[1] " ? 1 : 0;
    ASSERT_EQ(line, "[" + std::to_string(rank) + "] " + std::to_string(next[rank]));
    ++next[rank];
  }
  EXPECT_EQ(next[0], 60001);
  EXPECT_EQ(next[1], 60001);
}

TEST(Run, AReaderThatStandsStillLosesNothing) {
  const TemporaryFolder folder;
  const ToolResult result = run_shell("% run -n 2 -- seq 1 300000 | (sleep 3; wc -l)", folder.path());
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(std::stol(result.out), 600000);
}

TEST(Run, OnlyRankZeroReadsWhatTheLauncherWasGiven) {
  const TemporaryFolder folder;
  const ToolResult result = run_shell("echo hello | % run -n 2 -- wc -c", folder.path());
  EXPECT_EQ(sorted_lines(result.out), (Lines{"[0] 6", "[1] 0"}));
}

TEST(Run, AFailedRankEndsTheOthers) {
  const TemporaryFolder folder;
  const std::string script =
      "echo $$ > pid$RINGATTN_RANK.new; mv pid$RINGATTN_RANK.new pid$RINGATTN_RANK; "
      "if [ $RINGATTN_RANK = 2 ]; then while ! [ -f pid0 -a -f pid1 -a -f pid3 ]; do sleep 0.02; done; exit "
      "7; fi; "
      "sleep 60";
  const auto start = Clock::now();
  const ToolResult result = run_tool(run_words(4, script), folder.path());
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(result.exit_status, 7);
  EXPECT_EQ(result.err, "ringattn: rank 2 exited with status 7; ending the others\n");
  for (const char* file : {"pid0", "pid1", "pid2", "pid3"}) EXPECT_TRUE(is_gone(folder.file(file))) << file;
}

TEST(Run, ASignalIsTheStatusPlus128) {
  const ToolResult result = run_tool(run_words(1, "kill -KILL $$"));
  EXPECT_EQ(result.exit_status, 137);
  EXPECT_EQ(result.err, "ringattn: rank 0 was killed by signal 9 (Killed)\n");
}

TEST(Run, ARankThatIgnoresTheEndIsKilledAfterFiveSeconds) {
  const TemporaryFolder folder;
  const std::string script =
      "if [ $RINGATTN_RANK = 1 ]; then while ! [ -f pid ]; do sleep 0.02; done; exit 3; fi; "
      "trap '' TERM; echo $$ > new; mv new pid; sleep 60";
  const auto start = Clock::now();
  const ToolResult result = run_tool(run_words(2, script), folder.path());
  const auto took = Clock::now() - start;
  EXPECT_GE(took, std::chrono::seconds(5));
  EXPECT_LT(took, std::chrono::seconds(30));
  EXPECT_EQ(result.exit_status, 3);
  EXPECT_TRUE(is_gone(folder.file("pid")));
}

TEST(Run, SignalsReachEveryRankOnce) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const TemporaryFolder folder;
    // Whoever got it twice says so twice: the first ends the wait, the second one would come during the sleep.
    const std::string script =
        "got=0; trap 'got=$((got+1))' INT TERM HUP; touch ready$RINGATTN_RANK; "
        "while [ $got = 0 ]; do sleep 0.05; done; sleep 0.3; echo got $got";
    const Interrupted done =
        interrupt_tool({RINGATTN_TOOL_PATH, "run", "-n", "2", "--", "/bin/sh", "-c", script}, folder.path(),
                       number, [&] { return all_there(folder, 2); });
    ASSERT_TRUE(done.was_ready);
    EXPECT_EQ(done.result.exit_status, 0) << number;
    EXPECT_EQ(sorted_lines(done.result.out), (Lines{"[0] got 1", "[1] got 1"})) << number;
  }
}

TEST(Run, ASignalThatNobodyHandlesIsTheStatus) {
  const TemporaryFolder folder;
  const Interrupted done = interrupt_tool({RINGATTN_TOOL_PATH, "run", "-n", "2", "--", "/bin/sh", "-c",
                                           "touch ready$RINGATTN_RANK; exec sleep 60"},
                                          folder.path(), SIGTERM, [&] { return all_there(folder, 2); });
  ASSERT_TRUE(done.was_ready);
  EXPECT_EQ(done.result.exit_status, 143);
  EXPECT_NE(done.result.err.find(" was killed by signal 15 (Terminated)"), std::string::npos)
      << done.result.err;
}

TEST(Run, RanksDieWithTheLauncher) {
  const TemporaryFolder folder;
  const std::string script =
      "echo $$ > new$RINGATTN_RANK; mv new$RINGATTN_RANK pid$RINGATTN_RANK; exec sleep 60";
  const auto ready = [&] { return folder.names() == Lines{"pid0", "pid1"}; };
  const Interrupted done = interrupt_tool(
      {RINGATTN_TOOL_PATH, "run", "-n", "2", "--", "/bin/sh", "-c", script}, folder.path(), SIGKILL, ready);
  ASSERT_TRUE(done.was_ready);
  EXPECT_EQ(done.result.signal, SIGKILL);
  EXPECT_TRUE(is_gone(folder.file("pid0")));
  EXPECT_TRUE(is_gone(folder.file("pid1")));
}

TEST(Run, WhatARankLeavesBehindEndsWithIt) {
  const TemporaryFolder folder;
  const auto start = Clock::now();
  const ToolResult result = run_tool(run_words(1, "sleep 60 & echo $! > pid; echo done"), folder.path());
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(result.out, "[0] done\n");
  EXPECT_TRUE(is_gone(folder.file("pid")));
}

// What a child of the rank lists as its own is settled. It may have what this test has inherited itself: so has the only rank
// of another launch, and later ranks must not have more.
TEST(Run, RanksInheritNoDescriptorsOfTheLauncher) {
  const TemporaryFolder folder;
  const std::string script =
      "ls -l /proc/self/fd > fds$RINGATTN_RANK; grep -c -E 'signalfd|pipe|eventfd' fds$RINGATTN_RANK";
  const ToolResult first = run_tool(run_words(1, script), folder.path());
  const ToolResult result = run_tool(run_words(5, script), folder.path());
  const Lines lines = sorted_lines(result.out);
  ASSERT_EQ(lines.size(), 5u) << result.err;
  for (const std::string& line : lines) EXPECT_EQ(line.substr(4) + "\n", first.out.substr(4)) << result.out;
}

TEST(Run, Refusals) {
  expect_refused({"run", "-n", "2"}, "no program: expected ringattn run -n N -- program args...");
  expect_refused({"run", "-n", "2", "--"}, "no program: expected ringattn run -n N -- program args...");
  expect_refused({"run", "-n", "2", "--", "no-such-program", "x"},
                 "program \"no-such-program\": not found in PATH");
  expect_refused({"run", "-n", "2", "--", "/no/such"},
                 "program \"/no/such\": cannot be run: No such file or directory");
  for (const char* ranks : {"0", "-1", "4097"})
    expect_refused({"run", "-n", ranks, "--", "true"},
                   std::string("-n ") + ranks + ": expected 1 to 4096 ranks");
  expect_refused({"run", "-n", "2", "--rendezvous", "host", "--", "true"},
                 "--rendezvous \"host\": expected host:port or [v6]:port");
  EXPECT_EQ(run_tool({"run", "--", "true"}).exit_status, 2);
}

TEST(Run, AFullDiskEndsTheRanks) {
  const TemporaryFolder folder;
  const ToolResult result =
      run_shell("% run -n 1 -- /bin/sh -c 'echo $$ > pid; echo x; exec sleep 60' > /dev/full", folder.path());
  EXPECT_EQ(result.exit_status, 3);
  EXPECT_EQ(result.err, "ringattn: cannot write to standard output: No space left on device\n");
  EXPECT_TRUE(is_gone(folder.file("pid")));
}

TEST(Run, ArgumentsAreThePrograms) {
  EXPECT_EQ(run_tool({"run", "-n", "1", "--", "echo", "-n", "3", "--no-prefix", "--", "info"}).out,
            "[0] 3 --no-prefix -- info\n");
}

}  // namespace
}  // namespace ringattn::tools_test
