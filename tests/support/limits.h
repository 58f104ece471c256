// D21's limit: twice the plain implementation's largest and rms error, plus a slack per element, plus one ulp
// of the output dtype.
#pragma once

#include <string>
#include <vector>

#include "tests/support/host_tensor.h"
#include "tests/support/oracle.h"
#include "tests/support/oracle_backward.h"
#include "tests/support/plain.h"

namespace ringattn::support {

struct LimitResult {
  bool ok = true;
  double max_abs = 0;    // largest error of the result
  double rms = 0;        // its root mean square
  double limit_max = 0;  // the limit at the element that came closest to (or furthest beyond) its own
  double limit_rms = 0;
  std::string worst;  // that element in words: place, value, expected, limit; "" when the tensor is empty
};

// o is [batch, query, head, dim_v] in the problem's output dtype; lse is F32 [batch, head, query, 1]. A row
// without a visible key must be exactly O = 0 and lse = -inf. Where the oracle is non-finite, so must the
// result be.
LimitResult check_o(const HostTensor& o, const OracleResult& oracle, const PlainResult& plain);
LimitResult check_lse(const HostTensor& lse, const OracleResult& oracle, const PlainResult& plain);

// gradient is like the input it belongs to, in the problem's dtype of gradients; `name` ("d_q") begins the places.
// What nothing flows into (OracleGradient::reached) must be exactly 0. Beside D21's slack there is 2^-23 times
// abs_products: where a row sees one key, dO.v - delta is the rounding of two sums and nothing else; the plain
// implementation takes both sums in one order and gets 0, which nobody can match who does not. And there is the way that
// the given O's own rounding moves the gradient (OracleGradient::shift), exactly: that O is judged by check_o.
LimitResult check_gradient(const char* name, const HostTensor& gradient, const OracleGradient& oracle,
                           const std::vector<float>& plain);
// The part of an element's limit that does not come from the plain implementation.
double gradient_slack(const OracleGradient& oracle, std::size_t element, ringattn_dtype dtype_grad);

// The same rule over bare numbers: element i may be off by 2 * (plain's largest error) + slack[i].
LimitResult check_limit(const std::vector<double>& result, const std::vector<double>& expected,
                        const std::vector<double>& plain, const std::vector<double>& slack);

}  // namespace ringattn::support
