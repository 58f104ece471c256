#include "tools/ringattn/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/random_data.h"
#include "tool_process.h"
#include "tools/ringattn/error.h"
#include "tools/ringattn/output_file.h"

namespace ringattn::tool {
namespace {

using tools_test::read_file;
using tools_test::safetensors_bytes;
using tools_test::TemporaryFolder;
using tools_test::write_file;

SafetensorsContent parse(const std::string& bytes) {
  return parse_safetensors(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

// The message of the refusal, "" where the bytes are accepted.
std::string refusal(const std::string& bytes) {
  try {
    parse(bytes);
    return "";
  } catch (const BadInput& error) {
    return error.what();
  }
}

std::string refusal(std::string_view header, std::size_t data_bytes) {
  return refusal(safetensors_bytes(header, std::string(data_bytes, 'x')));
}

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const std::string bytes = safetensors_bytes(
      R"({"__metadata__":{"causal":"1"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[2,10]},)"
      R"("b":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}}   )",
      "0123456789");
  const SafetensorsContent content = parse(bytes);
  ASSERT_EQ(content.tensors.size(), 2u);
  const StoredTensor& a = content.tensors.at("a");
  EXPECT_EQ(a.dtype, "F32");
  EXPECT_EQ(a.shape, (std::vector<std::int64_t>{2, 1}));
  ASSERT_EQ(a.data.size(), 8u);
  EXPECT_EQ(static_cast<char>(a.data[0]), '2');
  EXPECT_TRUE(content.tensors.at("b").shape.empty());
  EXPECT_EQ(content.metadata.at("causal"), "1");
}

TEST(Safetensors, AcceptsNoTensorsAndEmptyTensors) {
  EXPECT_EQ(refusal("{}", 0), "");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[0,9223372036854775807,4],"data_offsets":[0,0]}})", 0),
            "");
}

TEST(Safetensors, WritesWhatItReads) {
  const TemporaryFolder folder;
  const std::string path = folder.file("x.safetensors");
  const std::string first = "abcd", second = "0123456789ab";
  const auto bytes_of = [](const std::string& text) {
    return std::as_bytes(std::span(text.data(), text.size()));
  };
  {
    OutputFile file(path);
    write_safetensors(file,
                      {{"t", "F32", {1}, bytes_of(first)}, {"\"odd\n", "F16", {2, 3}, bytes_of(second)}},
                      {{"key", "va\"lue\xff"}});
    EXPECT_FALSE(std::filesystem::exists(path)) << "not before the commit";
    file.commit();
  }
  const SafetensorsFile file(path);
  EXPECT_EQ(file.at("t").dtype, "F32");
  EXPECT_TRUE(std::ranges::equal(file.at("t").data, bytes_of(first)));
  EXPECT_TRUE(std::ranges::equal(file.at("\"odd\n").data, bytes_of(second)));
  EXPECT_EQ(file.at("\"odd\n").shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_TRUE(file.metadata().contains("key"));
  EXPECT_TRUE(file.is_same_file(path));
  EXPECT_FALSE(file.is_same_file(folder.file("other")));
  EXPECT_EQ(folder.names(), std::vector<std::string>{"x.safetensors"});
}

TEST(Safetensors, AnUncommittedFileLeavesNothing) {
  const TemporaryFolder folder;
  write_file(folder.file("x"), "old");
  {
    OutputFile file(folder.file("x"));
    file.write("new");
  }
  EXPECT_EQ(read_file(folder.file("x")), "old");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"x"});
}

TEST(Safetensors, RefusesLengthsOfTheHeader) {
  EXPECT_EQ(refusal("1234567"), "7 bytes are too few for a safetensors file");
  EXPECT_EQ(refusal(""), "0 bytes are too few for a safetensors file");
  EXPECT_EQ(refusal(std::string(8, '\xff') + "{}"),
            "header length 18446744073709551615 is above the limit of 100000000 (not a safetensors file?)");
  std::string long_header = safetensors_bytes("{}", "");
  long_header[0] = 3;
  EXPECT_EQ(refusal(long_header), "header length 3 is beyond the end of the file, 2 bytes follow");
  EXPECT_EQ(refusal(std::string(8, '\0')), "the header does not begin with '{'");
}

TEST(Safetensors, RefusesWhatIsNotJson) {
  EXPECT_EQ(refusal("[]", 0), "the header does not begin with '{'");
  EXPECT_EQ(refusal("{\"a\"", 0), "the header is not JSON: error at its byte 5");
  EXPECT_EQ(refusal("{} trailing", 0), "the header is not JSON: error at its byte 6");
  EXPECT_EQ(refusal("{\"\xff\xfe\":1}", 0), "the header is not JSON: error at its byte 3");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[1e999],"data_offsets":[0,4]}})", 4),
            "the header is not JSON: error at its byte 34");
}

TEST(Safetensors, RefusesDuplicateKeys) {
  const std::string a = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_EQ(refusal("{" + a + "," + a + "}", 1), R"(the header names "a" twice)");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1),
            R"(tensor "a" has the key "dtype" twice)");
  EXPECT_EQ(refusal(R"({"__metadata__":{"k":"1","k":"2"}})", 0), R"(__metadata__ has the key "k" twice)");
}

TEST(Safetensors, RefusesAFormThatIsNotTheFormats) {
  EXPECT_EQ(refusal(R"({"a":3})", 0), R"("a" is 3, expected a JSON object)");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"U8","shape":[1]}})", 1), R"(tensor "a" has no data_offsets)");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":[1]}})", 1),
            R"(tensor "a" has the unknown key "strides")");
  EXPECT_EQ(refusal(R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,1]}})", 1),
            R"(tensor "a": dtype is 7, expected a string)");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1),
            R"(tensor "a": shape is -1, expected integers that are not negative)");
  EXPECT_EQ(
      refusal(R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", 1),
      R"(tensor "a": shape is a number that is not a 64-bit integer, expected integers that are not negative)");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1),
            R"(tensor "a": data_offsets has 1 values, expected begin and end)");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", 1),
            R"(tensor "a": data_offsets has more than two values)");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"Q9","shape":[1],"data_offsets":[0,1]}})", 1),
            R"(tensor "a": unknown dtype "Q9")");
  EXPECT_EQ(refusal(R"({"__metadata__":{"k":null}})", 0), R"(__metadata__ "k" is null, expected a string)");
}

TEST(Safetensors, RefusesDeepNestingWhereItBegins) {
  const std::string deep(200'000, '[');
  EXPECT_EQ(refusal("{\"a\":" + deep, 0), R"("a" is a list, expected a JSON object)");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"U8","shape":)" + deep, 0),
            R"(tensor "a": shape is a list, expected integers that are not negative)");
  std::string objects = "{";
  for (int i = 0; i < 100'000; ++i) objects += "\"a\":{";
  EXPECT_EQ(refusal(objects, 0), R"(tensor "a" has the unknown key "a")");
  std::string many_axes = R"({"a":{"dtype":"U8","shape":[1)";
  for (int i = 0; i < 16; ++i) many_axes += ",1";
  EXPECT_EQ(refusal(many_axes + R"(],"data_offsets":[0,1]}})", 1),
            R"(tensor "a": shape has more than 16 axes)");
}

TEST(Safetensors, RefusesProductsThatOverflow) {
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0),
            R"(tensor "a": shape [4611686018427387904, 4] is too large for 64 bits)");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,0]}})", 0),
            R"(tensor "a": shape is 18446744073709551615, expected integers that are not negative)");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1),
            R"(tensor "a": 12 bits are not whole bytes)");
}

TEST(Safetensors, RefusesOffsetsOutsideOverlapsAndHoles) {
  EXPECT_EQ(refusal(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 3),
            R"(tensor "a": data_offsets [0, 4] lie outside the 3 bytes of data)");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", 4),
            R"(tensor "a": data_offsets [4, 0] lie outside the 4 bytes of data)");
  EXPECT_EQ(
      refusal(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,18446744073709551615]}})",
          4),
      R"(tensor "a": data_offsets [18446744073709551615, 18446744073709551615] lie outside the 4 bytes of data)");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
            R"(tensor "a": data_offsets hold 4 bytes, but F32 [2] takes 8)");
  const std::string a = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)";
  EXPECT_EQ(refusal(a + R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", 6),
            R"(tensor "b": data begins at 2, an overlap where the tensor before it ends at 4)");
  EXPECT_EQ(refusal(a + R"("b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}})", 9),
            R"(tensor "b": data begins at 5, a hole where the tensor before it ends at 4)");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 6),
            "6 bytes of data, but the tensors take 4");
}

TEST(Safetensors, NamesFromTheFileStayOnOneLineAndShort) {
  const std::string name = "\\u0007\\n\xc3\xa9" + std::string(100'000, 'n');
  const std::string message = refusal("{\"" + name + "\":3}", 0);
  EXPECT_LT(message.size(), 200u);
  EXPECT_NE(message.find("\\x07\\x0a\\xc3\\xa9nnn"), std::string::npos) << message;
}

// Every cut of a valid file, and every single changed byte of its header.
TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string whole = tools_test::make_safetensors(
      {{"q", "F32", {1, 2, 1, 2}, {1, 2, 3, 4}}, {"k", "BF16", {1, 1}, {5}}}, R"({"scale":"0.5"})");
  ASSERT_EQ(refusal(whole), "");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(refusal(whole.substr(0, size)), "") << "cut to " << size << " bytes";
  }
}

// Neither a crash nor a span outside the file, whatever the bytes; run under the sanitizers too.
void expect_sane(const std::string& bytes, int& accepted) {
  try {
    const SafetensorsContent content = parse(bytes);
    ++accepted;
    const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
    for (const auto& [name, tensor] : content.tensors) {
      ASSERT_GE(tensor.data.data(), begin);
      ASSERT_LE(tensor.data.data() + tensor.data.size(), begin + bytes.size());
    }
  } catch (const BadInput& error) {
    const std::string_view message = error.what();
    ASSERT_FALSE(message.empty());
    ASSERT_LT(message.size(), 1000u) << message;
    ASSERT_TRUE(std::all_of(message.begin(), message.end(), [](char c) { return c >= 0x20 && c < 0x7f; }))
        << message;
  }
}

std::string mutated(std::string bytes, support::Random& random) {
  static constexpr std::string_view tokens[] = {"{",
                                                "}",
                                                "[",
                                                "]",
                                                ",",
                                                ":",
                                                "\"",
                                                "0",
                                                "-1",
                                                "1e308",
                                                "\\",
                                                "null",
                                                "\"F32\"",
                                                "true",
                                                "18446744073709551616",
                                                "\"__metadata__\""};
  const int edits = 1 + static_cast<int>(random.below(4));
  for (int i = 0; i < edits && !bytes.empty(); ++i) {
    const auto at = static_cast<std::size_t>(random.below(static_cast<std::int64_t>(bytes.size())));
    const auto length = static_cast<std::size_t>(random.below(24));
    switch (random.below(6)) {
      case 0:
        bytes[at] = static_cast<char>(random.below(256));
        break;
      case 1:
        bytes.erase(at, length);
        break;
      case 2:
        bytes.insert(at, bytes.substr(at, length));
        break;
      case 3:
        bytes.insert(at, tokens[static_cast<std::size_t>(random.below(std::size(tokens)))]);
        break;
      case 4:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
        break;
      default:
        bytes.resize(at);
    }
  }
  // Half of the time the length is put right again, so that the edits reach the JSON reader.
  if (bytes.size() >= 8 && random.below(2) == 0) {
    const std::size_t end = bytes.rfind('}');
    const std::size_t header = end == std::string::npos || end < 8 ? bytes.size() - 8 : end - 7;
    for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header >> (8 * i));
  }
  return bytes;
}

TEST(Safetensors, MutatedFilesNeitherCrashNorReachOutside) {
  const std::string whole = tools_test::make_safetensors(
      {{"q", "F32", {1, 2, 1, 2}, {1, 2, 3, 4}}, {"k", "BF16", {1, 1}, {5}}, {"v", "BF16", {0}, {}}},
      R"({"scale":"0.5"})");
  support::Random random(20251130);
  int accepted = 0;
  for (int i = 0; i < 30'000; ++i) {
    expect_sane(mutated(whole, random), accepted);
    if (::testing::Test::HasFatalFailure()) FAIL() << "at mutation " << i;
  }
  EXPECT_GT(accepted, 100) << "the mutations are too wild to reach what comes after the header";
  EXPECT_LT(accepted, 25'000) << "the mutations are too tame";
}

TEST(Safetensors, RefusesFilesThatCannotBeMapped) {
  const TemporaryFolder folder;
  const auto message = [](const std::string& path) -> std::string {
    try {
      const SafetensorsFile file(path);
      return "";
    } catch (const BadInput& error) {
      return error.what();
    }
  };
  const std::string missing = folder.file("missing");
  EXPECT_EQ(message(missing), "cannot read " + missing + ": No such file or directory");
  EXPECT_EQ(message(folder.path().string()), folder.path().string() + " is not a regular file");
  write_file(folder.file("empty"), "");
  EXPECT_EQ(message(folder.file("empty")),
            folder.file("empty") + ": 0 bytes are too few for a safetensors file");
}

TEST(Safetensors, AMissingTensorIsNamedWithThoseThatThereAre) {
  const TemporaryFolder folder;
  write_file(folder.file("x"),
             tools_test::make_safetensors({{"query", "F32", {1}, {1}}, {"key", "F32", {1}, {2}}}));
  const SafetensorsFile file(folder.file("x"));
  EXPECT_EQ(file.find("q"), nullptr);
  try {
    file.at("q");
    FAIL() << "accepted";
  } catch (const BadInput& error) {
    EXPECT_EQ(std::string(error.what()), folder.file("x") + ": no tensor \"q\"; the file has key, query");
  }
}

}  // namespace
}  // namespace ringattn::tool
