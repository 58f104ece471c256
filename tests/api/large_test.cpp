// Tensors of more than 2^31 elements: a few rows at huge strides over a mapping of which only those rows are
// ever touched, with the bits of the same problem in dense memory.
#include <sys/mman.h>

#include "tests/api/wrong_use_copying.h"

namespace ringattn::wrong_use {
namespace {

constexpr std::int64_t kBeyond = (std::int64_t{1} << 31) + 4099;  // elements; and no multiple of a page

// Address space without memory behind it until it is touched.
class Sparse {
 public:
  explicit Sparse(std::size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~Sparse() {
    if (data_ != MAP_FAILED) munmap(data_, bytes_);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  std::byte* data() const { return data_ == MAP_FAILED ? nullptr : static_cast<std::byte*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

// The tensor's rows of `dim` elements, one by one, in both memories.
template <typename Use>
void for_each_row(const ringattn_tensor& a, const ringattn_tensor& b, Use use) {
  const std::size_t item = dtype_bytes(a.dtype);
  const auto row = [item](const ringattn_tensor& t, std::int64_t i, std::int64_t j, std::int64_t k) {
    return static_cast<std::byte*>(t.data) +
           static_cast<std::size_t>(i * t.stride[0] + j * t.stride[1] + k * t.stride[2]) * item;
  };
  for (std::int64_t i = 0; i < a.shape[0]; ++i) {
    for (std::int64_t j = 0; j < a.shape[1]; ++j) {
      for (std::int64_t k = 0; k < a.shape[2]; ++k)
        use(row(a, i, j, k), row(b, i, j, k), static_cast<std::size_t>(a.shape[3]) * item);
    }
  }
}

struct Case {
  const char* name;
  int axis;  // that steps so far
  int ranks;
  ringattn_dtype dtype;
  bool copies = false;
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class LargeTensors : public ::testing::TestWithParam<Case> {};

TEST_P(LargeTensors, GiveTheBitsOfDenseOnes) {
  const support::Watchdog watchdog("large tensors", 60);
  const auto [name, axis, ranks, dtype, copies] = GetParam();
  ringattn_plan_desc desc = batch_problem();
  desc.batch = 2;
  desc.seq_q = desc.seq_k = std::int64_t{3} * ranks;
  desc.dtype = dtype;
  Ring ring(ranks, desc, {copies ? copying_transport() : "local"});
  std::vector<std::unique_ptr<Sparse>> memory;
  for (int r = 0; r < ranks; ++r) {
    for (int id = 0; id < kTensors; ++id) {
      Shards& s = ring.shards(r);
      ringattn_tensor& t = s.view[id].value;
      const ringattn_tensor dense = s.fresh(id);
      t.stride[axis] = kBeyond;
      // Axes outside of the far one keep their order: the next ones lie beside it, within one step of it.
      const std::size_t last = static_cast<std::size_t>((t.shape[axis] - 1) * kBeyond) + elements_of(dense);
      ASSERT_GT(last, std::size_t{1} << 31);
      memory.push_back(std::make_unique<Sparse>(last * dtype_bytes(t.dtype)));
      if (memory.back()->data() == nullptr) GTEST_SKIP() << "this machine gives no memory that is not there";
      t.data = memory.back()->data();
      for_each_row(t, dense, [](std::byte* to, const std::byte* from, std::size_t bytes) {
        std::memcpy(to, from, bytes);
      });
    }
  }
  ASSERT_EQ(ring.forward_array(), RINGATTN_OK) << ringattn_last_error();
  ASSERT_EQ(ring.backward_array(), RINGATTN_OK) << ringattn_last_error();
  EXPECT_TRUE(ring.untouched()) << "the dense memory is not in use";
  for (int r = 0; r < ranks; ++r) {
    const Shards& s = ring.shards(r);
    for (int id = 0; id < kTensors; ++id) {
      for_each_row(
          s.fresh(id), s.view[id].value,
          [](std::byte* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); });
    }
    EXPECT_TRUE(s.right()) << "rank " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Axes, LargeTensors,
                         ::testing::Values(Case{"batch_f32", 0, 1, RINGATTN_DTYPE_F32},
                                           Case{"batch_bf16_P2", 0, 2, RINGATTN_DTYPE_BF16},
                                           Case{"seq_f32_P2", 1, 2, RINGATTN_DTYPE_F32},
                                           Case{"seq_bf16", 1, 1, RINGATTN_DTYPE_BF16},
                                           Case{"head_f16", 2, 1, RINGATTN_DTYPE_F16},
                                           Case{"head_f32_P2", 2, 2, RINGATTN_DTYPE_F32},
                                           Case{"batch_f32_P2_copied", 0, 2, RINGATTN_DTYPE_F32, true},
                                           Case{"seq_bf16_P3_copied", 1, 3, RINGATTN_DTYPE_BF16, true}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ringattn::wrong_use
