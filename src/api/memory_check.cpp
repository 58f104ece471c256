#include "api/memory_check.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "api/few_ranks.h"
#include "api/overlap.h"

namespace ringattn::api {
namespace {

// One tensor, or the workspace, of one rank.
struct Operand {
  const char* name = nullptr;
  bool output = false;
  std::size_t rank = 0, number = 0;  // of the call's ranks; within the rank
  TensorView view;
  __int128 first = 0, end = 0;  // its range of addresses
};

constexpr std::size_t kMost = 11;  // operands of a rank

class List {
 public:
  explicit List(std::span<Operand> room) : room_(room) {}

  void add(const Operands& rank) {
    number_ = 0;
    const ring::Tensors& t = *rank.tensors;
    if (rank.backward) {
      add("d_q", true, t.d_q);
      add("d_k", true, t.d_k);
      add("d_v", true, t.d_v);
    }
    add("o", !rank.backward, t.o);
    if (t.has_lse) add("lse", !rank.backward, t.lse);
    if (rank.workspace != nullptr) add("workspace", true, bytes_of(rank));
    add("q", false, t.q);
    add("k", false, t.k);
    add("v", false, t.v);
    if (rank.backward) add("d_o", false, t.d_o);
    if (t.has_d_lse) add("d_lse", false, t.d_lse);
    ++rank_;
  }
  std::span<Operand> all() const { return room_.first(count_); }

 private:
  void add(const char* name, bool output, const TensorView& view) {
    if (view.empty()) return;
    Operand& own = room_[count_++];
    own = {name, output, rank_, number_++, view, 0, 0};
    own.first = reinterpret_cast<std::uintptr_t>(view.data);
    own.end = own.first + bytes_spanned(view);
  }
  static TensorView bytes_of(const Operands& rank) {
    TensorView view;
    view.data = const_cast<std::byte*>(rank.workspace);
    view.element = 1;
    const std::int64_t shape[4] = {1, 1, 1, static_cast<std::int64_t>(rank.workspace_bytes)};
    std::copy(shape, shape + 4, view.shape);
    view.stride[3] = 1;
    return view;
  }

  const std::span<Operand> room_;
  std::size_t count_ = 0, rank_ = 0, number_ = 0;
};

// Two operands that share memory, and which of them is wrong: the output, or of two the later one.
struct Pair {
  const Operand *wrong = nullptr, *other = nullptr;

  Pair() = default;
  Pair(const Operand& a, const Operand& b) : wrong(&a), other(&b) {
    if (!a.output || (b.output && place(b) > place(a))) std::swap(wrong, other);
  }
  static std::pair<std::size_t, std::size_t> place(const Operand& o) { return {o.rank, o.number}; }
  // Of several pairs the one to tell does not depend on where memory happens to lie.
  bool before(const Pair& that) const {
    return that.wrong == nullptr ||
           std::pair(place(*wrong), place(*other)) < std::pair(place(*that.wrong), place(*that.other));
  }
};

Pair first_overlap(std::span<Operand> all) {
  std::sort(all.begin(), all.end(), [](const Operand& a, const Operand& b) { return a.first < b.first; });
  Pair found;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = i + 1; j < all.size() && all[j].first < all[i].end; ++j) {
      if (!all[i].output && !all[j].output) continue;
      const Pair pair(all[i], all[j]);
      if (pair.before(found) && overlap(all[i].view, all[j].view)) found = pair;
    }
  }
  return found;
}

Status refusal(const Pair& pair, std::span<const Operands> ranks) {
  std::string text(pair.wrong->name);
  if (std::strcmp(pair.wrong->name, "workspace") != 0) text += ".data";
  text.append(": overlaps ").append(pair.other->name);
  if (pair.other->rank != pair.wrong->rank)
    text.append(" of rank ").append(std::to_string(ranks[pair.other->rank].rank));
  return invalid(text.append(", expected memory of its own"));
}

}  // namespace

Status check_memory(std::span<const Operands> ranks, std::size_t* wrong) {
  std::array<Operand, kFewRanks * kMost> few;
  std::vector<Operand> many(ranks.size() > kFewRanks ? ranks.size() * kMost : 0);
  List list(ranks.size() > kFewRanks ? std::span<Operand>(many) : std::span<Operand>(few));
  for (const Operands& rank : ranks) list.add(rank);
  const Pair pair = first_overlap(list.all());
  if (pair.wrong == nullptr) return {};
  *wrong = pair.wrong->rank;
  return refusal(pair, ranks);
}

}  // namespace ringattn::api
