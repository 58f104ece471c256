#include "tests/support/problem_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "tests/support/random_data.h"

namespace ringattn::support {
namespace {

std::vector<std::int64_t> cumulative(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> sums(1, 0);
  for (const std::int64_t length : lengths) sums.push_back(sums.back() + length);
  return sums;
}

using RunsOfRanks = std::vector<std::vector<ringattn_run>>;

RunsOfRanks pieces_in_order(const std::vector<std::int64_t>& pieces) {
  RunsOfRanks runs(pieces.size());
  std::int64_t first = 0;
  for (std::size_t rank = 0; rank < pieces.size(); ++rank) {
    if (pieces[rank] > 0) runs[rank].push_back({first, pieces[rank], 1});
    first += pieces[rank];
  }
  return runs;
}

RunsOfRanks even_pieces(std::int64_t length, int ranks) {
  std::vector<std::int64_t> pieces(static_cast<std::size_t>(ranks), length / ranks);
  for (std::int64_t rank = 0; rank < length % ranks; ++rank) ++pieces[static_cast<std::size_t>(rank)];
  return pieces_in_order(pieces);
}

// Cuts the axis into random stretches. One in two goes to a single rank; the others are dealt out to several in turn,
// so that runs with a stride and runs that interleave occur. Local order is sorted for some seeds, shuffled for others.
RunsOfRanks random_runs(std::int64_t length, int ranks, Random& random) {
  RunsOfRanks runs(static_cast<std::size_t>(ranks));
  const auto some_rank = [&] { return static_cast<std::size_t>(random.below(ranks)); };
  std::int64_t first = 0;
  while (first < length) {
    const std::int64_t stretch = std::min(length - first, 1 + random.below(1 + 2 * length / (3 * ranks)));
    const std::int64_t dealt =
        random.below(2) == 0 ? 1 : 1 + random.below(std::min<std::int64_t>(stretch, 4));
    for (std::int64_t i = 0; i < dealt; ++i) {
      const std::int64_t count = (stretch - i + dealt - 1) / dealt;
      runs[some_rank()].push_back({first + i, count, dealt});
    }
    first += stretch;
  }
  if (random.below(2) == 0) {
    for (auto& mine : runs) {
      for (std::size_t i = mine.size(); i > 1; --i) {
        std::swap(mine[i - 1], mine[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
      }
    }
  }
  return runs;
}

}  // namespace

ProblemPlan::ProblemPlan(const ProblemLine& problem) {
  ringattn_plan_desc desc = RINGATTN_STRUCT(ringattn_plan_desc);
  desc.flags = problem.backward ? RINGATTN_PLAN_BACKWARD : 0;
  desc.batch = problem.batch;
  desc.seq_q = problem.queries;
  desc.seq_k = problem.keys;
  desc.heads = problem.heads;
  desc.kv_heads = problem.kv_heads;
  desc.head_dim_qk = problem.dim;
  desc.head_dim_v = problem.dim_v;
  desc.max_sequences = problem.max_docs;
  if (problem.docs && problem.max_docs == 0) {
    const auto count = static_cast<std::int64_t>(problem.docs->size());
    desc.max_sequences = std::max({std::int64_t{1}, problem.batch, count});
  }
  desc.dtype = problem.dtype;
  desc.dtype_out = problem.dtype_out;
  desc.mask = problem.mask;
  desc.accuracy = problem.accuracy;
  desc.window_left = problem.window_left;
  desc.window_right = problem.window_right;
  desc.scale = problem.scale;
  desc.partition = problem.partition;
  desc.query_cut = problem.query_cut;
  desc.scope = problem.scope;
  desc.stripe = problem.stripe;
  desc.dtype_grad = problem.dtype_grad;
  descs_.assign(static_cast<std::size_t>(problem.ranks), desc);
  if (problem.partition == RINGATTN_PARTITION_EXPLICIT) cut_explicit(problem);

  has_call_ = problem.docs.has_value() || problem.offset.has_value();
  call_ = RINGATTN_STRUCT(ringattn_call);
  if (problem.docs) {
    call_.flags |= RINGATTN_CALL_SEQUENCES;
    call_.sequences = static_cast<std::int64_t>(problem.docs->size());
    cu_q_ = cumulative(*problem.docs);
    call_.cu_q = cu_q_.data();
    if (problem.docs_k) {
      cu_k_ = cumulative(*problem.docs_k);
      call_.cu_k = cu_k_.data();
    }
  }
  if (problem.offset) {
    call_.flags |= RINGATTN_CALL_QUERY_OFFSET;
    call_.query_offset = *problem.offset;
  }
}

void ProblemPlan::cut_explicit(const ProblemLine& problem) {
  Random random(problem.seed ^ 0x7275'6e73ull);
  const bool given = !problem.pieces.empty();
  runs_k_ = given ? pieces_in_order(problem.pieces) : random_runs(problem.keys, problem.ranks, random);
  const bool by_index = problem.query_cut == RINGATTN_QUERY_CUT_BY_INDEX ||
                        (problem.query_cut == RINGATTN_QUERY_CUT_AUTO && problem.queries != problem.keys);
  if (by_index) {
    runs_q_ = !given                            ? random_runs(problem.queries, problem.ranks, random)
              : problem.queries == problem.keys ? runs_k_
                                                : even_pieces(problem.queries, problem.ranks);
  }
  for (std::size_t rank = 0; rank < descs_.size(); ++rank) {
    descs_[rank].runs_k = runs_k_[rank].data();
    descs_[rank].runs_k_count = static_cast<std::int64_t>(runs_k_[rank].size());
    if (!by_index) continue;
    descs_[rank].runs_q = runs_q_[rank].data();
    descs_[rank].runs_q_count = static_cast<std::int64_t>(runs_q_[rank].size());
  }
}

ringattn_facts ProblemPlan::facts(bool lends) const {
  ringattn_facts facts = RINGATTN_STRUCT(ringattn_facts);
  facts.lends = lends ? 1 : 0;
  facts.descs = descs_[0].partition == RINGATTN_PARTITION_EXPLICIT ? descs_.data() : nullptr;
  return facts;
}

}  // namespace ringattn::support
