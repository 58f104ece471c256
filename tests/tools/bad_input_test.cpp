// What a user can get wrong: each gets one line on standard error that names it, and exit status 2.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tool_process.h"

namespace ringattn::tools_test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

void expect_refused(const ToolResult& result, const std::string& message) {
  EXPECT_EQ(result.exit_status, 2) << result.err << result.out;
  EXPECT_EQ(result.err, "ringattn: " + message + "\n");
}

// Only a part of the message is ours; the rest is the library's or CLI11's.
void expect_refused_with(const ToolResult& result, const std::string& part) {
  EXPECT_EQ(result.exit_status, 2) << result.err << result.out;
  EXPECT_EQ(result.err.substr(0, 10), "ringattn: ");
  EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

NamedFloats tensor(const std::string& name, std::vector<std::int64_t> shape,
                   const std::string& dtype = "F32") {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return {name, dtype, std::move(shape), random_floats(count, 3)};
}

class BadFile : public ::testing::Test {
 protected:
  ToolResult check(const std::vector<NamedFloats>& tensors, const std::vector<std::string>& more = {}) {
    return check_bytes(make_safetensors(tensors), more);
  }
  ToolResult check_bytes(const std::string& bytes, const std::vector<std::string>& more = {}) {
    write_file(folder_.file("in.safetensors"), bytes);
    std::vector<std::string> arguments = {"attend", "in.safetensors", "--check"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_tool(arguments, folder_.path());
  }

  TemporaryFolder folder_;
};

TEST_F(BadFile, MissingTensor) {
  expect_refused(check({tensor("q", {1, 4, 1, 2}), tensor("v", {1, 4, 1, 2})}),
                 "in.safetensors: no tensor \"k\"; the file has q, v");
  expect_refused(check({}), "in.safetensors: no tensor \"q\"; the file has no tensors");
}

TEST_F(BadFile, WrongDtype) {
  const std::string header =
      R"({"q":{"dtype":"I32","shape":[1,1,1,1],"data_offsets":[0,4]},"k":{"dtype":"F32","shape":[1,1,1,1],)"
      R"("data_offsets":[4,8]},"v":{"dtype":"F32","shape":[1,1,1,1],"data_offsets":[8,12]}})";
  expect_refused(check_bytes(safetensors_bytes(header, std::string(12, '\0'))),
                 "in.safetensors: tensor \"q\" is I32, expected F32, F16 or BF16");
  expect_refused(check({tensor("q", {1, 4, 1, 2}), tensor("k", {1, 4, 1, 2}, "BF16"),
                        tensor("v", {1, 4, 1, 2}, "BF16")}),
                 "in.safetensors: tensor \"q\" is F32 and \"k\" is BF16, expected one dtype");
}

TEST_F(BadFile, ShapesThatDoNotFit) {
  expect_refused(
      check({tensor("q", {4, 1, 2}), tensor("k", {1, 4, 1, 2}), tensor("v", {1, 4, 1, 2})}),
      "in.safetensors: tensor \"q\" has shape [4, 1, 2], expected four axes [batch, seq, head, dim]");
  expect_refused(
      check({tensor("q", {1, 4, 1, 2}), tensor("k", {2, 4, 1, 2}), tensor("v", {2, 4, 1, 2})}),
      "in.safetensors: tensors \"q\" [1, 4, 1, 2] and \"k\" [2, 4, 1, 2] differ in batch (axis 0)");
  expect_refused(check({tensor("q", {1, 4, 1, 2}), tensor("k", {1, 4, 1, 3}), tensor("v", {1, 4, 1, 3})}),
                 "in.safetensors: tensors \"q\" [1, 4, 1, 2] and \"k\" [1, 4, 1, 3] differ in dim (axis 3)");
  expect_refused(check({tensor("q", {1, 4, 1, 2}), tensor("k", {1, 4, 1, 2}), tensor("v", {1, 3, 1, 2})}),
                 "in.safetensors: tensors \"k\" [1, 4, 1, 2] and \"v\" [1, 3, 1, 2] differ in seq (axis 1)");
  expect_refused(check({tensor("q", {1, 4, 2, 2}), tensor("k", {1, 4, 1, 2}), tensor("v", {1, 4, 2, 2})}),
                 "in.safetensors: tensors \"k\" [1, 4, 1, 2] and \"v\" [1, 4, 2, 2] differ in head (axis 2)");
  expect_refused_with(
      check({tensor("q", {1, 4, 3, 2}), tensor("k", {1, 4, 2, 2}), tensor("v", {1, 4, 2, 2})}), "kv_heads");
  expect_refused_with(
      check({tensor("q", {1, 2, 1, 600}), tensor("k", {1, 2, 1, 600}), tensor("v", {1, 2, 1, 4})}),
      "head_dim_qk");
}

TEST_F(BadFile, ReferencesThatDoNotFit) {
  const std::vector<NamedFloats> inputs = {tensor("q", {1, 4, 2, 2}), tensor("k", {1, 4, 1, 2}),
                                           tensor("v", {1, 4, 1, 3})};
  std::vector<NamedFloats> with = inputs;
  with.push_back(tensor("o_ref", {1, 4, 2, 2}));
  expect_refused(check(with),
                 "in.safetensors: tensor \"o_ref\" has shape [1, 4, 2, 2], expected [1, 4, 2, 3]");
  with = inputs;
  with.push_back(tensor("lse_ref", {1, 2, 4}, "BF16"));
  expect_refused(check(with), "in.safetensors: tensor \"lse_ref\" is BF16, expected F32");
}

TEST_F(BadFile, NotFinite) {
  std::vector<NamedFloats> tensors = {tensor("q", {1, 4, 2, 3}), tensor("k", {1, 4, 1, 3}),
                                      tensor("v", {1, 4, 1, 3})};
  tensors[1].values[7] = kNaN;
  expect_refused(check(tensors),
                 "in.safetensors: tensor \"k\" is not finite at [0, 2, 0, 1]; --nan allow computes with it");
  tensors[0].values[23] = -kInfinity;
  expect_refused(check(tensors),
                 "in.safetensors: tensor \"q\" is not finite at [0, 3, 1, 2]; --nan allow computes with it");
  const ToolResult allowed = check(tensors, {"--nan", "allow"});
  EXPECT_EQ(allowed.exit_status, 0) << allowed.out << allowed.err;
  expect_refused_with(check(tensors, {"--nan", "perhaps"}), "--nan");
}

TEST_F(BadFile, Headers) {
  expect_refused(check_bytes("short"), "in.safetensors: 5 bytes are too few for a safetensors file");
  expect_refused(check_bytes(std::string(64, '\xff')),
                 "in.safetensors: header length 18446744073709551615 is above the limit of 100000000 (not a "
                 "safetensors file?)");
  expect_refused(check_bytes(safetensors_bytes("{\"q\":[", "")),
                 "in.safetensors: \"q\" is a list, expected a JSON object");
  const std::string whole =
      make_safetensors({tensor("q", {1, 4, 1, 2}), tensor("k", {1, 4, 1, 2}), tensor("v", {1, 4, 1, 2})});
  expect_refused_with(check_bytes(whole.substr(0, whole.size() - 1)),
                      "in.safetensors: tensor \"v\": data_offsets [64, 96] lie outside");
  expect_refused_with(check_bytes(whole.substr(0, 20)), "is beyond the end of the file");
  expect_refused(check_bytes(whole + "x"), "in.safetensors: 97 bytes of data, but the tensors take 96");
}

TEST_F(BadFile, ValuesOfOptions) {
  const std::vector<NamedFloats> good = {tensor("q", {1, 4, 1, 2}), tensor("k", {1, 4, 1, 2}),
                                         tensor("v", {1, 4, 1, 2})};
  expect_refused_with(check(good, {"--mask", "diagonal"}), "mask=diagonal: expected full, or causal");
  expect_refused_with(check(good, {"--mask", "causal,window:-1"}), "mask=causal,window:-1: expected");
  expect_refused_with(check(good, {"--partition", "spiral"}), "partition=spiral: expected contiguous");
  expect_refused_with(check(good, {"--partition", "striped:0"}), "partition=striped:0: expected");
  expect_refused_with(check(good, {"--ranks", "0"}), "ranks=0: expected an integer from 1 to 4096");
  expect_refused_with(check(good, {"--ranks", "many"}), "--ranks");
  expect_refused_with(check(good, {"--docs", "3,x"}), "docs=3,x: expected lengths");
  expect_refused_with(check(good, {"--docs", "3,3"}), "cu_");
  expect_refused_with(check(good, {"--scale", "-1"}), "scale");
  expect_refused_with(check(good, {"--scale", "wide"}), "scale=wide: expected a number");
  expect_refused_with(check(good, {"--offset", "first"}), "offset=first: expected an integer");
  expect_refused_with(check(good, {"--dtype-out", "f64"}), "dtype_out=f64: expected same, f32");
  expect_refused_with(check(good, {"--threads", "-1"}), "threads=-1: expected an integer from 0 to 1024");
  expect_refused_with(check(good, {"--frobnicate"}), "--frobnicate");
}

TEST_F(BadFile, OutputsThatCannotBe) {
  const std::vector<NamedFloats> good = {tensor("q", {1, 4, 1, 2}), tensor("k", {1, 4, 1, 2}),
                                         tensor("v", {1, 4, 1, 2})};
  expect_refused(check(good, {"--out", "in.safetensors"}), "--out in.safetensors is the input file");
  expect_refused(check(good, {"--out", "./in.safetensors"}), "--out ./in.safetensors is the input file");
  expect_refused(check(good, {"--out", "none/out.safetensors"}),
                 "cannot write none/out.safetensors: No such file or directory");
  expect_refused(check(good, {"--out", "."}), "output \".\" exists and is not a regular file");
  expect_refused(run_tool({"attend", "in.safetensors"}, folder_.path()),
                 "attend: expected --out, --check or both");
  expect_refused(run_tool({"attend", "missing", "--check"}, folder_.path()),
                 "cannot read missing: No such file or directory");
  EXPECT_EQ(folder_.names(), std::vector<std::string>{"in.safetensors"});
}

TEST_F(BadFile, TooLongForAnAnswerInFp64) {
  const std::vector<NamedFloats> tensors = {tensor("q", {1, 8200, 1, 1}), tensor("k", {1, 8200, 1, 1}),
                                            tensor("v", {1, 8200, 1, 1})};
  expect_refused(check(tensors),
                 "--check: the file has no o_ref and lse_ref and the sequence is too long for an answer in "
                 "fp64 (at most 8,192 "
                 "queries and keys)");
}

TEST(BadCommandLine, OneLineAndExitTwo) {
  expect_refused(run_tool({}), "expected a subcommand: info, plan, attend, verify, demo or run (see --help)");
  expect_refused(run_tool({"fly"}),
                 "unknown command \"fly\": expected info, plan, attend, verify, demo or run (see --help)");
  expect_refused(run_tool({"fly", "n=10", "--rank", "0"}),
                 "unknown command \"fly\": expected info, plan, attend, verify, demo or run (see --help)");
  expect_refused_with(run_tool({"--fly"}), "--fly");
  expect_refused_with(run_tool({"info", "more"}), "more");
  expect_refused_with(run_tool({"plan"}), "problem is required");
  expect_refused_with(run_tool({"attend", "--check"}), "input is required");
  expect_refused_with(run_tool({"demo", "--ranks"}), "--ranks");
  expect_refused_with(run_tool({"demo", "--ranks", "0"}), "ranks=0: expected an integer from 1 to 4096");
  expect_refused(run_tool({"demo", "--tokens", "0"}), "--tokens 0: expected at least 1");
  expect_refused(run_tool({"demo", "--out-dir", "/nonexistent"}),
                 "cannot write /nonexistent/demo-timeline.svg: No such file or directory");
}

TEST(BadCommandLine, Problems) {
  expect_refused_with(run_tool({"plan", "n=10", "colour=red"}),
                      "colour=red: unknown key \"colour\"; expected one of n q k");
  expect_refused_with(run_tool({"plan", "n=ten"}), "n=ten: expected an integer of at least 0");
  expect_refused_with(run_tool({"plan", "heads=2"}), "the length is missing");
  expect_refused_with(run_tool({"plan", "n=10", "n=11"}), "expected only once");
  expect_refused_with(run_tool({"plan", "n=10", "dim=577"}), "head_dim_qk: 577, expected 1..576");
  expect_refused_with(run_tool({"plan", "n=10", "heads=3", "kv_heads=2"}),
                      "kv_heads: 2, expected a divisor of heads (3)");
  expect_refused(run_tool({"plan", "n=10", "ranks=2", "--rank", "2"}),
                 "--rank 2: expected less than ranks=2");
  expect_refused_with(run_tool({"plan", "n=10", "--rank", "-2"}), "--rank");
  expect_refused(run_tool({"plan", "n=10", "dtype_grad=f32"}),
                 "dtype_grad=f32 without pass=backward: expected both, or no dtype_grad");
  expect_refused_with(run_tool({"plan", "n=10", "pass=sideways"}),
                      "pass=sideways: expected forward, backward");
  expect_refused_with(run_tool({"plan", "n=10\n\x1b[31m=1"}), " [31m=1: unknown key \" [31m\"");
  expect_refused(run_tool({"plan", "n=10", "--picture", "x.png"}),
                 "--picture x.png: expected the name of an .svg file");
  expect_refused(run_tool({"plan", "n=10", "ranks=200", "--picture", "p.svg"}),
                 "--picture: ranks=200 are too many to draw, at most 128");
}

TEST(BadCommandLine, FilesOfProblems) {
  const TemporaryFolder folder;
  expect_refused(run_tool({"verify"}, folder.path()), "verify: expected either a PROBLEM or --file");
  expect_refused(run_tool({"verify", "n=3", "--file", "x"}, folder.path()),
                 "verify: expected either a PROBLEM or --file");
  expect_refused_with(run_tool({"verify", "--file", "x"}, folder.path()),
                      "cannot read x: No such file or directory");
  write_file(folder.file("empty"), "# nothing\n\n");
  expect_refused(run_tool({"verify", "--file", "empty"}, folder.path()), "empty has no problem");
  write_file(folder.file("typo"), "n=3\n\nn=4 hedas=2 # a comment\n");
  const ToolResult typo = run_tool({"verify", "--file", "typo"}, folder.path());
  expect_refused_with(typo, "typo:3: hedas=2: unknown key \"hedas\"");
  EXPECT_EQ(typo.out, "") << "nothing runs before all lines were read";
  write_file(folder.file("refused"), "n=3\nn=4 dim=600\n");
  expect_refused_with(run_tool({"verify", "--file", "refused"}, folder.path()), "refused:2: ");
  expect_refused_with(run_tool({"verify", "n=3", "transport=pigeon"}), "pigeon");
}

}  // namespace
}  // namespace ringattn::tools_test
