// The border: no exception leaves, every failure leaves its message for ringattn_last_error.
#pragma once
#include <exception>
#include <new>

#include "base/status.h"

namespace ringattn::api {

// Stores the message for this thread (OK clears it) and returns the code.
ringattn_status report(const Status& status) noexcept;

template <typename Function>
ringattn_status guarded(Function&& function) noexcept {
  try {
    return report(function());
  } catch (const std::bad_alloc&) {
    return report({RINGATTN_ERR_OUT_OF_MEMORY, "out of memory"});
  } catch (const std::exception& error) {
    return report({RINGATTN_ERR_INTERNAL, std::string("unexpected: ") + error.what()});
  } catch (...) {
    return report({RINGATTN_ERR_INTERNAL, "unexpected exception"});
  }
}

// For what returns nothing: ringattn_last_error keeps what it says.
template <typename Function>
void quietly(Function&& function) noexcept {
  try {
    function();
  } catch (...) {  // nobody can be told
  }
}

}  // namespace ringattn::api
