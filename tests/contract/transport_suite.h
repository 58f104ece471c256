// What the contract's test files share: a fixture with a watchdog, and one instantiation over all transports.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "support/transport_ring.h"

namespace ringattn::test {

class TransportSuite : public testing::TestWithParam<TransportSubject> {
 protected:
  bool lends() const { return (GetParam().table->caps & RINGATTN_TRANSPORT_LENDS) != 0; }

 private:
  Watchdog watchdog_{GetParam().name};
};

inline std::vector<std::uint8_t> bytes_from(std::uint8_t first, std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  std::iota(bytes.begin(), bytes.end(), first);
  return bytes;
}

inline std::vector<std::uint8_t> contents(const Completion& completion) {
  const auto* data = static_cast<const std::uint8_t*>(completion.data);
  return completion.data == nullptr ? std::vector<std::uint8_t>()
                                    : std::vector<std::uint8_t>(data, data + completion.bytes);
}

// Those of all transports that lend.
inline std::vector<TransportSubject> lending_subjects() {
  std::vector<TransportSubject> subjects = transport_subjects();
  std::erase_if(subjects, [](const TransportSubject& subject) {
    return (subject.table->caps & RINGATTN_TRANSPORT_LENDS) == 0;
  });
  return subjects;
}

#define RINGATTN_TRANSPORT_SUITE(Suite, subjects)                   \
  class Suite : public TransportSuite {};                           \
  INSTANTIATE_TEST_SUITE_P(All, Suite, testing::ValuesIn(subjects), \
                           [](const auto& instance) { return instance.param.name; })

}  // namespace ringattn::test
