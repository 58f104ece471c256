// What ranks that are processes hand to each other after a run. They share no memory and no file, only their comm, and that
// computes attention: so the bytes go as values of one.
//
// Why nothing is lost: query i sees key i alone (a window of width 0), the softmax of a single number is exactly 1, and O is
// that key's value. Whoever owns the key sends, whoever owns the query receives. Three bytes make one whole number below
// 2^24, which F32 holds exactly and which no addition of 0 changes; the bytes of a float as they are would not all
// survive (-0, NaN).
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ringattn.h"

namespace ringattn::tool {

// Collective. Every rank gives `own`; sizes[r], the same on all ranks, is how many bytes rank r gives. Rank 0 gets what all
// have given, by rank; the others get nothing. Throws BadInput, RunFailed.
std::vector<std::vector<std::byte>> gather_bytes(ringattn_comm* comm, std::span<const std::byte> own,
                                                 const std::vector<std::size_t>& sizes);

// Collective. The number, below 2^24, that rank 0 gives, on every rank. Throws BadInput, RunFailed.
std::uint32_t number_of_rank_zero(ringattn_comm* comm, std::uint32_t number);

}  // namespace ringattn::tool
