// The library's handles, destroyed in the order that it asks for.
#pragma once
#include <memory>

#include "ringattn.h"

namespace ringattn::tool {

template <auto destroy>
struct Destroyer {
  template <typename T>
  void operator()(T* handle) const {
    destroy(handle);
  }
};

using Context = std::unique_ptr<ringattn_context, Destroyer<ringattn_context_destroy>>;
using Comm = std::unique_ptr<ringattn_comm, Destroyer<ringattn_comm_destroy>>;
using Plan = std::unique_ptr<ringattn_plan, Destroyer<ringattn_plan_destroy>>;
using Request = std::unique_ptr<ringattn_request, Destroyer<ringattn_request_destroy>>;

}  // namespace ringattn::tool
