// `ringattn run --host-list`: ranks on other hosts, for which tests/tools/remote_shell.sh stands.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>

#include "run_support.h"
#include "tool_process.h"

namespace ringattn::tools_test {
namespace {

using Clock = std::chrono::steady_clock;

// Where the ranks run and, apart from that, where the remote shell leaves its notes.
class RemoteRun : public ::testing::Test {
 protected:
  std::vector<std::string> words(const std::string& hosts, const std::string& script,
                                 const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {
        "run", "--host-list", hosts, "--remote-shell",
        RINGATTN_SOURCE_DIR "/tests/tools/remote_shell.sh " + notes_.path().string()};
    all.insert(all.end(), more.begin(), more.end());
    for (const char* word : {"--", "/bin/sh", "-c"}) all.emplace_back(word);
    all.push_back(script);
    return all;
  }
  ToolResult run(const std::string& hosts, const std::string& script,
                 const std::vector<std::string>& more = {}) const {
    return run_tool(words(hosts, script, more), folder_.path());
  }
  template <typename Ready>
  Interrupted interrupt(const std::string& hosts, const std::string& script, int signal,
                        const Ready& ready) const {
    std::vector<std::string> all = words(hosts, script);
    all.insert(all.begin(), RINGATTN_TOOL_PATH);
    return interrupt_tool(all, folder_.path(), signal, ready);
  }
  bool all_there(const Lines& names) const { return folder_.names() == names; }
  // Everything that remote shells were started with.
  std::string notes() const {
    std::string text;
    for (const std::string& name : notes_.names()) text += read_file(notes_.file(name));
    return text;
  }
  void expect_gone(const Lines& files) const {
    for (const std::string& file : files) EXPECT_TRUE(is_gone(folder_.file(file))) << file;
  }

  const TemporaryFolder folder_, notes_;
};

// Each rank leaves the number of its process in pid<rank>, whole.
const std::string kLeavePid = "echo $$ > new$RINGATTN_RANK; mv new$RINGATTN_RANK pid$RINGATTN_RANK; ";

TEST_F(RemoteRun, EveryRankSeesItsPlace) {
  const ToolResult result = run(
      "b:2,c", "echo $HOST $RINGATTN_RANK/$RINGATTN_WORLD_SIZE/$RINGATTN_LOCAL_RANK $RINGATTN_RENDEZVOUS");
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(sorted_lines(result.out),
            (Lines{"[0] b 0/3/0 b:21117", "[1] b 1/3/1 b:21117", "[2] c 2/3/0 b:21117"}));
}

TEST_F(RemoteRun, RanksOfThisMachineNeedNoRemoteShell) {
  const ToolResult result =
      run("localhost,b,127.0.0.1", "echo ${HOST-here} $RINGATTN_RANK/$RINGATTN_LOCAL_RANK",
          {"--rendezvous", "192.0.2.1:7000"});
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(sorted_lines(result.out), (Lines{"[0] here 0/0", "[1] b 1/0", "[2] here 2/1"}));
  EXPECT_EQ(notes_.names().size(), 2u) << "one remote shell, its arguments and its environment";
}

TEST_F(RemoteRun, RanksRunInTheFolderOfTheLauncher) {
  EXPECT_EQ(run("b", "pwd -P").out, "[0] " + std::filesystem::canonical(folder_.path()).string() + "\n");
  const TemporaryFolder odd;
  const std::filesystem::path inside = odd.path() / "a 'b' $c\nd";
  std::filesystem::create_directory(inside);
  EXPECT_EQ(run_tool(words("b", "touch here"), inside).exit_status, 0);
  EXPECT_TRUE(std::filesystem::exists(inside / "here"));
}

TEST_F(RemoteRun, AFolderThatIsNotThereEndsTheRank) {
  const TemporaryFolder parent;
  const std::filesystem::path gone = parent.path() / "gone";
  std::filesystem::create_directory(gone);
  const ToolResult result = run_tool(words("bare-b", "echo ran"), gone);
  EXPECT_EQ(result.exit_status, 3);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find(gone.string()), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("ringattn: rank 0 on bare-b exited with status 3\n"), std::string::npos)
      << result.err;
}

TEST_F(RemoteRun, ArgumentsArriveAsTheyAre) {
  const std::string odd = "it's \"$HOME\"\n\\n `x` ! * \t~ ;";
  std::vector<std::string> all = words("b", "printf '<%s>' \"$@\"", {"--no-prefix"});
  for (const std::string& word : {std::string("sh"), odd, std::string(), std::string("--no-prefix")})
    all.push_back(word);
  EXPECT_EQ(run_tool(all, folder_.path()).out, "<" + odd + "><><--no-prefix>");
}

TEST_F(RemoteRun, NoCommandLineHoldsTheSecret) {
  const ToolResult result =
      run("b,c",
          "all=$(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '); case \"$all\" in "
          "*\"$RINGATTN_SECRET\"*) echo seen;; "
          "*remote_shell.sh*) echo hidden;; esac; echo $RINGATTN_SECRET > secret$RINGATTN_RANK");
  EXPECT_EQ(sorted_lines(result.out), (Lines{"[0] hidden", "[1] hidden"})) << result.err;
  const std::string secret = read_file(folder_.file("secret0"));
  EXPECT_EQ(secret.size(), 33u);
  EXPECT_EQ(secret, read_file(folder_.file("secret1")));
  const std::string told = notes();
  EXPECT_NE(told.find("exec /bin/sh -c"), std::string::npos);
  EXPECT_EQ(told.find(secret.substr(0, 32)), std::string::npos);
  EXPECT_EQ(told.find("RINGATTN_"), std::string::npos) << told;
}

TEST_F(RemoteRun, VariablesOfTheRingAndThoseNamedTravel) {
  const std::string tool = words("b", "").at(4);
  const ToolResult result =
      run_shell("RINGATTN_LOG=warn KEPT=\"a 'b'\" LEFT=x % run --host-list b --remote-shell '" + tool +
                    "' -x KEPT -- /bin/sh -c 'echo $RINGATTN_LOG $KEPT ${LEFT-unset}'",
                folder_.path());
  EXPECT_EQ(result.out, "[0] warn a 'b' unset\n") << result.err;
}

TEST_F(RemoteRun, LinesCarryTheirRankOnBothStreams) {
  const ToolResult result = run("b,c", "printf 'a\\n\\nb'; printf 'c\\nd' >&2");
  EXPECT_EQ(sorted_lines(result.out), (Lines{"[0] ", "[0] a", "[0] b", "[1] ", "[1] a", "[1] b"}));
  EXPECT_EQ(sorted_lines(result.err), (Lines{"[0] c", "[0] d", "[1] c", "[1] d"}));
  EXPECT_EQ(run("b", "cat; echo read nothing").out, "[0] read nothing\n");
}

TEST_F(RemoteRun, AFailedRankEndsTheOthers) {
  const auto start = Clock::now();
  const ToolResult result = run(
      "localhost,b:2,c",
      kLeavePid +
          "if [ $RINGATTN_RANK = 2 ]; then while ! [ -f pid0 -a -f pid1 -a -f pid3 ]; do sleep 0.02; done; "
          "exit 7; fi; sleep 60",
      {"--rendezvous", "192.0.2.1:7000"});
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(result.exit_status, 7);
  EXPECT_EQ(result.err, "ringattn: rank 2 on b exited with status 7; ending the others\n");
  expect_gone({"pid0", "pid1", "pid2", "pid3"});
}

TEST_F(RemoteRun, ASignalIsTheStatusPlus128) {
  const ToolResult result = run("b", "kill -SEGV $$");
  EXPECT_EQ(result.exit_status, 139);
  EXPECT_EQ(result.err, "ringattn: rank 0 on b was killed by signal 11 (Segmentation fault)\n");
}

TEST_F(RemoteRun, ARankThatIgnoresTheEndIsKilledAfterFiveSeconds) {
  const auto start = Clock::now();
  const ToolResult result = run(
      "b,c",
      "if [ $RINGATTN_RANK = 1 ]; then while ! [ -f pid0 ]; do sleep 0.02; done; exit 3; fi; trap '' TERM; " +
          kLeavePid + "sleep 60");
  const auto took = Clock::now() - start;
  EXPECT_GE(took, std::chrono::seconds(5));
  EXPECT_LT(took, std::chrono::seconds(30));
  EXPECT_EQ(result.exit_status, 3);
  expect_gone({"pid0"});
}

TEST_F(RemoteRun, SignalsReachEveryRankOnce) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const std::string ready = "ready" + std::to_string(number) + "-";
    const std::string script =
        "got=0; trap 'got=$((got+1))' INT TERM HUP; touch " + ready +
        "$RINGATTN_RANK; while [ $got = 0 ]; do sleep 0.05; done; sleep 0.3; echo got $got";
    const Interrupted done = interrupt("b,c", script, number, [&] {
      return std::filesystem::exists(folder_.path() / (ready + "0")) &&
             std::filesystem::exists(folder_.path() / (ready + "1"));
    });
    ASSERT_TRUE(done.was_ready);
    EXPECT_EQ(done.result.exit_status, 0) << number;
    EXPECT_EQ(sorted_lines(done.result.out), (Lines{"[0] got 1", "[1] got 1"})) << number;
  }
}

TEST_F(RemoteRun, ASignalThatNobodyHandlesIsTheStatus) {
  for (const int number : {SIGINT, SIGTERM}) {
    const std::string ready = "ready" + std::to_string(number);
    const Interrupted done = interrupt("b", "touch " + ready + "; exec sleep 60", number,
                                       [&] { return std::filesystem::exists(folder_.path() / ready); });
    ASSERT_TRUE(done.was_ready);
    EXPECT_EQ(done.result.exit_status, 128 + number) << done.result.err;
  }
}

TEST_F(RemoteRun, RanksDieWithTheLauncher) {
  const Interrupted done = interrupt("b:2,c", kLeavePid + "trap '' HUP INT TERM; sleep 60", SIGKILL, [&] {
    return all_there({"pid0", "pid1", "pid2"});
  });
  ASSERT_TRUE(done.was_ready);
  expect_gone({"pid0", "pid1", "pid2"});
}

TEST_F(RemoteRun, ALostConnectionEndsAllOfThem) {
  const auto start = Clock::now();
  const ToolResult result = run("lost-b,c", kLeavePid +
                                                "while ! [ -f pid0 -a -f pid1 ]; do sleep 0.02; done; "
                                                "[ $RINGATTN_RANK = 0 ] || touch " +
                                                notes_.file("cut") + "; exec sleep 60");
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(result.exit_status, 255);
  EXPECT_EQ(result.err.find("ringattn: rank 0 on lost-b exited with status 255, as "), 0u) << result.err;
  expect_gone({"pid0", "pid1"});
}

TEST_F(RemoteRun, AHostThatCannotBeReachedIsNamed) {
  const auto start = Clock::now();
  const ToolResult result = run("b,refused-c", "exec sleep 60");
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(result.exit_status, 255);
  EXPECT_NE(result.err.find("[1] ssh: connect to host refused-c port 22: Connection refused\n"),
            std::string::npos)
      << result.err;
  EXPECT_NE(
      result.err.find("ringattn: rank 1 on refused-c exited with status 255, as " RINGATTN_SOURCE_DIR
                      "/tests/tools/remote_shell.sh does that cannot reach its host; ending the others\n"),
      std::string::npos)
      << result.err;
}

// As ssh while it has no answer: it has read nothing, and no signal would get to the rank.
TEST_F(RemoteRun, AHostThatDoesNotAnswerDoesNotKeepTheLauncher) {
  const auto start = Clock::now();
  const Interrupted done =
      interrupt("silent-b,silent-c", "exec sleep 60", SIGINT, [&] { return notes_.names().size() == 4; });
  ASSERT_TRUE(done.was_ready);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(done.result.exit_status, 130);
  EXPECT_EQ(run("silent-b,c", "exit 4").exit_status, 4);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
}

TEST_F(RemoteRun, MuchThatIsSaidAndAskedArrivesWhole) {
  std::vector<std::string> all = words("b", "printf %s \"$1\" | wc -c; seq 1 60000", {"--no-prefix"});
  all.emplace_back("sh");
  all.push_back(std::string(100000, 'x') + std::string(10000, '\n') + "y");
  const ToolResult result = run_tool(all, folder_.path());
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 60001);
  EXPECT_EQ(result.out.substr(0, result.out.find('\n')), "110001");
}

TEST_F(RemoteRun, WhatARankLeavesBehindEndsWithIt) {
  const auto start = Clock::now();
  const ToolResult result = run("b", "sleep 60 & echo $! > pid; echo done");
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(result.out, "[0] done\n");
  expect_gone({"pid"});
}

TEST_F(RemoteRun, Refusals) {
  expect_refused({"run", "--", "true"}, "no ranks: expected -n N or --host-list a,b:2");
  expect_refused({"run", "--host-list", "b,,c", "--", "true"},
                 "--host-list \"b,,c\": entry 2 is \"\", expected host or host:slots, with 1 to 4096 slots");
  expect_refused({"run", "-n", "3", "--host-list", "b:2", "--", "true"},
                 "-n 3: expected at most 2, the slots of --host-list");
  expect_refused({"run", "-n", "0", "--host-list", "b:2", "--", "true"}, "-n 0: expected 1 to 4096 ranks");
  expect_refused({"run", "--host-list", "b", "--remote-shell", " ", "--", "true"},
                 "--remote-shell \" \": expected a program such as ssh");
  expect_refused({"run", "--host-list", "b", "--remote-shell", "no-such-shell -x", "--", "true"},
                 "--remote-shell \"no-such-shell\": not found in PATH");
  expect_refused({"run", "--host-list", "b", "-x", "A=b", "--", "true"},
                 "-x \"A=b\": expected the name of an environment variable");
  EXPECT_EQ(run_tool({"run", "-n", "1", "--remote-shell", "rsh", "--", "true"}).exit_status, 2);
}

// A real ring whose ranks were started on two "hosts".
TEST_F(RemoteRun, ARingOfTwoHostsComputes) {
  std::vector<std::string> all = words("me@localhost,you@localhost", "");
  all.resize(all.size() - 4);
  for (const char* word :
       {"--no-prefix", "--", RINGATTN_TOOL_PATH, "verify", "n=64 dim=16 mask=causal ranks=2"})
    all.emplace_back(word);
  const ToolResult result = run_tool(all, folder_.path());
  EXPECT_EQ(result.exit_status, 0) << result.out << result.err;
}

TEST_F(RemoteRun, ARingComputesAcrossACable) {
  const ToolResult result = run_shell(RINGATTN_SOURCE_DIR "/tests/tools/two_hosts.sh %", folder_.path());
  if (result.exit_status == 77)
    GTEST_SKIP() << "no network namespaces: they need root, iproute2 and util-linux";
  EXPECT_EQ(result.exit_status, 0) << result.out << result.err;
}

}  // namespace
}  // namespace ringattn::tools_test
