// Under Open MPI's mpirun, where there is one.
#include <gtest/gtest.h>

#include "tool_process.h"

namespace ringattn::tools_test {
namespace {

constexpr const char* kMpirun = "timeout --kill-after=5 120 mpirun --allow-run-as-root --oversubscribe -n 4 ";

class Mpi : public ::testing::Test {
 protected:
  void SetUp() override {
    const ToolResult version = run_shell("mpirun --version", folder_.path());
    if (version.exit_status != 0 || version.out.find("Open MPI") == std::string::npos)
      GTEST_SKIP() << "no mpirun of Open MPI";
  }
  ToolResult run(const char* program) {
    std::string command(kMpirun);
    return run_shell(command.append(program), folder_.path());
  }
  TemporaryFolder folder_;
};

TEST_F(Mpi, TheExampleIsRight) {
#ifdef RINGATTN_MPI_EXAMPLE
  const ToolResult result = run("'" RINGATTN_MPI_EXAMPLE "'");
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_NE(result.out.find("4 processes in rings of 2, "), std::string::npos) << result.out;
#else
  GTEST_SKIP() << "no MPI for C, or a sanitizer's build: examples/06_mpi.c was not built";
#endif
}

TEST_F(Mpi, AttendFindsItsRing) {
  const std::int64_t tokens = 90;
  const auto tensor = [&](const char* name, std::uint64_t seed) {
    return NamedFloats{name, "F32", {1, tokens, 2, 8}, random_floats(tokens * 16, seed)};
  };
  write_file(folder_.file("in.safetensors"),
             make_safetensors({tensor("q", 1), tensor("k", 2), tensor("v", 3)}));
  const ToolResult result = run("% attend in.safetensors --mask causal --check --out out.safetensors");
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_NE(result.out.find("  4 processes; "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("\nverified\nwritten      out.safetensors\n"), std::string::npos) << result.out;
}

}  // namespace
}  // namespace ringattn::tools_test
