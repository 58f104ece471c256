// A test fixture that runs once for each kernel there is; kernels that this CPU cannot run are skipped by name.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/kernel.h"
#include "kernels/reference/reference.h"
#include "kernels/select.h"

namespace ringattn::kernels::test {

inline std::vector<std::string> all_kernel_names() {
  const auto known = known_kernel_names();
  std::vector<std::string> names(known.begin(), known.end());
  names.push_back(reference_fp64_kernel().name);
  return names;
}

class EveryKernel : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == reference_fp64_kernel().name) {
      kernel_ = &reference_fp64_kernel();
      return;
    }
    Problem problem;
    const Choice choice = choose(problem, GetParam());
    if (choice.kernel == nullptr) {
      ASSERT_FALSE(choice.unknown) << choice.refusal;
      GTEST_SKIP() << choice.refusal;
    }
    kernel_ = choice.kernel;
    ASSERT_EQ(GetParam(), kernel_->name);
    // No two kernels share their code, so the one that runs is the one that was named.
    for (const Kernel* other : kernels()) ASSERT_TRUE(other == kernel_ || other->attend != kernel_->attend);
  }
  const Kernel& kernel() const { return *kernel_; }

 private:
  const Kernel* kernel_ = nullptr;
};

inline std::string parameter_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& letter : name) {
    if (letter == '.') letter = '_';
  }
  return name;
}

#define RINGATTN_FOR_EVERY_KERNEL(fixture)                                                                 \
  INSTANTIATE_TEST_SUITE_P(All, fixture, testing::ValuesIn(::ringattn::kernels::test::all_kernel_names()), \
                           ::ringattn::kernels::test::parameter_name)

}  // namespace ringattn::kernels::test
