// The transport of tests that copies blocks, under a name of this folder's own.
#pragma once

#include "ringattn/transport.h"
#include "tests/api/wrong_use_ring.h"
#include "tests/support/fake_transport.h"

namespace ringattn::wrong_use {

inline const char* copying_transport() {
  static ringattn_transport_v1 table = *test::fake_copy();
  static const bool once = [] {
    table.name = "wrong_use_copy";
    Ring::require(ringattn_transport_register(&table));
    return true;
  }();
  static_cast<void>(once);
  return table.name;
}

}  // namespace ringattn::wrong_use
