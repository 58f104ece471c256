// attend and verify where the ranks are processes: the same bytes as in one process, who prints and writes what, refusals.
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tool_process.h"

namespace ringattn::tools_test {
namespace {

using nlohmann::json;

constexpr std::int64_t kTokens = 101;

// Rank 0 of a launcher's ring of one rank.
const std::string kAlone = "RINGATTN_RANK=0 RINGATTN_WORLD_SIZE=1 RINGATTN_RENDEZVOUS=127.0.0.1:1";

// q, k, v and do of four heads over two kv heads.
std::vector<NamedFloats> inputs(const std::string& dtype, std::int64_t batch = 1) {
  const std::int64_t rows = batch * kTokens;
  return {{"q", dtype, {batch, kTokens, 4, 16}, random_floats(rows * 64, 1)},
          {"k", dtype, {batch, kTokens, 2, 16}, random_floats(rows * 32, 2)},
          {"v", dtype, {batch, kTokens, 2, 8}, random_floats(rows * 16, 3)},
          {"do", dtype, {batch, kTokens, 4, 8}, random_floats(rows * 32, 4)}};
}

// Through the shell, "%" stands for the tool; ends with status 124 where it takes too long.
ToolResult limited(const std::string& command, const TemporaryFolder& folder,
                   const std::string& environment = "") {
  return run_shell("env " + environment + " timeout --kill-after=5 120 " + command, folder.path());
}

void expect_refused(const ToolResult& result, const std::string& message) {
  EXPECT_EQ(result.exit_status, 2) << result.err << result.out;
  EXPECT_EQ(result.err, "ringattn: " + message + "\n");
}

// "" or why a transport cannot run here, as `ringattn info` says it.
std::string why_not(const std::string& transport) {
  const json info = json::parse(run_tool({"info", "--json"}).out);
  for (const json& entry : info.at("transports")) {
    if (entry.at("name") == transport) return entry.value("why_not", "");
  }
  return "this build does not know it";
}

class AttendProcesses : public ::testing::Test {
 protected:
  void write(const std::vector<NamedFloats>& tensors) {
    write_file(folder_.file("in.safetensors"), make_safetensors(tensors));
  }
  ToolResult attend(const std::string& words, const std::string& environment = "") {
    return limited("% attend in.safetensors " + words, folder_, environment);
  }
  std::string bytes(const std::string& name) const { return read_file(folder_.file(name)); }

  TemporaryFolder folder_;
};

// By the name of a transport.
class AttendOverTransport : public AttendProcesses, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    const std::string reason = why_not(GetParam());
    ASSERT_TRUE(reason.empty() || GetParam() != std::string("tcp")) << reason;
    if (!reason.empty()) GTEST_SKIP() << "transport " << GetParam() << " cannot run here: " << reason;
  }
  void expect_same_bytes(const std::string& words, int ranks = 4) {
    const std::string count = std::to_string(ranks);
    const ToolResult one = attend(words + " --ranks " + count + " --out one.safetensors");
    ASSERT_EQ(one.exit_status, 0) << one.err;
    const ToolResult many = attend(words + " --processes " + count + " --out many.safetensors",
                                   std::string("RINGATTN_TRANSPORT=") + GetParam());
    ASSERT_EQ(many.exit_status, 0) << many.err;
    EXPECT_EQ(many.err, "");
    EXPECT_GT(bytes("one.safetensors").size(), 1000u);
    EXPECT_TRUE(bytes("one.safetensors") == bytes("many.safetensors")) << words;
  }
};

TEST_P(AttendOverTransport, GivesTheBytesOfOneProcess) {
  for (const char* dtype : {"F32", "BF16"}) {
    write(inputs(dtype));
    expect_same_bytes("--mask causal");
    expect_same_bytes("--mask causal --backward");
  }
}

TEST_P(AttendOverTransport, GivesThemWithDocumentsAndPadding) {
  write(inputs("BF16"));
  expect_same_bytes(
      "--mask causal,window:20 --docs 30,0,50 --backward --partition striped:3 --dtype-grad f32", 3);
  write(inputs("F32", 2));
  expect_same_bytes("--docs 70,101 --partition contiguous", 3);
}

// The rows of three queries are NaN; what is gathered is bytes.
TEST_P(AttendOverTransport, GivesThemWithNaN) {
  std::vector<NamedFloats> tensors = inputs("F32");
  tensors.pop_back();
  tensors[2].values[16 * 98] = std::numeric_limits<float>::quiet_NaN();
  write(tensors);
  expect_same_bytes("--mask causal --nan allow");
}

INSTANTIATE_TEST_SUITE_P(Over, AttendOverTransport, ::testing::Values("tcp", "ucx"),
                         [](const auto& test) { return std::string(test.param); });

TEST_F(AttendProcesses, RankZeroAlonePrints) {
  write(inputs("F32"));
  const ToolResult result = limited("% run -n 3 -- % attend in.safetensors --check --backward", folder_);
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) EXPECT_EQ(line.substr(0, 4), "[0] ") << line;
  EXPECT_NE(result.out.find("  3 processes; "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("\n[0] verified\n"), std::string::npos) << result.out;
  EXPECT_EQ(folder_.names(), std::vector<std::string>{"in.safetensors"});
}

TEST_F(AttendProcesses, TorchrunsVariablesMakeARing) {
  write(inputs("F32"));
  write_file(folder_.file("start.sh"),
             "port=$((20000 + $$ % 9000))\n"
             "for rank in 2 1 0; do\n"
             "  RANK=$rank WORLD_SIZE=3 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 "
             "MASTER_PORT=$port \"$@\" &\n"
             "  all=\"$all $!\"\n"
             "done\n"
             "for process in $all; do wait $process || exit $?; done\n");
  const ToolResult result = limited("/bin/sh start.sh % attend in.safetensors --check", folder_);
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_NE(result.out.find("  3 processes; "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("\nverified\n"), std::string::npos) << result.out;
}

TEST_F(AttendProcesses, AWrongAnswerIsRankZerosStatus) {
  std::vector<NamedFloats> tensors = inputs("F32");
  tensors.push_back({"o_ref", "F32", {1, kTokens, 4, 8}, random_floats(kTokens * 32, 9)});
  write(tensors);
  const ToolResult result = attend("--check --out out.safetensors --processes 2");
  EXPECT_EQ(result.exit_status, 1) << result.err;
  EXPECT_NE(result.out.find("\nNOT verified\nout.safetensors was not written\n"), std::string::npos)
      << result.out;
  EXPECT_EQ(folder_.names(), std::vector<std::string>{"in.safetensors"});
}

// Ranks in a trace, by its processes.
std::set<int> ranks_in(const std::string& trace) {
  std::set<int> ranks;
  const json root = json::parse(trace);
  for (const json& event : root.at("traceEvents")) ranks.insert(event.at("pid").get<int>());
  return ranks;
}

TEST_F(AttendProcesses, EachRankWritesItsTrace) {
  write(inputs("F32"));
  const std::string words = "--check --backward --trace trace.json";
  ASSERT_EQ(attend(words + " --processes 3").exit_status, 0);
  EXPECT_EQ(folder_.names(), (std::vector<std::string>{"in.safetensors", "trace.rank0.json",
                                                       "trace.rank1.json", "trace.rank2.json"}));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ranks_in(bytes("trace.rank" + std::to_string(rank) + ".json")), std::set<int>{rank});
  }
  ASSERT_EQ(attend(words + " --ranks 3").exit_status, 0);
  EXPECT_EQ(ranks_in(bytes("trace.json")), (std::set<int>{0, 1, 2}));
}

TEST_F(AttendProcesses, TracesHoldForwardAndBackward) {
  write(inputs("F32"));
  const auto events = [&](const std::string& words) {
    EXPECT_EQ(attend("--check --ranks 2 --trace trace.json " + words).exit_status, 0);
    return json::parse(bytes("trace.json")).at("traceEvents").size();
  };
  const std::size_t forward = events("");
  EXPECT_GT(events("--backward"), forward + 4);
}

TEST_F(AttendProcesses, RefusalsComeOnce) {
  write(inputs("F32"));
  expect_refused(attend("--check --processes 4 --ranks 3"),
                 "--processes 4 and --ranks 3: expected one of them");
  for (const char* count : {"0", "-1", "4097"})
    expect_refused(attend(std::string("--check --processes ") + count),
                   std::string("--processes ") + count + ": expected 1 to 4096");
  expect_refused(attend("--processes 2"), "attend: expected --out, --check or both");
  expect_refused(
      attend("--check --processes 2 --mask diagonal"),
      "mask=diagonal: expected full, or causal and window:LEFT[:RIGHT], each once, joined by a comma");
  expect_refused(attend("--out out.safetensors --trace out.safetensors"),
                 "--trace out.safetensors: expected another file than --out");
  expect_refused(limited("% attend none.safetensors --check --processes 2", folder_),
                 "cannot read none.safetensors: No such file or directory");
  const ToolResult docs = attend("--check --processes 2 --docs 60,60");  // the library's own words
  EXPECT_EQ(docs.exit_status, 2);
  EXPECT_EQ(std::count(docs.err.begin(), docs.err.end(), '\n'), 1) << docs.err;
}

TEST_F(AttendProcesses, RanksMustBeThoseOfTheLauncher) {
  write(inputs("F32"));
  expect_refused(attend("--check --ranks 2", kAlone),
                 "--ranks 2: expected 1, the ranks that the launcher has started");
  EXPECT_EQ(attend("--check --ranks 1", kAlone).exit_status, 0);
  EXPECT_EQ(attend("--check", kAlone).exit_status, 0);
  const ToolResult half = attend("--check", "RINGATTN_RANK=0");
  EXPECT_EQ(half.exit_status, 2);
  EXPECT_NE(half.err.find("RINGATTN_WORLD_SIZE"), std::string::npos) << half.err;
}

TEST_F(AttendProcesses, ProcessesGoesBeforeALauncher) {
  write(inputs("F32"));
  const ToolResult result = attend("--check --processes=2", kAlone);
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_NE(result.out.find("  2 processes; "), std::string::npos) << result.out;
}

TEST(VerifyProcesses, JudgesWhatAllRanksHaveComputed) {
  const TemporaryFolder folder;
  const ToolResult one = limited(
      "% verify n=90 heads=2 dim=16 mask=causal partition=zigzag pass=backward --processes 3", folder);
  EXPECT_EQ(one.exit_status, 0) << one.err << one.out;
  EXPECT_NE(one.out.find(" d_v max "), std::string::npos) << one.out;
  EXPECT_NE(one.out.find(" ranks=3\n"), std::string::npos) << one.out;
  EXPECT_NE(one.out.find("\n1 problem: 1 passed, 0 failed, 0 refused, 0 not run, "), std::string::npos)
      << one.out;
}

TEST(VerifyProcesses, RunsAFileOnOneRing) {
  const TemporaryFolder folder;
  write_file(folder.file("problems.txt"),
             "q=70 k=50 heads=4 kv_heads=2 dim=8 dtype=bf16 mask=causal docs=20,40 docs_k=20,30\n"
             "n=40 dim=600  # refused\n"
             "batch=2 n=33 dim=8 docs=20,33 mask=causal,window:7 partition=striped ranks=2 pass=backward\n"
             "n=9 dim=4 partition=explicit:7/2\n"
             "n=5 batch=0 dim=16 pass=backward\n");
  const ToolResult result =
      limited("% run -n 2 --no-prefix -- % verify --file problems.txt --keep-going --json", folder,
              "RINGATTN_TRANSPORT=tcp");
  EXPECT_EQ(result.exit_status, 2) << result.out << result.err;
  std::istringstream lines(result.out);
  std::vector<std::string> outcomes;
  json last;
  for (std::string line; std::getline(lines, line);) {
    last = json::parse(line);
    if (last.contains("outcome")) outcomes.push_back(last.at("outcome"));
  }
  EXPECT_EQ(outcomes, (std::vector<std::string>{"passed", "refused", "passed", "passed", "passed"}))
      << result.out;
  EXPECT_EQ(last.at("passed"), 4);
}

TEST(VerifyProcesses, Refusals) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& words, const std::string& message) {
    expect_refused(limited("% verify " + words, folder), message);
  };
  refused("n=90 ranks=3 --processes 4", "ranks=3: expected 4, the processes that there are, or no ranks");
  refused("n=90 threads=2 --processes 2",
          "threads=2: expected no threads, as each process takes its share of the cores");
  refused("n=90 transport=tcp --processes 2",
          "transport=tcp: expected RINGATTN_TRANSPORT=tcp instead, as ranks are processes");
  refused("n=90 layout=sliced --processes 2",
          "layout: expected bshd, as ranks are processes, whose shards are dense");
  refused("n=90 --processes 0", "--processes 0: expected 1 to 4096");
  expect_refused(limited("% verify n=90 ranks=3", folder, kAlone),
                 "ranks=3: expected 1, the processes that there are, or no ranks");
  const ToolResult wide = limited("% verify n=90 dim=600 --processes 2", folder);  // the library's own words
  EXPECT_EQ(wide.exit_status, 2);
  EXPECT_EQ(std::count(wide.err.begin(), wide.err.end(), '\n'), 1) << wide.err;
}

}  // namespace
}  // namespace ringattn::tools_test
