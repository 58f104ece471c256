// Gradients from the command line: attend --backward, plan and verify with pass=backward.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "tool_process.h"
#include "tools/ringattn/safetensors.h"

namespace ringattn::tools_test {
namespace {

using nlohmann::json;

constexpr std::int64_t kTokens = 70;

// q, k, v and do of four heads over two kv heads.
std::vector<NamedFloats> inputs(const std::string& dtype = "BF16") {
  return {{"q", dtype, {1, kTokens, 4, 16}, random_floats(kTokens * 64, 1)},
          {"k", dtype, {1, kTokens, 2, 16}, random_floats(kTokens * 32, 2)},
          {"v", dtype, {1, kTokens, 2, 8}, random_floats(kTokens * 16, 3)},
          {"do", dtype, {1, kTokens, 4, 8}, random_floats(kTokens * 32, 4)}};
}

std::vector<float> floats_of(const tool::StoredTensor& tensor) {
  std::vector<float> values(tensor.data.size() / sizeof(float));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

class AttendBackward : public ::testing::Test {
 protected:
  void write(const std::vector<NamedFloats>& tensors) {
    write_file(folder_.file("in.safetensors"), make_safetensors(tensors, R"({"causal":"1"})"));
  }
  ToolResult attend(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"attend", "in.safetensors", "--backward"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_tool(arguments, folder_.path());
  }
  void expect_refused(const std::vector<NamedFloats>& tensors, const std::string& message,
                      const std::vector<std::string>& more = {"--check"}) {
    write(tensors);
    const ToolResult result = attend(more);
    EXPECT_EQ(result.exit_status, 2) << result.out;
    EXPECT_EQ(result.err, "ringattn: " + message + "\n");
  }

  TemporaryFolder folder_;
};

TEST_F(AttendBackward, WritesGradientsThatTheCheckTakes) {
  write(inputs());
  const ToolResult result = attend({"--ranks", "3", "--check", "--out", "out.safetensors"});
  ASSERT_EQ(result.exit_status, 0) << result.out << result.err;
  for (const char* part :
       {"pass=backward", "\nbackward ", "\nfp64 check ", "\nfp64 grads ", "all of dq, dk, dv against fp64",
        "\ndq           max abs error ", "\ndk  ", "\ndv  ", "\nverified\n"}) {
    EXPECT_NE(result.out.find(part), std::string::npos) << part << " in\n" << result.out;
  }
  const tool::SafetensorsFile out(folder_.file("out.safetensors"));
  EXPECT_EQ(out.at("dq").dtype, "BF16");
  EXPECT_EQ(out.at("dq").shape, (std::vector<std::int64_t>{1, kTokens, 4, 16}));
  EXPECT_EQ(out.at("dk").shape, (std::vector<std::int64_t>{1, kTokens, 2, 16}));
  EXPECT_EQ(out.at("dv").shape, (std::vector<std::int64_t>{1, kTokens, 2, 8}));
  EXPECT_EQ(out.at("o").shape, (std::vector<std::int64_t>{1, kTokens, 4, 8}));
  EXPECT_EQ(out.at("lse").dtype, "F32");
}

TEST_F(AttendBackward, GradientsInFp32AndThroughLse) {
  std::vector<NamedFloats> tensors = inputs();
  write(tensors);
  const auto gradient = [&] {
    const ToolResult result = attend({"--dtype-grad", "f32", "--check", "--out", "out.safetensors"});
    EXPECT_EQ(result.exit_status, 0) << result.out << result.err;
    const tool::SafetensorsFile out(folder_.file("out.safetensors"));
    EXPECT_EQ(out.at("dq").dtype, "F32");
    EXPECT_EQ(out.at("o").dtype, "BF16");
    return floats_of(out.at("dq"));
  };
  const std::vector<float> without = gradient();
  tensors.push_back({"dlse", "F32", {1, 4, kTokens}, random_floats(4 * kTokens, 5)});
  write(tensors);
  EXPECT_NE(gradient(), without);
}

// The answer as the references of a second file, first as it is, then with one number changed.
TEST_F(AttendBackward, ComparesWithTheReferencesOfTheFile) {
  std::vector<NamedFloats> tensors = inputs("F32");
  write(tensors);
  ASSERT_EQ(attend({"--out", "out.safetensors"}).exit_status, 0);
  {
    const tool::SafetensorsFile out(folder_.file("out.safetensors"));
    for (const char* name : {"dq", "dk", "dv"}) {
      tensors.push_back({std::string(name) + "_ref", "F32", out.at(name).shape, floats_of(out.at(name))});
    }
  }
  write(tensors);
  const ToolResult same = attend({"--ranks", "2", "--check"});
  EXPECT_EQ(same.exit_status, 0) << same.out << same.err;
  EXPECT_NE(same.out.find("against dq_ref, dk_ref, dv_ref"), std::string::npos) << same.out;
  tensors[5].values[17 * 32 + 16 + 3] += 0.5f;  // dk of token 17, kv head 1, channel 3
  write(tensors);
  const ToolResult other = attend({"--check", "--out", "other.safetensors"});
  EXPECT_EQ(other.exit_status, 1) << other.out << other.err;
  EXPECT_NE(other.out.find("OUT OF TOLERANCE: dk[0, 17, 1, 3] is "), std::string::npos) << other.out;
  EXPECT_NE(other.out.find("\nNOT verified\nother.safetensors was not written\n"), std::string::npos)
      << other.out;
}

TEST_F(AttendBackward, AFileWithDoIsAttendedForwardWithoutTheOption) {
  write(inputs());
  const ToolResult result =
      run_tool({"attend", "in.safetensors", "--out", "out.safetensors"}, folder_.path());
  ASSERT_EQ(result.exit_status, 0) << result.err;
  const tool::SafetensorsFile out(folder_.file("out.safetensors"));
  EXPECT_EQ(out.find("dq"), nullptr);
  EXPECT_EQ(result.out.find("backward"), std::string::npos) << result.out;
}

TEST_F(AttendBackward, FilesThatDoNotFit) {
  std::vector<NamedFloats> tensors = inputs();
  tensors.pop_back();
  expect_refused(tensors,
                 "in.safetensors: no tensor \"do\", which --backward needs: expected the gradient of o, "
                 "[1, 70, 4, 8]");
  tensors.push_back({"do", "BF16", {1, kTokens, 4, 16}, random_floats(kTokens * 64, 4)});
  expect_refused(tensors,
                 "in.safetensors: tensor \"do\" has shape [1, 70, 4, 16], expected [1, 70, 4, 8] (like o)");
  tensors = inputs();
  tensors[3].dtype = "F32";
  expect_refused(tensors, "in.safetensors: tensor \"do\" is F32, expected BF16 (like o)");
  expect_refused(inputs(), "in.safetensors: tensor \"do\" is BF16, expected F32 (like o)",
                 {"--check", "--dtype-out", "f32"});
  tensors = inputs();
  tensors.push_back({"dlse", "F32", {1, kTokens, 4}, random_floats(kTokens * 4, 5)});
  expect_refused(tensors,
                 "in.safetensors: tensor \"dlse\" has shape [1, 70, 4], expected [1, 4, 70] (like lse)");
  tensors.back() = {"dlse", "BF16", {1, 4, kTokens}, random_floats(kTokens * 4, 5)};
  expect_refused(tensors, "in.safetensors: tensor \"dlse\" is BF16, expected F32 (like lse)");
  tensors.back() = {"dlse", "F32", {1, 4, kTokens}, random_floats(kTokens * 4, 5)};
  tensors.back().values[kTokens + 2] = std::numeric_limits<float>::infinity();
  expect_refused(tensors,
                 "in.safetensors: tensor \"dlse\" is not finite at [0, 1, 2]; --nan allow computes with it");
  tensors = inputs();
  tensors.push_back({"dk_ref", "F32", {1, kTokens, 4, 16}, random_floats(kTokens * 64, 5)});
  expect_refused(tensors,
                 "in.safetensors: tensor \"dk_ref\" has shape [1, 70, 4, 16], expected [1, 70, 2, 16]");
}

TEST_F(AttendBackward, DtypeGradIsOfGradients) {
  write(inputs());
  const ToolResult alone =
      run_tool({"attend", "in.safetensors", "--check", "--dtype-grad", "f32"}, folder_.path());
  EXPECT_EQ(alone.exit_status, 2);
  EXPECT_EQ(alone.err, "ringattn: --dtype-grad f32: expected with --backward only\n");
  expect_refused(inputs(), "dtype_grad=f16: expected same, f32", {"--check", "--dtype-grad", "f16"});
}

TEST_F(AttendBackward, TooLongForAnAnswerInFp64) {
  const std::int64_t n = 8200;
  const auto column = [n](const char* name, std::uint64_t seed) {
    return NamedFloats{name, "F32", {1, n, 1, 1}, random_floats(n, seed)};
  };
  std::vector<NamedFloats> tensors = {column("q", 1), column("k", 2), column("v", 3), column("do", 4),
                                      column("o_ref", 5)};
  tensors.push_back({"lse_ref", "F32", {1, 1, n}, random_floats(n, 6)});
  expect_refused(
      tensors,
      "--check: gradients are checked as a whole and the sequence is too long for an answer in fp64 "
      "(at most 8,192 queries and keys)",
      {"--check", "--mask", "full"});
}

TEST(PlanBackward, ShowsWhatTheGradientsCost) {
  const std::vector<std::string> words = {
      "plan", "n=600", "heads=2", "dim=32", "mask=causal", "partition=zigzag", "ranks=3", "pass=backward"};
  const ToolResult text = run_tool(words);
  ASSERT_EQ(text.exit_status, 0) << text.err;
  EXPECT_NE(text.out.find("\nbackward: K and V go round once more"), std::string::npos) << text.out;
  std::vector<std::string> as_json = words;
  as_json.emplace_back("--json");
  const json root = json::parse(run_tool(as_json).out);
  std::uint64_t sent = 0, received = 0;
  for (const json& rank : root.at("ranks")) {
    sent += rank.at("backward_bytes_sent").get<std::uint64_t>();
    received += rank.at("backward_bytes_received").get<std::uint64_t>();
    EXPECT_GT(rank.at("backward_bytes_sent"), rank.at("bytes_sent"));
    // 2 (3 dim + 2 dim_v) of 2 (dim + dim_v)
    EXPECT_NEAR(rank.at("backward_flops").get<double>(), 2.5 * rank.at("flops").get<double>(), 1);
  }
  EXPECT_EQ(sent, received);
  const json forward = json::parse(run_tool({"plan", "n=600", "ranks=3", "--json"}).out);
  EXPECT_FALSE(forward.at("ranks").at(0).contains("backward_flops"));
}

TEST(VerifyBackward, ChecksTheGradientsToo) {
  const std::vector<std::string> words = {
      "verify", "n=60", "heads=2", "dim=16", "mask=causal", "partition=zigzag", "ranks=3", "pass=backward"};
  const ToolResult text = run_tool(words);
  EXPECT_EQ(text.exit_status, 0) << text.out << text.err;
  for (const char* name : {" d_q max ", " d_k max ", " d_v max "}) {
    EXPECT_NE(text.out.find(name), std::string::npos) << text.out;
  }
  std::vector<std::string> as_json = words;
  as_json.emplace_back("--json");
  const std::string out = run_tool(as_json).out;
  const json root = json::parse(out.substr(0, out.find('\n')));
  EXPECT_EQ(root.at("outcome"), "passed");
  for (const char* name : {"o", "lse", "d_q", "d_k", "d_v"})
    EXPECT_TRUE(root.at(name).at("ok").get<bool>()) << name;
}

}  // namespace
}  // namespace ringattn::tools_test
