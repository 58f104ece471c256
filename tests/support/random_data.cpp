#include "tests/support/random_data.h"

#include <limits>

#include "tests/support/visibility.h"

namespace ringattn::support {
namespace {

std::uint64_t rotate(std::uint64_t value, int by) { return (value << by) | (value >> (64 - by)); }

std::uint64_t splitmix(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Rows that belong to no sequence: NaN, so that whoever reads them is caught.
void poison_padding(HostTensor& tensor, const std::vector<TokenPlace>& places, std::int64_t batch_row) {
  for (std::int64_t s = 0; s < tensor.shape(1); ++s) {
    if (places[static_cast<std::size_t>(s)].sequence >= 0) continue;
    for (std::int64_t h = 0; h < tensor.shape(2); ++h) {
      for (std::int64_t d = 0; d < tensor.shape(3); ++d) tensor.set(batch_row, s, h, d, kNaN);
    }
  }
}

// The same for an lse tensor [batch, head, seq, 1].
void poison_padding_of_lse(HostTensor& lse, const std::vector<TokenPlace>& places, std::int64_t batch_row) {
  for (std::int64_t s = 0; s < lse.shape(2); ++s) {
    if (places[static_cast<std::size_t>(s)].sequence >= 0) continue;
    for (std::int64_t h = 0; h < lse.shape(1); ++h) lse.set(batch_row, h, s, 0, kNaN);
  }
}

}  // namespace

Random::Random(std::uint64_t seed) {
  for (std::uint64_t& word : state_) word = splitmix(seed);
}

std::uint64_t Random::bits() {
  const std::uint64_t result = rotate(state_[1] * 5, 7) * 9;
  const std::uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = rotate(state_[3], 45);
  return result;
}

std::int64_t Random::below(std::int64_t limit) {
  return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(limit));
}

double Random::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

double Random::normal() {
  // Twelve 16-bit uniform numbers out of three draws: an exact integer with mean 12 * 65535 / 2 and deviation
  // 65536.
  std::int64_t sum = 0;
  for (int draw = 0; draw < 3; ++draw) {
    for (std::uint64_t word = bits(), part = 0; part < 4; ++part, word >>= 16) {
      sum += static_cast<std::int64_t>(word & 0xffffu);
    }
  }
  return static_cast<double>(sum - 393210) / 65536.0;
}

void fill_normal(HostTensor& tensor, Random& random) {
  for (std::int64_t b = 0; b < tensor.shape(0); ++b) {
    for (std::int64_t s = 0; s < tensor.shape(1); ++s) {
      for (std::int64_t h = 0; h < tensor.shape(2); ++h) {
        for (std::int64_t d = 0; d < tensor.shape(3); ++d) tensor.set(b, s, h, d, random.normal());
      }
    }
  }
}

Inputs zero_inputs(const ProblemLine& problem) {
  const std::int64_t kv_heads = problem.effective_kv_heads();
  Inputs inputs;
  inputs.q =
      HostTensor(problem.dtype, {problem.batch, problem.queries, problem.heads, problem.dim}, problem.layout);
  inputs.k = HostTensor(problem.dtype, {problem.batch, problem.keys, kv_heads, problem.dim}, problem.layout);
  inputs.v = HostTensor(problem.dtype, {problem.batch, problem.keys, kv_heads, problem.effective_dim_v()},
                        problem.layout);
  if (problem.backward) {
    inputs.d_o = HostTensor(problem.effective_dtype_out(),
                            {problem.batch, problem.queries, problem.heads, problem.effective_dim_v()},
                            problem.layout);
    inputs.d_lse =
        HostTensor(RINGATTN_DTYPE_F32, {problem.batch, problem.heads, problem.queries, 1}, problem.layout);
  }
  return inputs;
}

Inputs random_inputs(const ProblemLine& problem, std::uint64_t seed) {
  Random random(seed + problem.seed * 0x9e3779b97f4a7c15ull);
  Inputs inputs = zero_inputs(problem);
  fill_normal(inputs.q, random);
  fill_normal(inputs.k, random);
  fill_normal(inputs.v, random);
  fill_normal(inputs.d_o, random);
  fill_normal(inputs.d_lse, random);
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    poison_padding(inputs.q, query_places(problem, b), b);
    poison_padding(inputs.k, key_places(problem, b), b);
    poison_padding(inputs.v, key_places(problem, b), b);
    if (!problem.backward) continue;
    poison_padding(inputs.d_o, query_places(problem, b), b);
    poison_padding_of_lse(inputs.d_lse, query_places(problem, b), b);
  }
  return inputs;
}

}  // namespace ringattn::support
