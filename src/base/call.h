// The values of one call, checked and resolved: every sequence with its place in the row and its query
// offset.
#pragma once
#include <cstdint>
#include <vector>

namespace ringattn {

struct Sequence {
  std::int64_t q_start, q_length;  // place of its queries in the query row
  std::int64_t k_start, k_length;  // place of its keys in the key row
  std::int64_t offset;  // position of its first query; a key's position is its index in the sequence
};

// rows == 1: one list of sequences that stands for every row of the batch (packed documents, or no
// sequences given). rows == batch: sequence b alone is row b; its starts are 0.
struct Call {
  std::int64_t rows = 1;
  std::vector<Sequence> sequences;

  std::int64_t row_of(std::int64_t batch_row) const { return rows == 1 ? 0 : batch_row; }
  // Sequences of a row: [first, last).
  std::int64_t first_of(std::int64_t row) const { return rows == 1 ? 0 : row; }
  std::int64_t last_of(std::int64_t row) const {
    return rows == 1 ? static_cast<std::int64_t>(sequences.size()) : row + 1;
  }
  // Length of a row: all its sequences together.
  std::int64_t total_q(std::int64_t row) const {
    const std::int64_t last = last_of(row);
    if (last == first_of(row)) return 0;
    const Sequence& s = sequences[static_cast<std::size_t>(last - 1)];
    return s.q_start + s.q_length;
  }
  std::int64_t total_k(std::int64_t row) const {
    const std::int64_t last = last_of(row);
    if (last == first_of(row)) return 0;
    const Sequence& s = sequences[static_cast<std::size_t>(last - 1)];
    return s.k_start + s.k_length;
  }
};

}  // namespace ringattn
