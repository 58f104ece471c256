// The scripted transports under their names, for every test of the program: a name can be registered once
// only.
#pragma once

#include <gtest/gtest.h>

#include "tests/support/fake_transport.h"

namespace ringattn::support {

inline void register_fake_transports() {
  static const bool registered = [] {
    EXPECT_EQ(ringattn_transport_register(test::fake_copy()), RINGATTN_OK) << ringattn_last_error();
    EXPECT_EQ(ringattn_transport_register(test::fake_lend()), RINGATTN_OK) << ringattn_last_error();
    return true;
  }();
  ASSERT_TRUE(registered);
}

}  // namespace ringattn::support
