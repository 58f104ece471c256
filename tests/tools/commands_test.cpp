// The subcommands, run as a user runs them.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tool_process.h"
#include "tools/ringattn/safetensors.h"
#include "xml_check.h"

namespace ringattn::tools_test {
namespace {

using nlohmann::json;

std::vector<NamedFloats> small_inputs(std::int64_t tokens, const std::string& dtype = "BF16") {
  return {{"q", dtype, {1, tokens, 4, 16}, random_floats(tokens * 64, 1)},
          {"k", dtype, {1, tokens, 2, 16}, random_floats(tokens * 32, 2)},
          {"v", dtype, {1, tokens, 2, 8}, random_floats(tokens * 16, 3)}};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<float> floats_of(const tool::StoredTensor& tensor) {
  std::vector<float> values(tensor.data.size() / sizeof(float));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

// Starts with `text`, whatever follows.
bool begins(const std::string& line, const std::string& text) {
  return line.compare(0, text.size(), text) == 0;
}

TEST(Tool, HelpAndVersion) {
  const ToolResult help = run_tool({"--help"});
  EXPECT_EQ(help.exit_status, 0);
  for (const char* word : {"info", "plan", "attend", "verify", "demo", "Exit status"}) {
    EXPECT_NE(help.out.find(word), std::string::npos) << word;
  }
  EXPECT_EQ(run_tool({"--version"}).out, "ringattn 0.1.0\n");
  EXPECT_NE(run_tool({"plan", "--help"}).out.find("kv_heads"), std::string::npos);
  EXPECT_NE(run_tool({"attend", "--help"}).out.find("--dtype-out"), std::string::npos);
}

TEST(Tool, AFullDiskOnStandardOutputIsAnError) {
  const TemporaryFolder folder;
  const ToolResult result = run_shell("% info > /dev/full", folder.path());
  EXPECT_EQ(result.exit_status, 3);
  EXPECT_EQ(result.err, "ringattn: cannot write to standard output\n");
}

TEST(Info, TableAndJson) {
  const ToolResult table = run_tool({"info"});
  EXPECT_EQ(table.exit_status, 0);
  for (const char* word : {"version", "kernels", "transports", "local", "RINGATTN_FORCE_KERNEL"}) {
    EXPECT_NE(table.out.find(word), std::string::npos) << word;
  }
  const ToolResult text = run_tool({"info", "--json"});
  EXPECT_EQ(json::parse(text.out).at("version"), "0.1.0");
  EXPECT_EQ(lines_of(text.out).size(), 1u);
}

TEST(Plan, PrintsEveryRankAndTheBalance) {
  const ToolResult result =
      run_tool({"plan", "n=1000", "heads=4", "mask=causal", "partition=zigzag", "ranks=4"});
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_NE(result.out.find("balance  work max/mean = 1.0"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("overlap  transfers are hidden where"), std::string::npos);
  int ranks = 0;
  for (const std::string& line : lines_of(result.out))
    ranks += begins(line, "    " + std::to_string(ranks) + " ") ? 1 : 0;
  EXPECT_EQ(ranks, 4) << result.out;

  const ToolResult contiguous = run_tool({"plan", "n=1000 mask=causal ranks=4"});
  EXPECT_NE(contiguous.out.find("balance  work max/mean = 1.7"), std::string::npos) << contiguous.out;
  const ToolResult one = run_tool({"plan", "n=1000", "ranks=4", "--rank", "2"});
  EXPECT_NE(one.out.find("    2 "), std::string::npos);
  EXPECT_EQ(one.out.find("    3 "), std::string::npos);
}

TEST(Plan, AMillionTokensOnSixteenRanksWithinASecond) {
  const auto start = std::chrono::steady_clock::now();
  const ToolResult result = run_tool({"plan", "n=1000000", "heads=32", "kv_heads=8", "dim=128", "dtype=bf16",
                                      "mask=causal", "partition=zigzag", "ranks=16"});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_NE(result.out.find("balance  work max/mean = 1.0000"), std::string::npos) << result.out;
#if !defined(RINGATTN_ASAN) && !defined(RINGATTN_TSAN)
  EXPECT_LT(seconds, 1.0);
#else
  EXPECT_GT(seconds, 0.0);
#endif
}

TEST(Plan, JsonAddsUp) {
  const ToolResult result =
      run_tool({"plan", "n=600", "heads=2", "mask=causal", "partition=striped", "ranks=3", "--json"});
  ASSERT_EQ(result.exit_status, 0) << result.err;
  const json root = json::parse(result.out);
  ASSERT_EQ(root.at("ranks").size(), 3u);
  double pairs = 0;
  std::uint64_t sent = 0, received = 0;
  for (const json& rank : root.at("ranks")) {
    pairs += rank.at("pairs").get<double>();
    sent += rank.at("bytes_sent").get<std::uint64_t>();
    received += rank.at("bytes_received").get<std::uint64_t>();
  }
  EXPECT_EQ(pairs, 2.0 * 600 * 601 / 2);
  EXPECT_EQ(sent, received);
  EXPECT_GT(sent, 0u);
  EXPECT_NEAR(root.at("balance").at("mean").get<double>(), pairs / 3, 1e-9);

  const json one = json::parse(run_tool({"plan", "n=600", "ranks=3", "--rank", "1", "--json"}).out);
  EXPECT_EQ(one.at("ranks").size(), 1u);
  EXPECT_EQ(one.at("plan").at("ranks").size(), 3u);
  // One rank receives nothing: no threshold, which JSON can only call null.
  EXPECT_TRUE(json::parse(run_tool({"plan", "n=10", "--json"}).out).at("overlap_flops_per_byte").is_null());
}

TEST(Plan, DrawsAPicture) {
  const TemporaryFolder folder;
  const ToolResult result =
      run_tool({"plan", "n=1000", "mask=causal", "partition=zigzag", "ranks=4", "--picture", "plan.svg"},
               folder.path());
  EXPECT_EQ(result.exit_status, 0) << result.err;
  const std::string svg = read_file(folder.file("plan.svg"));
  EXPECT_EQ(check_xml(svg).error, "");
  for (const char* text : {"rank 3", "step 3", "K/V 0", "250 tokens"})
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  EXPECT_EQ(folder.names(), std::vector<std::string>{"plan.svg"});
}

TEST(Attend, WritesAnswersThatDoNotDependOnTheRing) {
  const TemporaryFolder folder;
  write_file(folder.file("in.safetensors"), make_safetensors(small_inputs(101), R"({"causal":"1"})"));
  std::vector<float> first;
  for (const char* partition : {"contiguous", "striped:3", "zigzag"}) {
    const ToolResult result = run_tool({"attend", "in.safetensors", "--ranks", "3", "--partition", partition,
                                        "--out", "out.safetensors", "--dtype-out", "f32", "--check"},
                                       folder.path());
    ASSERT_EQ(result.exit_status, 0) << result.out << result.err;
    EXPECT_NE(result.out.find("mask=causal"), std::string::npos) << "from the file's metadata";
    EXPECT_NE(result.out.find("\nverified\n"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("o            max abs error "), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("(limit "), std::string::npos);
    const tool::SafetensorsFile out(folder.file("out.safetensors"));
    EXPECT_EQ(out.at("o").dtype, "F32");
    EXPECT_EQ(out.at("o").shape, (std::vector<std::int64_t>{1, 101, 4, 8}));
    EXPECT_EQ(out.at("lse").dtype, "F32");
    EXPECT_EQ(out.at("lse").shape, (std::vector<std::int64_t>{1, 4, 101}));
    const std::vector<float> o = floats_of(out.at("o"));
    if (first.empty()) first = o;
    ASSERT_EQ(o.size(), first.size());
    for (std::size_t i = 0; i < o.size(); ++i) ASSERT_NEAR(o[i], first[i], 1e-2) << partition << " at " << i;
  }
}

TEST(Attend, OutputInTheInputsDtypeByDefault) {
  const TemporaryFolder folder;
  write_file(folder.file("in.safetensors"), make_safetensors(small_inputs(20)));
  ASSERT_EQ(run_tool({"attend", "in.safetensors", "--out", "out.safetensors"}, folder.path()).exit_status, 0);
  const tool::SafetensorsFile out(folder.file("out.safetensors"));
  EXPECT_EQ(out.at("o").dtype, "BF16");
  EXPECT_NE(out.metadata().at("problem").find("n=20"), std::string::npos);
}

// Writes the answer as the reference of a second file, first as it is, then with one number changed.
TEST(Attend, ComparesWithTheReferencesOfTheFile) {
  const TemporaryFolder folder;
  std::vector<NamedFloats> tensors = small_inputs(60, "F32");
  write_file(folder.file("in.safetensors"), make_safetensors(tensors));
  const std::vector<std::string> options = {"--mask", "causal,window:20", "--docs", "25,30", "--ranks", "2"};
  std::vector<std::string> first = {"attend", "in.safetensors", "--out", "out.safetensors"};
  first.insert(first.end(), options.begin(), options.end());
  const ToolResult made = run_tool(first, folder.path());
  ASSERT_EQ(made.exit_status, 0) << made.err;
  const tool::SafetensorsFile out(folder.file("out.safetensors"));
  tensors.push_back({"o_ref", "F32", {1, 60, 4, 8}, floats_of(out.at("o"))});
  tensors.push_back({"lse_ref", "F32", {1, 4, 60}, floats_of(out.at("lse"))});
  const auto check = [&] {
    write_file(folder.file("ref.safetensors"), make_safetensors(tensors));
    std::vector<std::string> arguments = {"attend", "ref.safetensors", "--check", "--out",
                                          "never.safetensors"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return run_tool(arguments, folder.path());
  };
  const ToolResult same = check();
  EXPECT_EQ(same.exit_status, 0) << same.out << same.err;
  EXPECT_NE(same.out.find("against o_ref and lse_ref"), std::string::npos) << same.out;
  std::filesystem::remove(folder.file("never.safetensors"));

  // Another mask: as wrong for the plain implementation, which must not widen the limits.
  const ToolResult other =
      run_tool({"attend", "ref.safetensors", "--check", "--docs", "25,30"}, folder.path());
  EXPECT_EQ(other.exit_status, 1) << other.out;

  tensors[3].values[(40 * 4 + 2) * 8 + 5] += 0.5f;
  const ToolResult wrong = check();
  EXPECT_EQ(wrong.exit_status, 1) << wrong.out;
  EXPECT_EQ(wrong.err, "");
  EXPECT_NE(wrong.out.find("OUT OF TOLERANCE: o[0, 40, 2, 5]"), std::string::npos) << wrong.out;
  EXPECT_NE(wrong.out.find("\nNOT verified\n"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder.file("never.safetensors")));
  EXPECT_EQ(folder.names(),
            (std::vector<std::string>{"in.safetensors", "out.safetensors", "ref.safetensors"}));
}

TEST(Attend, FewQueriesOnManyKeys) {
  const TemporaryFolder folder;
  write_file(folder.file("in.safetensors"),
             make_safetensors({{"q", "F32", {2, 3, 2, 5}, random_floats(60, 1)},
                               {"k", "F32", {2, 40, 1, 5}, random_floats(400, 2)},
                               {"v", "F32", {2, 40, 1, 7}, random_floats(560, 3)}}));
  for (const char* offset : {"37", "-1", "0"}) {
    const ToolResult result = run_tool({"attend", "in.safetensors", "--ranks", "4", "--mask", "causal",
                                        "--offset", offset, "--scale", "0.3", "--check"},
                                       folder.path());
    EXPECT_EQ(result.exit_status, 0) << offset << result.out << result.err;
  }
}

TEST(Attend, AnInterruptedOrFailedWriteLeavesNoHalfFile) {
  const TemporaryFolder folder;
  write_file(folder.file("in.safetensors"), make_safetensors(small_inputs(2000)));
  // The limit is in blocks of 512 bytes (dash) or 1024: less than the answer takes in both.
  const ToolResult full =
      run_shell("ulimit -f 8; exec % attend in.safetensors --out out.safetensors", folder.path());
  EXPECT_EQ(full.exit_status, 3);
  EXPECT_EQ(full.err, "ringattn: cannot write out.safetensors: File too large\n");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"in.safetensors"});
}

TEST(Attend, ASignalRemovesTheTemporaryFile) {
  const TemporaryFolder folder;
  write_file(folder.file("in.safetensors"), make_safetensors(small_inputs(6000)));
  for (const int signal : {SIGINT, SIGTERM}) {
    const Interrupted interrupted =
        interrupt_tool({RINGATTN_TOOL_PATH, "attend", "in.safetensors", "--mask", "causal", "--check",
                        "--out", "out.safetensors"},
                       folder.path(), signal, [&] { return folder.names().size() > 1; });
    EXPECT_TRUE(interrupted.was_ready) << "the temporary file was there";
    EXPECT_EQ(interrupted.result.signal, signal) << interrupted.result.out << interrupted.result.err;
    EXPECT_EQ(folder.names(), std::vector<std::string>{"in.safetensors"});
  }
}

TEST(Verify, OneLineAProblemAndCounts) {
  const TemporaryFolder folder;
  write_file(folder.file("p.txt"),
             "n=50 heads=2 dim=8 mask=causal ranks=3 # first\n\nq=7 k=20 dim=5 dtype=f16 ranks=2\n");
  const ToolResult result = run_tool({"verify", "--file", "p.txt", "--seed", "4"}, folder.path());
  EXPECT_EQ(result.exit_status, 0) << result.err << result.out;
  const std::vector<std::string> lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 3u) << result.out;
  EXPECT_TRUE(begins(lines[0], "ok ")) << lines[0];
  EXPECT_TRUE(begins(lines[2], "2 problems: 2 passed, 0 failed, 0 refused, 0 not run, ")) << lines[2];
  EXPECT_EQ(run_tool({"verify", "n=30", "dim=4", "ranks=2"}).exit_status, 0);
}

TEST(Verify, JsonLinesAndRefusals) {
  const TemporaryFolder folder;
  write_file(folder.file("p.txt"), "n=5 dim=600\nn=50 dim=8 ranks=3\n");
  const ToolResult result = run_tool({"verify", "--file", "p.txt", "--json", "--keep-going"}, folder.path());
  EXPECT_EQ(result.exit_status, 2) << "one was refused";
  const std::vector<std::string> lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 3u) << result.out;
  EXPECT_EQ(json::parse(lines[0]).at("outcome"), "refused");
  EXPECT_EQ(json::parse(lines[1]).at("outcome"), "passed");
  EXPECT_TRUE(json::parse(lines[1]).at("o").at("ok").get<bool>());
  EXPECT_EQ(json::parse(lines[2]).at("passed"), 1);
  EXPECT_EQ(json::parse(lines[2]).at("refused"), 1);
}

TEST(Demo, VerifiesAndDraws) {
  const TemporaryFolder folder;
  const ToolResult result =
      run_tool({"demo", "--tokens", "700", "--ranks", "3", "--out-dir", "."}, folder.path());
  ASSERT_EQ(result.exit_status, 0) << result.out << result.err;
  const std::vector<std::string> lines = lines_of(result.out);
  EXPECT_TRUE(begins(lines.back(), "verified: 700 rows")) << result.out;
  EXPECT_NE(lines.back().find("demo-timeline.svg and demo-trace.json"), std::string::npos);
  for (const char* text : {"exposed wait", "agree", "compute", "transfer", "(limit ", "fp64 check"}) {
    EXPECT_NE(result.out.find(text), std::string::npos) << text;
  }
  EXPECT_EQ(result.out.find('\r'), std::string::npos) << "no bar where there is no terminal";
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"demo-timeline.svg", "demo-trace.json"}));

  const std::string svg = read_file(folder.file("demo-timeline.svg"));
  EXPECT_EQ(check_xml(svg).error, "");
  for (const char* text : {"rank 0", "rank 2", "worker 0", "receive", "send"})
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  const json trace = json::parse(read_file(folder.file("demo-trace.json")));
  std::set<int> ranks;
  bool tiles = false;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    ranks.insert(event.at("pid").get<int>());
    tiles = tiles || event.at("cat") == "compute";
  }
  EXPECT_EQ(ranks, (std::set<int>{0, 1, 2}));
  EXPECT_TRUE(tiles);
}

TEST(Demo, OneTokenAndOneRank) {
  const TemporaryFolder folder;
  EXPECT_EQ(run_tool({"demo", "--tokens", "1", "--ranks", "4"}, folder.path()).exit_status, 0);
  const ToolResult one = run_tool({"demo", "--tokens", "64", "--ranks", "1"}, folder.path());
  EXPECT_EQ(one.exit_status, 0) << one.out << one.err;
  EXPECT_EQ(check_xml(read_file(folder.file("demo-timeline.svg"))).error, "");
}

TEST(Demo, ASignalLeavesNothing) {
  const TemporaryFolder folder;
  const Interrupted interrupted =
      interrupt_tool({RINGATTN_TOOL_PATH, "demo", "--tokens", "8192"}, folder.path(), SIGTERM,
                     [&] { return folder.names().size() == 2; });
  EXPECT_TRUE(interrupted.was_ready);
  EXPECT_EQ(interrupted.result.signal, SIGTERM);
  EXPECT_EQ(folder.names(), std::vector<std::string>{});
}

}  // namespace
}  // namespace ringattn::tools_test
