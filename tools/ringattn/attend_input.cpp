#include "attend_input.h"

#include <fmt/format.h>

#include <cstring>

#include "error.h"
#include "ring_run.h"

namespace ringattn::tool {
namespace {

struct DtypeRow {
  const char* stored;
  const char* word;
  ringattn_dtype code;
};
constexpr DtypeRow kDtypes[] = {{"F32", "f32", RINGATTN_DTYPE_F32},
                                {"F16", "f16", RINGATTN_DTYPE_F16},
                                {"BF16", "bf16", RINGATTN_DTYPE_BF16}};

const DtypeRow* row_of(std::string_view stored) {
  for (const DtypeRow& row : kDtypes) {
    if (row.stored == stored) return &row;
  }
  return nullptr;
}

const char* stored_name(ringattn_dtype code) {
  for (const DtypeRow& row : kDtypes) {
    if (row.code == code) return row.stored;
  }
  return "?";
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

class Reader {
 public:
  explicit Reader(const SafetensorsFile& file) : file_(file) {}

  // One of q, k, v.
  const StoredTensor& input(const char* name) const {
    const StoredTensor& tensor = file_.at(name);
    if (row_of(tensor.dtype) == nullptr) {
      refuse(fmt::format("tensor \"{}\" is {}, expected F32, F16 or BF16", name, tensor.dtype));
    }
    if (tensor.shape.size() != 4) {
      refuse(fmt::format("tensor \"{}\" has shape {}, expected four axes [batch, seq, head, dim]", name,
                         shape_text(tensor.shape)));
    }
    return tensor;
  }

  // A tensor that must have this shape and dtype, as the file spells them.
  const StoredTensor& like(const char* name, const std::vector<std::int64_t>& shape, const char* dtype,
                           const char* why) const {
    const StoredTensor& tensor = file_.at(name);
    if (tensor.dtype != dtype) {
      refuse(fmt::format("tensor \"{}\" is {}, expected {} ({})", name, tensor.dtype, dtype, why));
    }
    if (tensor.shape != shape) {
      refuse(fmt::format("tensor \"{}\" has shape {}, expected {} ({})", name, shape_text(tensor.shape),
                         shape_text(shape), why));
    }
    return tensor;
  }

  // Both tensors must agree on an axis.
  void same(const StoredTensor& a, const StoredTensor& b, std::size_t axis, const char* meaning) const {
    if (a.shape[axis] == b.shape[axis]) return;
    refuse(fmt::format("tensors \"{}\" {} and \"{}\" {} differ in {} (axis {})", a.name, shape_text(a.shape),
                       b.name, shape_text(b.shape), meaning, axis));
  }

  void same_dtype(const StoredTensor& a, const StoredTensor& b) const {
    if (a.dtype == b.dtype) return;
    refuse(fmt::format("tensor \"{}\" is {} and \"{}\" is {}, expected one dtype", a.name, a.dtype, b.name,
                       b.dtype));
  }

  void finite(const char* name, const StoredTensor& stored, const ringattn_tensor& tensor) const {
    const std::int64_t index = find_non_finite(tensor);
    if (index < 0) return;
    std::vector<std::int64_t> place(stored.shape.size());
    std::int64_t rest = index;
    for (std::size_t axis = place.size(); axis-- > 0;) {
      place[axis] = rest % stored.shape[axis];
      rest /= stored.shape[axis];
    }
    refuse(fmt::format("tensor \"{}\" is not finite at [{}]; --nan allow computes with it", name,
                       fmt::join(place, ", ")));
  }

  // A reference where the file has one.
  std::optional<ringattn_tensor> reference(const char* name, const std::vector<std::int64_t>& shape) const {
    const StoredTensor* tensor = file_.find(name);
    if (tensor == nullptr) return std::nullopt;
    if (tensor->dtype != "F32") refuse(fmt::format("tensor \"{}\" is {}, expected F32", name, tensor->dtype));
    if (tensor->shape != shape) {
      refuse(fmt::format("tensor \"{}\" has shape {}, expected {}", name, shape_text(tensor->shape),
                         shape_text(shape)));
    }
    std::int64_t axes[4] = {1, 1, 1, 1};
    std::copy(shape.begin(), shape.end(), axes);
    return dense_view(RINGATTN_DTYPE_F32, axes, tensor->data.data());
  }

  static ringattn_tensor view(const StoredTensor& tensor) {
    const std::int64_t shape[4] = {tensor.shape[0], tensor.shape[1], tensor.shape[2], tensor.shape[3]};
    return dense_view(row_of(tensor.dtype)->code, shape, tensor.data.data());
  }

 private:
  [[noreturn]] void refuse(const std::string& message) const {
    throw BadInput(fmt::format("{}: {}", file_.path(), message));
  }

  const SafetensorsFile& file_;
};

// Index of the first element whose exponent bits are all ones; -1 = none.
template <typename Bits>
std::int64_t find_exponent(const void* data, std::int64_t count, Bits exponent) {
  const auto* bytes = static_cast<const std::byte*>(data);
  for (std::int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, bytes + static_cast<std::size_t>(i) * sizeof bits, sizeof bits);
    if ((bits & exponent) == exponent) return i;
  }
  return -1;
}

}  // namespace

std::int64_t find_non_finite(const ringattn_tensor& dense) {
  const std::int64_t count = dense.shape[0] * dense.shape[1] * dense.shape[2] * dense.shape[3];
  switch (dense.dtype) {
    case RINGATTN_DTYPE_F32:
      return find_exponent<std::uint32_t>(dense.data, count, 0x7f800000u);
    case RINGATTN_DTYPE_F16:
      return find_exponent<std::uint16_t>(dense.data, count, 0x7c00);
    default:
      return find_exponent<std::uint16_t>(dense.data, count, 0x7f80);
  }
}

AttendInput read_attend_input(const SafetensorsFile& file, NonFinite policy) {
  const Reader reader(file);
  const StoredTensor& q = reader.input("q");
  const StoredTensor& k = reader.input("k");
  const StoredTensor& v = reader.input("v");
  reader.same_dtype(q, k);
  reader.same_dtype(k, v);
  reader.same(q, k, 0, "batch");
  reader.same(q, k, 3, "dim");
  reader.same(k, v, 0, "batch");
  reader.same(k, v, 1, "seq");
  reader.same(k, v, 2, "head");

  AttendInput input;
  input.dtype = row_of(q.dtype)->code;
  input.dtype_name = row_of(q.dtype)->word;
  input.q = Reader::view(q);
  input.k = Reader::view(k);
  input.v = Reader::view(v);
  input.o_ref = reader.reference("o_ref", {q.shape[0], q.shape[1], q.shape[2], v.shape[3]});
  input.lse_ref = reader.reference("lse_ref", {q.shape[0], q.shape[2], q.shape[1]});
  if (policy == NonFinite::refuse) {
    reader.finite("q", q, input.q);
    reader.finite("k", k, input.k);
    reader.finite("v", v, input.v);
  }
  return input;
}

BackwardInput read_backward_input(const SafetensorsFile& file, const support::ProblemLine& problem,
                                  NonFinite policy) {
  const Reader reader(file);
  const std::int64_t batch = problem.batch, kv_heads = problem.effective_kv_heads();
  const std::vector<std::int64_t> o{batch, problem.queries, problem.heads, problem.effective_dim_v()};
  const std::vector<std::int64_t> lse{batch, problem.heads, problem.queries};
  if (file.find("do") == nullptr) {
    throw BadInput(fmt::format("{}: no tensor \"do\", which --backward needs: expected the gradient of o, {}",
                               file.path(), shape_text(o)));
  }
  BackwardInput input;
  const StoredTensor& d_o = reader.like("do", o, stored_name(problem.effective_dtype_out()), "like o");
  input.d_o = Reader::view(d_o);
  if (policy == NonFinite::refuse) reader.finite("do", d_o, input.d_o);
  if (file.find("dlse") != nullptr) {
    const StoredTensor& d_lse = reader.like("dlse", lse, "F32", "like lse");
    const std::int64_t axes[4] = {lse[0], lse[1], lse[2], 1};
    input.d_lse = dense_view(RINGATTN_DTYPE_F32, axes, d_lse.data.data());
    if (policy == NonFinite::refuse) reader.finite("dlse", d_lse, *input.d_lse);
  }
  input.d_q_ref = reader.reference("dq_ref", {batch, problem.queries, problem.heads, problem.dim});
  input.d_k_ref = reader.reference("dk_ref", {batch, problem.keys, kv_heads, problem.dim});
  input.d_v_ref = reader.reference("dv_ref", {batch, problem.keys, kv_heads, problem.effective_dim_v()});
  return input;
}

}  // namespace ringattn::tool
