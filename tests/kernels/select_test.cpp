// Which kernel is chosen, and what is said when none is.
#include "kernels/select.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "kernels/kernel.h"

namespace ringattn::kernels::test {
namespace {

Problem problem_of(std::int64_t dim_qk, std::int64_t dim_v) {
  Problem problem;
  problem.head_dim_qk = dim_qk;
  problem.head_dim_v = dim_v;
  return problem;
}

TEST(SelectKernel, ListIsBestFirstAndEndsWithTheReference) {
  ASSERT_FALSE(kernels().empty());
  EXPECT_STREQ(kernels().back()->name, "cpu.reference");
  std::set<std::string> names;
  std::size_t place = 0;
  for (const Kernel* kernel : kernels()) {
    EXPECT_TRUE(names.insert(kernel->name).second) << kernel->name << " twice";
    const auto known = known_kernel_names();
    const auto found = std::find_if(known.begin(), known.end(),
                                    [&](const char* name) { return kernel->name == std::string(name); });
    ASSERT_NE(found, known.end()) << kernel->name;
    const auto index = static_cast<std::size_t>(found - known.begin());
    EXPECT_GE(index, place) << kernel->name << " is out of order";
    place = index;
  }
}

TEST(SelectKernel, TheFirstThatAcceptsIsChosen) {
  const Choice choice = choose(problem_of(576, 512), "");
  ASSERT_NE(choice.kernel, nullptr);
  EXPECT_EQ(choice.kernel, kernels().front());
  EXPECT_EQ(choice.refusal, "");
}

TEST(SelectKernel, EveryNameOfTheListCanBeForced) {
  for (const Kernel* kernel : kernels()) EXPECT_EQ(choose(problem_of(1, 1), kernel->name).kernel, kernel);
}

TEST(SelectKernel, UnknownNameListsTheNames) {
  const Choice choice = choose(problem_of(64, 64), "cpu.abacus");
  EXPECT_EQ(choice.kernel, nullptr);
  EXPECT_TRUE(choice.unknown);
  EXPECT_NE(choice.refusal.find("cpu.abacus"), std::string::npos) << choice.refusal;
  for (const Kernel* kernel : kernels())
    EXPECT_NE(choice.refusal.find(kernel->name), std::string::npos) << choice.refusal;
}

TEST(SelectKernel, KernelOfAnotherCpuIsKnownButRefused) {
  for (const char* name : known_kernel_names()) {
    const bool available = std::any_of(kernels().begin(), kernels().end(), [&](const Kernel* kernel) {
      return kernel->name == std::string(name);
    });
    const Choice choice = choose(problem_of(64, 64), name);
    EXPECT_EQ(choice.kernel != nullptr, available) << name;
    EXPECT_FALSE(choice.unknown) << name;
    EXPECT_EQ(choice.refusal.empty(), available) << choice.refusal;
  }
}

TEST(SelectKernel, HeadDimsBeyondTheLimitAreRefusedWithAReason) {
  for (const std::string& forced : {std::string(), std::string("cpu.reference")}) {
    const Choice choice = choose(problem_of(577, 64), forced);
    EXPECT_EQ(choice.kernel, nullptr);
    EXPECT_FALSE(choice.unknown);
    EXPECT_NE(choice.refusal.find("577"), std::string::npos) << choice.refusal;
    EXPECT_EQ(choice.refusal.find('\n'), std::string::npos);
  }
}

TEST(SelectKernel, SizesAreWholeCacheLines) {
  for (const Kernel* kernel : kernels()) {
    EXPECT_GE(kernel->lanes, 1);
    EXPECT_LE(kernel->lanes, kMaxLanes);
    EXPECT_GE(kernel->keys_per_task, 1);
    EXPECT_GE(kernel->backward.lanes, 1);
    EXPECT_LE(kernel->backward.lanes, kMaxBackwardLanes);
    EXPECT_GE(kernel->backward.keys_per_task, 1);
    for (const std::int64_t dim : {1, 63, 576}) {
      const Shape shape{dim, dim, 1, DType::bf16, DType::bf16, 1, false, DType::bf16};
      EXPECT_EQ(kernel->state_bytes(shape) % 64, 0u) << kernel->name;
      EXPECT_EQ(kernel->scratch_bytes(shape) % 64, 0u) << kernel->name;
      EXPECT_EQ(kernel->backward.state_bytes(shape) % 64, 0u) << kernel->name;
      EXPECT_EQ(kernel->backward.scratch_bytes(shape) % 64, 0u) << kernel->name;
    }
  }
}

}  // namespace
}  // namespace ringattn::kernels::test
