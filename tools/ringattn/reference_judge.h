// A result against answers that a file brings, within limits that come from an fp64 answer of our own: a
// wrong reference cannot widen them.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ringattn.h"
#include "tests/support/limits.h"

namespace ringattn::tool {

// D21 with a reference: the result's differences from it, within limits that the plain implementation's
// differences from fp64 set.
class ReferenceJudge {
 public:
  // `exact`: the reference must be met exactly (a row that sees no key).
  void add(bool exact, double result, double reference, double oracle, double plain, double slack);
  // `place` names an element by its number.
  support::LimitResult judge(const std::function<std::string(std::int64_t)>& place) const;

 private:
  std::vector<double> differences_, plain_differences_, slack_, results_, references_;
};

// "name  max abs error ... (limit ...), rms ...", with what is out of tolerance.
std::string limit_text(const char* name, const support::LimitResult& limit);

// Element of a dense tensor of any of the floating types by its number.
float value_at(const ringattn_tensor& tensor, std::int64_t index);

}  // namespace ringattn::tool
