#include "schedule/capacity.h"

#include <algorithm>
#include <new>

#include "schedule/layout.h"
#include "schedule/partition.h"

namespace ringattn::schedule {
namespace {

constexpr Wide kMostElements = Wide{1} << 44;  // of a vector; beyond it no machine has the memory

std::int64_t checked(Wide elements) {
  if (elements > kMostElements) throw std::bad_alloc();
  return static_cast<std::int64_t>(elements);
}

std::int64_t sequences_of_row(const Problem& problem) {  // documents need batch = 1
  return problem.batch == 1 ? std::max<std::int64_t>(problem.max_sequences, 1) : 1;
}

bool likes_keys(const Problem& problem) {
  return problem.query_like_keys && problem.scope == Scope::capacity;
}

// Intervals cut by the borders between sequences give at most intervals + sequences - 1 runs, because the
// intervals of all ranks are disjoint; a progression may meet every sequence.
Wide runs_of_explicit(const Partition& partition, std::int64_t sequences) {
  Wide intervals = 0, from_progressions = 0;
  for (const auto& runs : *partition.runs) {
    for (const PositionRun& run : runs) {
      if (run.stride == 1) {
        intervals += 1;
      } else {
        from_progressions += std::min(run.length, sequences);
      }
    }
  }
  return from_progressions + (intervals > 0 ? intervals + sequences - 1 : 0);
}

// Runs of all ranks in one row, where `cut` is the longest length that is cut.
Wide runs_of_row(const Partition& partition, bool by_document, std::int64_t cut, std::int64_t sequences) {
  const Wide world = partition.world, borders = sequences - 1;
  switch (partition.kind) {
    case PartitionKind::contiguous:
      return by_document ? world * sequences : world + borders;
    case PartitionKind::zigzag:
      return by_document ? 2 * world * sequences : 2 * world + borders;
    case PartitionKind::striped:
      // In a sequence of its own, or met from within by its borders, a stripe may be incomplete.
      if (world == 1 || partition.stripe == 1) return world * sequences;
      return cut / partition.stripe + 1 + borders;
    case PartitionKind::explicit_runs:
      return runs_of_explicit(partition, sequences);
  }
  return 0;
}

AxisBound bound_of(const Problem& problem, const Partition& partition, std::int64_t tokens,
                   std::int64_t cut) {
  const std::int64_t sequences = sequences_of_row(problem), rows = std::max<std::int64_t>(problem.batch, 1);
  Wide shards_of_row = partition.world, segments = shards_of_row;
  if (partition.kind == PartitionKind::explicit_runs) {
    segments = 0;
    for (const auto& runs : *partition.runs) segments += static_cast<std::int64_t>(runs.size());
  }
  const Wide runs =
      std::min<Wide>(tokens, runs_of_row(partition, problem.scope == Scope::document, cut, sequences));
  segments = std::min(segments, runs);
  return {checked(rows * shards_of_row), checked(rows * runs), checked(rows * segments)};
}

// Most elements of the rank's stripes in `windows` intervals of `tokens` coordinates together, wherever they
// lie: start each window with a stripe, then go on through whole turns.
std::int64_t most_of_stripes(std::int64_t tokens, std::int64_t windows, std::int64_t stripe,
                             std::int64_t world) {
  stripe = std::min(stripe, std::max<std::int64_t>(tokens, 1));
  if (tokens / stripe < windows) return tokens;
  const std::int64_t rest = tokens - windows * stripe, turn = world * stripe;
  return windows * stripe + rest / turn * stripe + std::max<std::int64_t>(rest % turn - (turn - stripe), 0);
}

// LIKE_KEYS: the most queries that can stand on the rank's positions. Every sequence has one interval of
// them.
std::int64_t most_like_keys(const Problem& problem, const Partition& partition, std::int32_t rank) {
  const std::int64_t tokens = std::min(problem.seq_q, problem.seq_k);
  const std::int64_t windows = std::min(sequences_of_row(problem), std::max<std::int64_t>(tokens, 1));
  std::int64_t most = tokens;
  if (partition.kind == PartitionKind::striped) {
    most = most_of_stripes(tokens, windows, partition.stripe, partition.world);
  } else if (partition.kind == PartitionKind::zigzag && windows == 1) {
    // One interval reaches the rank's second piece only over the gap between both.
    const Cut cut(partition, rank, problem.seq_k);
    const Progression low = cut.piece(0), high = cut.piece(1);
    const std::int64_t gap = high.first - (low.first + low.length);
    most = std::max(std::min(tokens, std::max(low.length, high.length)), tokens - gap);
  } else if (partition.kind == PartitionKind::explicit_runs) {
    most = 0;
    for (const PositionRun& run : (*partition.runs)[static_cast<std::size_t>(rank)]) {
      most += std::min(run.length, most_of_stripes(tokens, windows, 1, run.stride));
    }
    most = std::min(most, tokens);
  }
  return std::min(most, share_of(partition, rank, problem.seq_k));
}

// DOCUMENT with stripes (counts of CONTIGUOUS are those of stripe 1): a rank's first stripe costs (rank + 1)
// stripes of a document and every further one a whole turn, so as many documents as can be, each just long
// enough.
std::int64_t most_in_striped_documents(std::int64_t tokens, std::int64_t documents, std::int64_t stripe,
                                       std::int64_t rank, std::int64_t world) {
  stripe = std::min(stripe, std::max<std::int64_t>(tokens, 1));
  const std::int64_t turn = world * stripe, shortest = (rank + 1) * stripe;
  const std::int64_t used = std::min(documents, tokens / shortest), rest = tokens - used * shortest;
  if (used < documents) return used * stripe + std::max<std::int64_t>(rest - rank * stripe, 0);
  return used * stripe + rest / turn * stripe + std::max<std::int64_t>(rest % turn - (turn - stripe), 0);
}

// DOCUMENT with ZIGZAG: a document gives the rank its first token at length rank + 1, the second at 2 world -
// rank, and then again two for every 2 world. With `used` documents the rest goes to second tokens, then to
// whole turns.
std::int64_t most_in_zigzag_documents(std::int64_t tokens, std::int64_t documents, std::int64_t rank,
                                      std::int64_t world) {
  const std::int64_t first = rank + 1, second = 2 * (world - rank) - 1, third = 2 * rank + 1,
                     turn = 2 * world;
  const auto with = [&](std::int64_t used) -> std::int64_t {
    if (used <= 0 || used > documents || used * first > tokens) return 0;
    std::int64_t rest = tokens - used * first, most = used;
    if (second > third) return most + rest / turn * 2 + (rest % turn >= second ? 1 : 0);
    const std::int64_t seconds = std::min(used, rest / second);
    rest -= seconds * second;
    most += seconds;
    return seconds < used ? most : most + rest / turn * 2 + (rest % turn >= third ? 1 : 0);
  };
  // The best count is where documents with one token, or with two, just use the tokens up.
  const std::int64_t ones = std::min(documents, tokens / first),
                     twos = std::min(documents, tokens / (first + second));
  return std::max({with(ones), with(twos), with(twos + 1)});
}

std::int64_t capacity_of(const Problem& problem, const Partition& partition, std::int32_t rank,
                         std::int64_t tokens) {
  // CAPACITY: a call clips the plan's axis. CALL: shares grow with the length.
  if (problem.scope != Scope::document) return share_of(partition, rank, tokens);
  const std::int64_t documents = sequences_of_row(problem);
  if (partition.kind == PartitionKind::zigzag) {
    return most_in_zigzag_documents(tokens, documents, rank, partition.world);
  }
  const std::int64_t stripe = partition.kind == PartitionKind::striped ? partition.stripe : 1;
  return most_in_striped_documents(tokens, documents, stripe, rank, partition.world);
}

}  // namespace

AxisBound bound_of_keys(const Problem& problem, std::int32_t world) {
  return bound_of(problem, Partition::of_keys(problem, world), problem.seq_k, problem.seq_k);
}

AxisBound bound_of_queries(const Problem& problem, std::int32_t world) {
  const std::int64_t cut = likes_keys(problem) ? problem.seq_k : problem.seq_q;
  return bound_of(problem, Partition::of_queries(problem, world), problem.seq_q, cut);
}

std::int64_t local_capacity_queries(const Problem& problem, std::int32_t rank, std::int32_t world) {
  const Partition partition = Partition::of_queries(problem, world);
  if (likes_keys(problem)) return most_like_keys(problem, partition, rank);
  return capacity_of(problem, partition, rank, problem.seq_q);
}

std::int64_t local_capacity_keys(const Problem& problem, std::int32_t rank, std::int32_t world) {
  return capacity_of(problem, Partition::of_keys(problem, world), rank, problem.seq_k);
}

}  // namespace ringattn::schedule
