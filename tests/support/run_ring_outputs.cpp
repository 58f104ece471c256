// What a run of run_ring came to: promises about memory, the gathered tensors, times.
#include <algorithm>
#include <limits>

#include "tests/support/run_ring_steps.h"
#include "tests/support/visibility.h"

namespace ringattn::support {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

bool is_zero(const HostTensor& tensor, std::int64_t b, std::int64_t s) {
  for (std::int64_t h = 0; h < tensor.shape(2); ++h) {
    for (std::int64_t d = 0; d < tensor.shape(3); ++d) {
      if (tensor.get(b, s, h, d) != 0) return false;
    }
  }
  return true;
}

void fill_row(HostTensor& tensor, std::int64_t b, std::int64_t s, double value) {
  for (std::int64_t h = 0; h < tensor.shape(2); ++h) {
    for (std::int64_t d = 0; d < tensor.shape(3); ++d) tensor.set(b, s, h, d, value);
  }
}

}  // namespace

std::uint64_t hash_of_inputs(const RankTensors& tensors, Pass pass) {
  std::uint64_t hash = 0;
  for (const HostTensor* tensor : {&tensors.q, &tensors.k, &tensors.v}) hash = hash * 31 + tensor->hash();
  if (pass == Pass::kForward) return hash;
  for (const HostTensor* tensor : {&tensors.o, &tensors.lse, &tensors.d_o, &tensors.d_lse}) {
    hash = hash * 31 + tensor->hash();
  }
  return hash;
}

bool RingRun::local_length(std::size_t rank, std::int32_t axis, std::int64_t batch_row,
                           std::int64_t& length) {
  return good(ringattn_plan_local_length(ranks_[rank].plan, axis, static_cast<int>(rank), batch_row,
                                         plan_values_.call(), &length),
              "ringattn_plan_local_length", static_cast<int>(rank));
}

bool RingRun::check_outputs(Pass pass) {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const RankTensors& tensors = *ranks_[r].tensors;
    const std::string who = "rank " + std::to_string(r) + ": ";
    for (const HostTensor* tensor :
         {&tensors.q, &tensors.k, &tensors.v, &tensors.o, &tensors.lse, &tensors.d_o, &tensors.d_lse,
          &tensors.d_q, &tensors.d_k, &tensors.d_v}) {
      if (!tensor->guards_intact()) return broken(who + "bytes outside a tensor were written");
    }
    if (hash_of_inputs(tensors, pass) != ranks_[r].inputs_hash) return broken(who + "an input was written");
    for (std::int64_t b = 0; b < problem_.batch; ++b) {
      if (!check_padding(pass, r, b)) return false;
    }
  }
  return true;
}

// Rows beyond the call's local length: O = 0, lse = -inf; gradients are 0.
bool RingRun::check_padding(Pass pass, std::size_t rank, std::int64_t b) {
  const RankTensors& tensors = *ranks_[rank].tensors;
  const auto wrong = [&](std::int64_t row, const char* what) {
    return broken("rank " + std::to_string(rank) + ": padding row " + std::to_string(row) + " is not " +
                  what);
  };
  std::int64_t queries = 0, keys = 0;
  if (!local_length(rank, RINGATTN_AXIS_QUERY, b, queries)) return false;
  if (!local_length(rank, RINGATTN_AXIS_KEY, b, keys)) return false;
  for (std::int64_t s = queries; s < tensors.o.shape(1); ++s) {
    if (pass == Pass::kBackward) {
      if (!is_zero(tensors.d_q, b, s)) return wrong(s, "dQ = 0");
      continue;
    }
    if (!is_zero(tensors.o, b, s)) return wrong(s, "O = 0");
    for (std::int64_t h = 0; h < problem_.heads; ++h) {
      if (tensors.lse.get(b, h, s, 0) != kMinusInfinity) return wrong(s, "lse = -inf");
    }
  }
  for (std::int64_t s = keys; pass == Pass::kBackward && s < tensors.k.shape(1); ++s) {
    if (!is_zero(tensors.d_k, b, s)) return wrong(s, "dK = 0");
    if (!is_zero(tensors.d_v, b, s)) return wrong(s, "dV = 0");
  }
  return true;
}

bool RingRun::hide_padding() {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    RankTensors& tensors = *ranks_[r].tensors;
    for (std::int64_t b = 0; b < problem_.batch; ++b) {
      std::int64_t length = 0;
      if (!local_length(r, RINGATTN_AXIS_QUERY, b, length)) return false;
      for (std::int64_t s = length; s < tensors.o.shape(1); ++s) {
        fill_row(tensors.o, b, s, kNaN);
        for (std::int64_t h = 0; h < problem_.heads; ++h) tensors.lse.set(b, h, s, 0, kNaN);
      }
    }
  }
  return true;
}

// A global output. Rows of the call start as NaN, so that one which no rank returns is seen; rows beyond are
// padding.
HostTensor RingRun::unreturned(ringattn_dtype dtype, const HostTensor& local, std::int32_t axis) const {
  const bool of_queries = axis == RINGATTN_AXIS_QUERY;
  const std::int64_t length = of_queries ? problem_.queries : problem_.keys;
  HostTensor tensor(dtype, {problem_.batch, length, local.shape(2), local.shape(3)});
  for (std::int64_t b = 0; b < problem_.batch; ++b) {
    const std::vector<TokenPlace> places = of_queries ? query_places(problem_, b) : key_places(problem_, b);
    for (std::int64_t s = 0; s < length; ++s) {
      if (places[static_cast<std::size_t>(s)].sequence >= 0) fill_row(tensor, b, s, kNaN);
    }
  }
  return tensor;
}

bool RingRun::unshard(std::size_t rank, const Copy& copy) {
  const int number = static_cast<int>(rank);
  return good(
      ringattn_unshard(ranks_[rank].plan, copy.axis, number, plan_values_.call(), &copy.local, &copy.global),
      copy.name, number);
}

bool RingRun::gather() {
  const RankTensors& any = *ranks_.front().tensors;
  result_.o = unreturned(any.o.dtype(), any.o, RINGATTN_AXIS_QUERY);
  result_.lse = HostTensor(RINGATTN_DTYPE_F32, {problem_.batch, problem_.heads, problem_.queries, 1});
  for (std::int64_t b = 0; b < problem_.batch; ++b) {
    const std::vector<TokenPlace> places = query_places(problem_, b);
    for (std::int64_t s = 0; s < problem_.queries; ++s) {
      const bool padding = places[static_cast<std::size_t>(s)].sequence < 0;
      for (std::int64_t h = 0; h < problem_.heads; ++h) {
        result_.lse.set(b, h, s, 0, padding ? kMinusInfinity : kNaN);
      }
    }
  }
  if (problem_.backward) {
    result_.d_q = unreturned(any.d_q.dtype(), any.d_q, RINGATTN_AXIS_QUERY);
    result_.d_k = unreturned(any.d_k.dtype(), any.d_k, RINGATTN_AXIS_KEY);
    result_.d_v = unreturned(any.d_v.dtype(), any.d_v, RINGATTN_AXIS_KEY);
  }
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const RankTensors& local = *ranks_[r].tensors;
    std::vector<Copy> copies{
        {"ringattn_unshard of o", RINGATTN_AXIS_QUERY, result_.o.view(), local.o_view},
        {"ringattn_unshard of lse", RINGATTN_AXIS_QUERY, result_.lse.token_view(), local.lse.token_view()}};
    if (problem_.backward) {
      copies.push_back({"ringattn_unshard of d_q", RINGATTN_AXIS_QUERY, result_.d_q.view(), local.d_q_view});
      copies.push_back({"ringattn_unshard of d_k", RINGATTN_AXIS_KEY, result_.d_k.view(), local.d_k_view});
      copies.push_back({"ringattn_unshard of d_v", RINGATTN_AXIS_KEY, result_.d_v.view(), local.d_v_view});
    }
    for (const Copy& copy : copies) {
      if (!unshard(r, copy)) return false;
    }
  }
  return true;
}

bool RingRun::report() {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const int number = static_cast<int>(r);
    ringattn_times times = RINGATTN_STRUCT(ringattn_times);
    if (!good(ringattn_plan_get_times(ranks_[r].plan, &times), "ringattn_plan_get_times", number))
      return false;
    result_.times.push_back(times);
    if (!options_.trace) continue;
    std::vector<ringattn_event> events(1, RINGATTN_STRUCT(ringattn_event));
    std::uint64_t count = events.size();
    for (int attempt = 0; attempt < 2; ++attempt) {  // the first one tells how many there are
      events.resize(std::max<std::size_t>(1, static_cast<std::size_t>(count)), events[0]);
      if (!good(ringattn_plan_trace(ranks_[r].plan, events.data(), events.size(), &count, nullptr),
                "ringattn_plan_trace", number)) {
        return false;
      }
    }
    events.resize(static_cast<std::size_t>(count));
    result_.events.push_back(std::move(events));
  }
  return true;
}

}  // namespace ringattn::support
