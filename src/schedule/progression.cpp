#include "schedule/progression.h"

#include <utility>

namespace ringattn::schedule {

// Euclid's algorithm on (divisor, step), as in the AtCoder library: take out whole parts, then count the same
// lattice points from the other axis.
Wide floor_sum(std::int64_t count, std::int64_t divisor, std::int64_t step, std::int64_t numerator) {
  Wide n = count, m = divisor, a = step, b = numerator, sum = 0;
  while (n > 0) {
    sum += n * (n - 1) / 2 * (a / m) + n * (b / m);
    a %= m;
    b %= m;
    const Wide top = a * n + b;
    if (top < m) break;
    n = top / m;
    b = top % m;
    std::swap(m, a);
  }
  return sum;
}

namespace {

// gcd of a and b, and x with a * x = gcd (mod b).
std::int64_t extended_gcd(std::int64_t a, std::int64_t b, std::int64_t& x) {
  std::int64_t r0 = a, r1 = b, x0 = 1, x1 = 0;
  while (r1 != 0) {
    const std::int64_t quotient = r0 / r1;
    r0 = std::exchange(r1, r0 - quotient * r1);
    x0 = std::exchange(x1, x0 - quotient * x1);
  }
  x = x0;
  return r0;
}

}  // namespace

std::int64_t first_common(const Progression& a, const Progression& b) {
  if (a.length == 0 || b.length == 0) return -1;
  const std::int64_t from = std::max(a.first, b.first), to = std::min(a.last(), b.last());
  if (from > to) return -1;
  std::int64_t inverse = 0;
  const std::int64_t gcd = extended_gcd(a.stride, b.stride, inverse);
  const std::int64_t apart = b.first - a.first;
  if (apart % gcd != 0) return -1;
  // i with a.first + i * a.stride = b.first (mod b.stride); then the least common element that is in both.
  const std::int64_t cycle = b.stride / gcd;
  const std::int64_t i =
      static_cast<std::int64_t>((Wide(apart / gcd % cycle) * inverse % cycle + cycle) % cycle);
  const Wide common = a.first + Wide(i) * a.stride, period = Wide(a.stride) * cycle;
  const Wide skipped = common >= from ? 0 : (from - common + period - 1) / period;
  const Wide answer = common + skipped * period;
  return answer > to ? -1 : static_cast<std::int64_t>(answer);
}

}  // namespace ringattn::schedule
