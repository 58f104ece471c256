// Rows of every tensor of forward and backward: each wrong field of each, and each output over each other
// tensor.
#include "tests/api/wrong_use_table.h"

namespace ringattn::wrong_use {
namespace {

constexpr ringattn_status kInvalid = RINGATTN_ERR_INVALID_ARGUMENT;
constexpr std::int64_t k2G = std::int64_t{1} << 31, k1T = std::int64_t{1} << 40;

// Wrong in any tensor whose shape is `t`; in words, $ stands for the tensor's name.
using TensorBends = std::vector<Bend<ringattn_tensor>>;

TensorBends bends_of_kind() {
  using T = ringattn_tensor;
  TensorBends bends = size_bends<T>("ringattn_tensor", "$");
  append(bends, number_bends<T, std::int32_t>(
                    "ringattn_tensor.dtype", &T::dtype,
                    {0, -1, 2, 3, RINGATTN_DTYPE_I32, RINGATTN_DTYPE_I64, 6, kMost32}, "$.dtype"));
  const char* const device = "$.device_type, .device_id";
  append(bends, number_bends<T, std::int32_t>("ringattn_tensor.device_type", &T::device_type,
                                              {-1, 1, 2, kMost32}, device));
  for (const std::int32_t id : {-1, 1, kMost32}) {
    bends.push_back({"ringattn_tensor.device_id",
                     std::to_string(id),
                     [id](Padded<T>& t) { t.value.device_id = id; },
                     kInvalid,
                     {device, std::to_string(id)}});
  }
  append(bends, number_bends<T, std::uint64_t>(
                    "ringattn_tensor.flags", &T::flags,
                    {2, 3, std::uint64_t{1} << 32, std::uint64_t{1} << 63, ~std::uint64_t{0}}, "$.flags"));
  bends.push_back({"ringattn_tensor.data",
                   "NULL",
                   [](Padded<T>& t) { t.value.data = nullptr; },
                   kInvalid,
                   {"$.data: NULL"}});
  return bends;
}

TensorBends bends_of_shape(const ringattn_tensor& good) {
  using T = ringattn_tensor;
  TensorBends bends;
  for (int axis = 0; axis < 4; ++axis) {
    const std::int64_t right = good.shape[axis];
    for (const std::int64_t value :
         {std::int64_t{-1}, kLeast, std::int64_t{0}, right - 1, right + 1, k2G, k1T, kMost}) {
      if (value == 0 && right == 1) continue;  // right - 1
      // A seq of INT64_MAX has no bytes that could be counted: that is said first.
      const std::string word = value == kMost ? "$.shape" : "$.shape[" + std::to_string(axis) + "]";
      bends.push_back({"ringattn_tensor.shape",
                       std::to_string(axis) + " is " + std::to_string(value),
                       [axis, value](Padded<T>& t) { t.value.shape[axis] = value; },
                       kInvalid,
                       {word}});
    }
  }
  return bends;
}

TensorBends bends_of_stride(const ringattn_tensor& good, bool output) {
  using T = ringattn_tensor;
  TensorBends bends;
  const auto bend = [&](int axis, std::int64_t value, std::vector<std::string> words) {
    bends.push_back({"ringattn_tensor.stride", std::to_string(axis) + " is " + std::to_string(value),
                     [axis, value](Padded<T>& t) { t.value.stride[axis] = value; }, kInvalid,
                     std::move(words)});
  };
  for (int axis = 0; axis < 3; ++axis) {
    const std::string name = "$.stride[" + std::to_string(axis) + "]: ";
    for (const std::int64_t value : {std::int64_t{-1}, -good.stride[axis], kLeast})
      bend(axis, value, {name + std::to_string(value)});
    bend(axis, kMost, {"$.shape, .stride"});
    bend(axis, kMost / 4, {"$.shape, .stride"});
    if (!output) continue;
    bend(axis, 0, {"$.stride"});
    if (good.stride[axis] > 1) bend(axis, good.stride[axis] - 1, {"$.stride"});
  }
  if (good.shape[3] == 1) return bends;
  for (const std::int64_t value : {std::int64_t{0}, std::int64_t{2}, std::int64_t{-1}, kMost, kLeast})
    bend(3, value, {"$.stride[3]", std::to_string(value)});
  return bends;
}

std::string with_name(std::string word, const std::string& name) {
  const std::size_t at = word.find('$');
  return at == std::string::npos ? word : word.replace(at, 1, name);
}

// Where an output is put: over `other`'s first byte, over its last, or exactly where it is.
void add_overlap(std::vector<ArgsBend>& bends, const std::string& field, bool of_backward, int out,
                 int other) {
  const bool named_second = is_output(other) && other > out;  // outputs: the later is named first
  const std::string first = name_of(named_second ? other : out), second = name_of(named_second ? out : other);
  const std::vector<std::string> words = {first + ".data: overlaps " + second};
  const auto bend =
      [&](const char* what,
          const std::function<std::byte*(const ringattn_tensor&, const ringattn_tensor&)>& place) {
        bends.push_back({field, std::string(what) + " " + name_of(other), of_backward,
                         [=](Shards& s) { s.view[out].value.data = place(s.fresh(out), s.fresh(other)); },
                         kInvalid, words});
      };
  bend("is at", [](auto&, auto& there) { return static_cast<std::byte*>(there.data); });
  bend("begins in the last byte of",
       [](auto&, auto& there) { return static_cast<std::byte*>(there.data) + bytes_of(there) - 1; });
  bend("ends in the first byte of",
       [](auto& own, auto& there) { return static_cast<std::byte*>(there.data) - bytes_of(own) + 1; });
}

std::string field_of(const Slot& slot, bool of_backward) {
  return std::string(of_backward ? "ringattn_backward_args." : "ringattn_forward_args.") + name_of(slot.id);
}

bool used(const Slot& slot, bool of_backward) {
  return of_backward ? slot.backward != nullptr : slot.forward != nullptr;
}

}  // namespace

std::vector<ArgsBend> tensor_bends() {
  const Shards like(batch_problem(), 12, 12, 1);
  std::vector<ArgsBend> bends;
  for (const bool of_backward : {false, true}) {
    for (const Slot& slot : kSlots) {
      if (!used(slot, of_backward)) continue;
      const int id = slot.id;
      TensorBends all = bends_of_kind();
      append(all, bends_of_shape(like.fresh(id)));
      append(all, bends_of_stride(like.fresh(id), is_output(id)));
      for (const Bend<ringattn_tensor>& one : all) {
        std::vector<std::string> words;
        for (const std::string& word : one.words) words.push_back(with_name(word, name_of(id)));
        bends.push_back({one.field, std::string(name_of(id)) + " " + one.what, of_backward,
                         [one, id](Shards& s) { one.bend(s.view[id]); }, one.status, std::move(words)});
      }
      if (id == kOutLse || id == kDlse) continue;  // NULL = not wanted, not used
      bends.push_back({field_of(slot, of_backward),
                       "NULL",
                       of_backward,
                       [slot, of_backward](Shards& s) {
                         if (of_backward) s.backward.value.*slot.backward = nullptr;
                         if (!of_backward) s.forward.value.*slot.forward = nullptr;
                       },
                       kInvalid,
                       {std::string(name_of(id)) + ": NULL"}});
    }
  }
  return bends;
}

std::vector<ArgsBend> overlap_bends() {
  std::vector<ArgsBend> bends;
  for (const bool of_backward : {false, true}) {
    for (const Slot& out : kSlots) {
      if (!used(out, of_backward) || !is_output(out.id)) continue;
      for (const Slot& other : kSlots) {
        if (used(other, of_backward) && other.id != out.id)
          add_overlap(bends, field_of(out, of_backward), of_backward, out.id, other.id);
      }
    }
  }
  // The fields that no output is: an overlap is a wrong use of both.
  for (const Slot& slot : kSlots) {
    if (slot.id == kDlse) add_overlap(bends, field_of(slot, true), true, kDq, kDlse);
  }
  return bends;
}

Rows rows_of_tensors() {
  Rows rows;
  std::vector<ArgsBend> bends = tensor_bends();
  append(bends, overlap_bends());
  for (const ArgsBend& bend : bends) {
    rows.push_back({bend.of_backward ? "ringattn_backward" : "ringattn_forward", bend.field, bend.what,
                    bend.status, bend.words, [bend](Bench& b) {
                      bend.bend(b.batch.shards(0));
                      return b.batch.run(bend.of_backward, 0);
                    }});
  }
  return rows;
}

}  // namespace ringattn::wrong_use
