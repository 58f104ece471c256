#include "tests/faults/values.h"

#include "tests/support/limits.h"

namespace ringattn::faults {
namespace {

using support::HostTensor;
using support::ProblemLine;

// Powers of two and a sign: what comes out is that of the plain inputs times a power of two, exactly. Q and K have the
// sign both, so scores stay what they are and a stale K shows.
struct Factors {
  double sign;     // of q and k
  double value;    // of v, and so of o
  double flowing;  // of d_o
  double gradient_qk() const { return sign * value * flowing; }
};

Factors factors_of(std::uint64_t number, std::int64_t row) {
  const std::uint64_t step = number + 3 * static_cast<std::uint64_t>(row);
  constexpr double kValue[] = {1, 8, 2, 4};
  constexpr double kFlowing[] = {1, 2, 4};
  return {step % 2 == 0 ? 1.0 : -1.0, kValue[step % 4], kFlowing[step % 3]};
}

// Rows `owned` of the one row of the batch in `from`, times `factor`, to row `row` of `to`.
void take(const HostTensor& from, const std::vector<std::int64_t>& owned, double factor, std::int64_t row,
          HostTensor& to) {
  for (std::size_t i = 0; i < owned.size(); ++i) {
    for (std::int64_t h = 0; h < from.shape(2); ++h) {
      for (std::int64_t d = 0; d < from.shape(3); ++d) {
        to.set(row, static_cast<std::int64_t>(i), h, d, from.get(0, owned[i], h, d) * factor);
      }
    }
  }
}

// The other way: into a whole row, whose other tokens are other ranks' business.
void put(const HostTensor& from, const std::vector<std::int64_t>& owned, double factor, std::int64_t row,
         HostTensor& to) {
  for (std::size_t i = 0; i < owned.size(); ++i) {
    for (std::int64_t h = 0; h < to.shape(2); ++h) {
      for (std::int64_t d = 0; d < to.shape(3); ++d) {
        to.set(0, owned[i], h, d, from.get(row, static_cast<std::int64_t>(i), h, d) / factor);
      }
    }
  }
}

// lse lies [batch, head, query, 1].
void put_lse(const HostTensor& from, const std::vector<std::int64_t>& owned, std::int64_t row,
             HostTensor& to) {
  for (std::size_t i = 0; i < owned.size(); ++i) {
    for (std::int64_t h = 0; h < to.shape(1); ++h) {
      to.set(0, h, owned[i], 0, from.get(row, h, static_cast<std::int64_t>(i), 0));
    }
  }
}

template <typename Number>
HostTensor dense(ringattn_dtype dtype, const std::array<std::int64_t, 4>& shape,
                 const std::vector<Number>& all) {
  HostTensor tensor(dtype, shape);
  std::size_t at = 0;
  for (std::int64_t s = 0; s < shape[1]; ++s) {
    for (std::int64_t h = 0; h < shape[2]; ++h) {
      for (std::int64_t d = 0; d < shape[3]; ++d) tensor.set(0, s, h, d, static_cast<double>(all[at++]));
    }
  }
  return tensor;
}

template <typename Number>
HostTensor dense_lse(std::int64_t heads, std::int64_t queries, const std::vector<Number>& all) {
  HostTensor tensor(RINGATTN_DTYPE_F32, {1, heads, queries, 1});
  for (std::int64_t s = 0; s < queries; ++s) {
    for (std::int64_t h = 0; h < heads; ++h) {
      tensor.set(0, h, s, 0, static_cast<double>(all[static_cast<std::size_t>(s * heads + h)]));
    }
  }
  return tensor;
}

ProblemLine one_row(ProblemLine problem) {
  problem.batch = 1;
  problem.backward = true;
  return problem;
}

std::array<std::int64_t, 4> shape_of_o(const ProblemLine& row) {
  return {1, row.queries, row.heads, row.effective_dim_v()};
}

}  // namespace

Values::Values(const ProblemLine& problem)
    : problem_(problem),
      row_(one_row(problem)),
      inputs_(support::random_inputs(row_, 1)),
      oracle_(support::oracle_attention(row_, inputs_.q, inputs_.k, inputs_.v)),
      plain_(support::plain_attention(row_, inputs_.q, inputs_.k, inputs_.v)),
      o_(dense(row_.effective_dtype_out(), shape_of_o(row_), oracle_.o)),
      lse_(dense_lse(row_.heads, row_.queries, oracle_.lse)) {
  problem_.backward = true;
  support::PlainResult given = plain_;
  given.o = o_.to_floats();
  gradients_ =
      support::oracle_backward(row_, inputs_.q, inputs_.k, inputs_.v, inputs_.d_o, nullptr, 1, {}, &o_);
  plain_gradients_ =
      support::plain_backward(row_, inputs_.q, inputs_.k, inputs_.v, given, inputs_.d_o, nullptr);
}

void Values::fill(support::RankTensors& tensors, const Owned& owned, std::uint64_t number) const {
  for (std::int64_t row = 0; row < problem_.batch; ++row) {
    const Factors factors = factors_of(number, row);
    take(inputs_.q, owned.queries, factors.sign, row, tensors.q);
    take(inputs_.k, owned.keys, factors.sign, row, tensors.k);
    take(inputs_.v, owned.keys, factors.value, row, tensors.v);
  }
  tensors.poison_outputs();
}

void Values::fill_results(support::RankTensors& tensors, const Owned& owned, std::uint64_t number) const {
  for (std::int64_t row = 0; row < problem_.batch; ++row) {
    const Factors factors = factors_of(number, row);
    take(o_, owned.queries, factors.value, row, tensors.o);
    take(inputs_.d_o, owned.queries, factors.flowing, row, tensors.d_o);
    for (std::size_t i = 0; i < owned.queries.size(); ++i) {
      for (std::int64_t h = 0; h < problem_.heads; ++h) {
        tensors.lse.set(row, h, static_cast<std::int64_t>(i), 0, lse_.get(0, h, owned.queries[i], 0));
      }
    }
  }
}

std::string Values::check_forward(const support::RankTensors& tensors, const Owned& owned,
                                  std::uint64_t number) const {
  for (std::int64_t row = 0; row < problem_.batch; ++row) {
    HostTensor o = dense(row_.effective_dtype_out(), shape_of_o(row_), plain_.o);
    HostTensor lse = dense_lse(row_.heads, row_.queries, plain_.lse);
    put(tensors.o, owned.queries, factors_of(number, row).value, row, o);
    put_lse(tensors.lse, owned.queries, row, lse);
    const support::LimitResult of_o = check_o(o, oracle_, plain_);
    if (!of_o.ok) return "batch row " + std::to_string(row) + ": " + of_o.worst;
    const support::LimitResult of_lse = check_lse(lse, oracle_, plain_);
    if (!of_lse.ok) return "batch row " + std::to_string(row) + ": " + of_lse.worst;
  }
  return "";
}

std::string Values::check_backward(const support::RankTensors& tensors, const Owned& owned,
                                   std::uint64_t number) const {
  for (std::int64_t row = 0; row < problem_.batch; ++row) {
    const Factors factors = factors_of(number, row);
    const auto wrong = [&](const char* name, const HostTensor& local, const std::vector<std::int64_t>& tokens,
                           double factor, const support::OracleGradient& oracle,
                           const std::vector<float>& plain) {
      HostTensor whole = dense(row_.effective_dtype_grad(), oracle.shape, plain);
      put(local, tokens, factor, row, whole);
      const support::LimitResult limit = check_gradient(name, whole, oracle, plain);
      return limit.ok ? std::string() : "batch row " + std::to_string(row) + ": " + limit.worst;
    };
    std::string text =
        wrong("d_q", tensors.d_q, owned.queries, factors.gradient_qk(), gradients_.d_q, plain_gradients_.d_q);
    if (text.empty())
      text =
          wrong("d_k", tensors.d_k, owned.keys, factors.gradient_qk(), gradients_.d_k, plain_gradients_.d_k);
    if (text.empty())
      text = wrong("d_v", tensors.d_v, owned.keys, factors.flowing, gradients_.d_v, plain_gradients_.d_v);
    if (!text.empty()) return text;
  }
  return "";
}

}  // namespace ringattn::faults
