// Tests that run over every transport between processes; one that cannot run here is skipped with its reason.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/faults/batch.h"

namespace ringattn::faults {

class OnTransport : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    static std::map<std::string, std::string> reasons;
    if (reasons.count(GetParam()) == 0) reasons[GetParam()] = why_not(GetParam());
    if (!reasons[GetParam()].empty())
      GTEST_SKIP() << "transport " << GetParam() << ": " << reasons[GetParam()];
  }
};

// Sanitizers make everything several times slower.
#if defined(RINGATTN_ASAN) || defined(RINGATTN_TSAN)
inline constexpr int kSlowdown = 5;
#else
inline constexpr int kSlowdown = 1;
#endif

}  // namespace ringattn::faults

#define RINGATTN_ON_EVERY_TRANSPORT(suite)                                                    \
  INSTANTIATE_TEST_SUITE_P(Over, suite, ::testing::ValuesIn(::ringattn::faults::kTransports), \
                           [](const auto& info) { return info.param; })
