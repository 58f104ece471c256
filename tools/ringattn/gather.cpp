#include "gather.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "error.h"
#include "handles.h"

namespace ringattn::tool {
namespace {

constexpr std::int64_t kWidth = 512;         // numbers of one row
constexpr std::size_t kBytesOfNumber = 3;    // whole numbers below 2^24
constexpr std::int64_t kMostRows = 1 << 14;  // that rank 0 receives at once: 32 MiB
constexpr std::size_t kBytesOfRow = kWidth * kBytesOfNumber;

struct Place {
  int rank = 0, world = 1;
};

Place place_of(const ringattn_comm* comm) {
  Place place;
  check(ringattn_comm_rank(comm, &place.rank, &place.world));
  return place;
}

// Rows from the owners of keys to the owners of queries: each rank owns one piece of both, which may be empty.
class RowMover {
 public:
  RowMover(ringattn_comm* comm, std::int64_t rows, ringattn_run keys, ringattn_run queries);
  // Dense rows of kWidth numbers; collective.
  void move(const std::vector<float>& from, std::vector<float>& to) const;

 private:
  static ringattn_tensor rows_view(std::int64_t rows, std::int64_t width, const float* data);

  std::int64_t keys_, queries_;
  std::vector<float> zero_;  // q and k: every score is 0
  Plan plan_;
};

RowMover::RowMover(ringattn_comm* comm, std::int64_t rows, ringattn_run keys, ringattn_run queries)
    : keys_(keys.length),
      queries_(queries.length),
      zero_(static_cast<std::size_t>(std::max(keys.length, queries.length))) {
  auto desc = RINGATTN_STRUCT(ringattn_plan_desc);
  desc.batch = desc.heads = 1;
  desc.seq_q = desc.seq_k = rows;
  desc.head_dim_qk = 1;
  desc.head_dim_v = kWidth;
  desc.dtype = RINGATTN_DTYPE_F32;
  desc.mask = RINGATTN_MASK_WINDOW_LEFT | RINGATTN_MASK_WINDOW_RIGHT;  // both 0
  desc.partition = RINGATTN_PARTITION_EXPLICIT;
  desc.query_cut = RINGATTN_QUERY_CUT_BY_INDEX;
  desc.runs_k = &keys;
  desc.runs_k_count = keys.length > 0 ? 1 : 0;
  desc.runs_q = &queries;
  desc.runs_q_count = queries.length > 0 ? 1 : 0;
  ringattn_plan* plan = nullptr;
  check(ringattn_plan_create(comm, &desc, &plan));
  plan_.reset(plan);
}

ringattn_tensor RowMover::rows_view(std::int64_t rows, std::int64_t width, const float* data) {
  auto tensor = RINGATTN_STRUCT(ringattn_tensor);
  tensor.dtype = RINGATTN_DTYPE_F32;
  tensor.device_type = RINGATTN_DEVICE_CPU;
  tensor.data = const_cast<float*>(data);
  const std::int64_t shape[4] = {1, rows, 1, width};
  std::copy(std::begin(shape), std::end(shape), tensor.shape);
  return tensor;
}

void RowMover::move(const std::vector<float>& from, std::vector<float>& to) const {
  const ringattn_tensor q = rows_view(queries_, 1, zero_.data()), k = rows_view(keys_, 1, zero_.data()),
                        v = rows_view(keys_, kWidth, from.data()), o = rows_view(queries_, kWidth, to.data());
  auto args = RINGATTN_STRUCT(ringattn_forward_args);
  args.q = &q;
  args.k = &k;
  args.v = &v;
  args.o = &o;
  check(ringattn_forward(plan_.get(), &args, nullptr));
}

std::size_t numbers_in(std::int64_t rows) { return static_cast<std::size_t>(rows * kWidth); }

// The bytes of `own` from `first` on, as many as fit; zeros behind its end.
void encode(std::span<const std::byte> own, std::size_t first, std::vector<float>& numbers) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    std::uint32_t number = 0;
    for (std::size_t j = 0; j < kBytesOfNumber; ++j) {
      const std::size_t at = first + i * kBytesOfNumber + j;
      if (at < own.size()) number |= std::to_integer<std::uint32_t>(own[at]) << (8 * j);
    }
    numbers[i] = static_cast<float>(number);
  }
}

std::uint32_t whole(float number) {
  if (number >= 0 && number < 0x1p24f && std::trunc(number) == number)
    return static_cast<std::uint32_t>(number);
  throw RunFailed(fmt::format("gather: {} arrived, expected a whole number below 2^24", number));
}

void decode(std::span<const float> numbers, std::size_t first, std::vector<std::byte>& bytes) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::uint32_t number = whole(numbers[i]);
    for (std::size_t j = 0; j < kBytesOfNumber; ++j) {
      const std::size_t at = first + i * kBytesOfNumber + j;
      if (at < bytes.size()) bytes[at] = static_cast<std::byte>(number >> (8 * j));
    }
  }
}

}  // namespace

std::vector<std::vector<std::byte>> gather_bytes(ringattn_comm* comm, std::span<const std::byte> own,
                                                 const std::vector<std::size_t>& sizes) {
  const Place place = place_of(comm);
  const std::size_t most = *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::vector<std::byte>> all;
  if (place.rank == 0) {
    for (const std::size_t size : sizes) all.emplace_back(size);
  }
  if (most == 0) return all;
  // Every rank sends equally many rows, round by round; what is behind its end counts for nothing.
  const auto needed = static_cast<std::int64_t>((most + kBytesOfRow - 1) / kBytesOfRow);
  const std::int64_t rows =
      std::clamp<std::int64_t>(needed, 1, std::max<std::int64_t>(1, kMostRows / place.world));
  const std::int64_t total = rows * place.world;
  const ringattn_run keys{place.rank * rows, rows, 1}, queries{0, place.rank == 0 ? total : 0, 1};
  const RowMover mover(comm, total, keys, queries);
  std::vector<float> from(numbers_in(rows)), to(numbers_in(queries.length));
  for (std::size_t first = 0; first < most; first += static_cast<std::size_t>(rows) * kBytesOfRow) {
    encode(own, first, from);
    mover.move(from, to);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      decode(std::span(to).subspan(rank * from.size(), from.size()), first, all[rank]);
    }
  }
  return all;
}

std::uint32_t number_of_rank_zero(ringattn_comm* comm, std::uint32_t number) {
  const Place place = place_of(comm);
  const ringattn_run keys{0, place.rank == 0 ? place.world : 0, 1}, queries{place.rank, 1, 1};
  const RowMover mover(comm, place.world, keys, queries);
  const std::vector<float> from(numbers_in(keys.length), static_cast<float>(number));
  std::vector<float> to(numbers_in(1));
  mover.move(from, to);
  return whole(to.front());
}

}  // namespace ringattn::tool
