// A small ring whose every byte is known: each rank's tensors lie far apart in one block of memory that is
// compared as a whole, so that a write anywhere but into an output shows, and so does a wrong bit.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ringattn.h"
#include "tests/support/half.h"
#include "tests/support/spawn.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RINGATTN_WRONG_USE_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RINGATTN_WRONG_USE_SANITIZED 1
#endif

namespace ringattn::wrong_use {

// A sanitizer's operator new ends the process where it should throw.
#ifdef RINGATTN_WRONG_USE_SANITIZED
inline constexpr bool kNewMayFail = false;
#else
inline constexpr bool kNewMayFail = true;
#endif

// A struct of the caller with what a newer header may have behind it.
template <typename T>
struct Padded {
  T value = RINGATTN_STRUCT(T);
  unsigned char more[32] = {};
};

// An array of padded structs steps by all of it.
template <typename T>
Padded<T> in_array(Padded<T> one) {
  if (one.value.struct_size == sizeof(T)) one.value.struct_size = sizeof one;
  return one;
}

enum TensorId { kQ, kK, kV, kOutO, kOutLse, kO, kLse, kDo, kDlse, kDq, kDk, kDv, kTensors };
inline const char* name_of(int id) {
  constexpr const char* kNames[] = {"q",   "k",   "v",     "o",   "lse", "o",
                                    "lse", "d_o", "d_lse", "d_q", "d_k", "d_v"};
  return kNames[id];
}
inline bool is_output(int id) { return id == kOutO || id == kOutLse || id >= kDq; }

struct Slot {
  int id;
  const ringattn_tensor* ringattn_forward_args::*forward;
  const ringattn_tensor* ringattn_backward_args::*backward;
};
using Fa = ringattn_forward_args;
using Ba = ringattn_backward_args;
inline constexpr Slot kSlots[] = {
    {kQ, &Fa::q, &Ba::q},      {kK, &Fa::k, &Ba::k},         {kV, &Fa::v, &Ba::v},
    {kOutO, &Fa::o, nullptr},  {kOutLse, &Fa::lse, nullptr}, {kO, nullptr, &Ba::o},
    {kLse, nullptr, &Ba::lse}, {kDo, nullptr, &Ba::d_o},     {kDlse, nullptr, &Ba::d_lse},
    {kDq, nullptr, &Ba::d_q},  {kDk, nullptr, &Ba::d_k},     {kDv, nullptr, &Ba::d_v}};

inline std::size_t dtype_bytes(ringattn_dtype dtype) { return dtype == RINGATTN_DTYPE_F32 ? 4 : 2; }

inline void store(std::byte* at, ringattn_dtype dtype, float value) {
  const std::uint16_t half =
      dtype == RINGATTN_DTYPE_F16 ? support::float_to_f16(value) : support::float_to_bf16(value);
  std::memcpy(at, dtype == RINGATTN_DTYPE_F32 ? static_cast<const void*>(&value) : &half, dtype_bytes(dtype));
}

inline float load(const std::byte* at, ringattn_dtype dtype) {
  float value;
  if (dtype == RINGATTN_DTYPE_F32) return std::memcpy(&value, at, 4), value;
  std::uint16_t half;
  std::memcpy(&half, at, 2);
  return dtype == RINGATTN_DTYPE_F16 ? support::f16_to_float(half) : support::bf16_to_float(half);
}

inline void dense_strides(ringattn_tensor& t) {
  t.flags = RINGATTN_TENSOR_STRIDES;
  t.stride[3] = 1;
  for (int axis = 2; axis >= 0; --axis) t.stride[axis] = t.stride[axis + 1] * t.shape[axis + 1];
}

inline std::size_t elements_of(const ringattn_tensor& t) {
  return static_cast<std::size_t>(t.shape[0] * t.shape[1] * t.shape[2] * t.shape[3]);
}
inline std::size_t bytes_of(const ringattn_tensor& t) { return elements_of(t) * dtype_bytes(t.dtype); }

// One rank's tensors and arguments. Inputs hold numbers that depend on `seed`, all else the guard byte.
class Shards {
 public:
  static constexpr std::byte kGuard{0xA5};  // also in every output: as bits of a number it is a tiny one

  Shards(const ringattn_plan_desc& desc, std::int64_t rows_q, std::int64_t rows_k, std::uint64_t seed) {
    const std::int64_t kv_heads = desc.kv_heads == 0 ? desc.heads : desc.kv_heads;
    const std::int64_t dim_v = desc.head_dim_v == 0 ? desc.head_dim_qk : desc.head_dim_v;
    const std::array<std::int64_t, 4> like_q = {desc.batch, rows_q, desc.heads, desc.head_dim_qk},
                                      like_k = {desc.batch, rows_k, kv_heads, desc.head_dim_qk},
                                      like_v = {desc.batch, rows_k, kv_heads, dim_v},
                                      like_o = {desc.batch, rows_q, desc.heads, dim_v},
                                      like_lse = {desc.batch, desc.heads, rows_q, 1};
    const std::array<std::int64_t, 4> shapes[] = {like_q,   like_k, like_v,   like_o, like_lse, like_o,
                                                  like_lse, like_o, like_lse, like_q, like_k,   like_v};
    const ringattn_dtype in = desc.dtype, out = desc.dtype_out == 0 ? in : desc.dtype_out,
                         grad = desc.dtype_grad == 0 ? in : desc.dtype_grad, f32 = RINGATTN_DTYPE_F32;
    const ringattn_dtype dtypes[] = {in, in, in, out, f32, out, f32, out, f32, grad, grad, grad};
    std::size_t most = 0;
    for (int id = 0; id < kTensors; ++id) {
      fresh_[id] = RINGATTN_STRUCT(ringattn_tensor);
      fresh_[id].dtype = dtypes[id];
      std::copy_n(shapes[id].begin(), 4, fresh_[id].shape);
      dense_strides(fresh_[id]);
      most = std::max(most, bytes_of(fresh_[id]));
    }
    // A tensor that begins where another ends, or the reverse, reaches no third.
    most = (most + 127) / 64 * 64;
    arena_.assign(2 * most * kTensors + 64, kGuard);
    std::byte* first = arena_.data() + (64 - reinterpret_cast<std::uintptr_t>(arena_.data()) % 64) % 64;
    for (int id = 0; id < kTensors; ++id) {
      fresh_[id].data = first + 2 * most * static_cast<std::size_t>(id) + most / 2 / 64 * 64;
      if (!is_output(id)) fill(fresh_[id], seed * 16 + static_cast<std::uint64_t>(id));
    }
    fresh_bytes_ = arena_;
    reset_args();
  }
  Shards(const Shards&) = delete;
  Shards& operator=(const Shards&) = delete;

  // The arguments as they should be.
  void reset_args() {
    forward = {};
    backward = {};
    call = {};
    call.value.flags = 0;
    forward.value.call = backward.value.call = &call.value;
    for (const Slot& slot : kSlots) {
      view[slot.id] = {};
      view[slot.id].value = fresh_[slot.id];
      if (slot.forward != nullptr) forward.value.*slot.forward = &view[slot.id].value;
      if (slot.backward != nullptr) backward.value.*slot.backward = &view[slot.id].value;
    }
  }
  void reset_bytes() { arena_ = fresh_bytes_; }
  // What forward left becomes what backward takes.
  void take_results() {
    std::memcpy(fresh_[kO].data, fresh_[kOutO].data, bytes_of(fresh_[kO]));
    std::memcpy(fresh_[kLse].data, fresh_[kOutLse].data, bytes_of(fresh_[kLse]));
    const std::vector<std::byte> used = arena_;
    for (const int id : {kO, kLse}) {
      const std::size_t at =
          static_cast<std::size_t>(static_cast<std::byte*>(fresh_[id].data) - arena_.data());
      std::copy_n(used.begin() + static_cast<std::ptrdiff_t>(at), bytes_of(fresh_[id]),
                  fresh_bytes_.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  void keep_as_right() { right_bytes_ = arena_; }
  bool untouched() const { return arena_ == fresh_bytes_; }
  bool right() const { return arena_ == right_bytes_; }
  const ringattn_tensor& fresh(int id) const { return fresh_[id]; }
  float at(int id, std::size_t element) const {
    const ringattn_tensor& t = fresh_[id];
    return load(static_cast<const std::byte*>(t.data) + element * dtype_bytes(t.dtype), t.dtype);
  }

  Padded<ringattn_tensor> view[kTensors];
  Padded<ringattn_forward_args> forward;
  Padded<ringattn_backward_args> backward;
  Padded<ringattn_call> call;

 private:
  static void fill(const ringattn_tensor& t, std::uint64_t seed) {
    std::uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
    for (std::size_t i = 0; i < elements_of(t); ++i) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      const float value = static_cast<float>(static_cast<std::int64_t>(state >> 40) - (1 << 23)) * 0x1p-23f;
      store(static_cast<std::byte*>(t.data) + i * dtype_bytes(t.dtype), t.dtype, value);
    }
  }

  ringattn_tensor fresh_[kTensors];
  std::vector<std::byte> arena_, fresh_bytes_, right_bytes_;
};

// batch 2 x 12 tokens, 4 query heads on 2 kv heads, 16 and 8 wide.
inline ringattn_plan_desc batch_problem() {
  ringattn_plan_desc desc = RINGATTN_STRUCT(ringattn_plan_desc);
  desc.flags = RINGATTN_PLAN_BACKWARD;
  desc.batch = 2;
  desc.seq_q = desc.seq_k = 12;
  desc.heads = 4;
  desc.kv_heads = 2;
  desc.head_dim_qk = 16;
  desc.head_dim_v = 8;
  desc.dtype = RINGATTN_DTYPE_F32;
  desc.mask = RINGATTN_MASK_CAUSAL;
  return desc;
}

// One row of 12 queries and 10 keys for up to 3 documents.
inline ringattn_plan_desc packed_problem() {
  ringattn_plan_desc desc = batch_problem();
  desc.batch = 1;
  desc.seq_k = 10;
  desc.max_sequences = 3;
  return desc;
}
inline constexpr std::int64_t kCuQ[] = {0, 5, 11}, kCuK[] = {0, 4, 9};
inline void packed_call(ringattn_call& call) {
  call.flags = RINGATTN_CALL_SEQUENCES;
  call.sequences = 2;
  call.cu_q = kCuQ;
  call.cu_k = kCuK;
}

struct Answer {
  ringattn_status status = RINGATTN_OK;
  std::string message;
};
inline Answer answer(ringattn_status status) { return {status, ringattn_last_error()}; }

struct RingOptions {
  const char* transport = "local";
  void (*call)(ringattn_call&) = nullptr;  // the values of every good call; null = full lengths
  std::int32_t threads = 1;
  std::int32_t timeout_ms = 20'000;
  bool plans = true;
};

class Ring {
 public:
  explicit Ring(int ranks, const ringattn_plan_desc& desc = batch_problem(), const RingOptions& options = {})
      : desc_(desc), options_(options), comms_(static_cast<std::size_t>(ranks)), plans_(comms_.size()) {
    ringattn_context_desc context_desc = RINGATTN_STRUCT(ringattn_context_desc);
    context_desc.threads = options.threads;
    require(ringattn_context_create(&context_desc, &context_));
    ringattn_comm_desc comm_desc = RINGATTN_STRUCT(ringattn_comm_desc);
    comm_desc.world_size = ranks;
    comm_desc.timeout_ms = comm_desc.arrival_timeout_ms = options.timeout_ms;
    comm_desc.transport = options.transport;
    require(ringattn_comm_create_local(context_, &comm_desc, comms_.data()));
    if (!options.plans) return;
    const std::vector<ringattn_plan_desc> descs(comms_.size(), desc);
    require(ringattn_plan_create_array(ranks, comms_.data(), descs.data(), plans_.data()));
    for (int r = 0; r < ranks; ++r) {
      ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
      require(ringattn_plan_get_info(plan(r), nullptr, &info));
      shards_.push_back(std::make_unique<Shards>(desc, info.local_capacity_q, info.local_capacity_k,
                                                 static_cast<std::uint64_t>(r + 1)));
    }
    reset();
    require(forward_array());
    for (const auto& shards : shards_) shards->take_results();
    if (backwards()) require(backward_array());
    for (const auto& shards : shards_) shards->keep_as_right();
    reset();
  }
  ~Ring() {
    for (ringattn_plan* plan : plans_) ringattn_plan_destroy(plan);
    for (ringattn_comm* comm : comms_) ringattn_comm_destroy(comm);
    ringattn_context_destroy(context_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  int ranks() const { return static_cast<int>(comms_.size()); }
  bool backwards() const { return (desc_.flags & RINGATTN_PLAN_BACKWARD) != 0; }
  ringattn_context* context() const { return context_; }
  const ringattn_plan_desc& desc() const { return desc_; }
  ringattn_comm* comm(int rank) const { return comms_[static_cast<std::size_t>(rank)]; }
  ringattn_comm* const* comms() const { return comms_.data(); }
  ringattn_plan* plan(int rank) const { return plans_[static_cast<std::size_t>(rank)]; }
  ringattn_plan* const* plans() const { return plans_.data(); }
  Shards& shards(int rank) { return *shards_[static_cast<std::size_t>(rank)]; }

  // Good arguments, and memory as before any call.
  void reset() {
    for (const auto& shards : shards_) {
      shards->reset_args();
      if (options_.call != nullptr) options_.call(shards->call.value);
      shards->reset_bytes();
    }
  }
  ringattn_status forward(int rank, ringattn_request** request = nullptr) {
    return ringattn_forward(plan(rank), &shards(rank).forward.value, request);
  }
  ringattn_status backward(int rank, ringattn_request** request = nullptr) {
    return ringattn_backward(plan(rank), &shards(rank).backward.value, request);
  }
  ringattn_status run(bool of_backward, int rank, ringattn_request** request = nullptr) {
    return of_backward ? backward(rank, request) : forward(rank, request);
  }
  ringattn_status forward_array(ringattn_request** request = nullptr) {
    std::vector<Padded<ringattn_forward_args>> args;
    for (const auto& shards : shards_) args.push_back(in_array(shards->forward));
    return ringattn_forward_array(ranks(), plans(), &args[0].value, request);
  }
  ringattn_status backward_array(ringattn_request** request = nullptr) {
    std::vector<Padded<ringattn_backward_args>> args;
    for (const auto& shards : shards_) args.push_back(in_array(shards->backward));
    return ringattn_backward_array(ranks(), plans(), &args[0].value, request);
  }
  ringattn_status run_array(bool of_backward, ringattn_request** request = nullptr) {
    return of_backward ? backward_array(request) : forward_array(request);
  }
  bool untouched() const {
    for (const auto& shards : shards_)
      if (!shards->untouched()) return false;
    return true;
  }
  // The same handles still give the right bits. Ends with fresh arguments and memory.
  ::testing::AssertionResult works() {
    reset();
    ringattn_status status = forward_array();
    if (status == RINGATTN_OK && backwards()) status = backward_array();
    bool right = true;
    for (const auto& shards : shards_) right = right && shards->right();
    const std::string message = ringattn_last_error();
    reset();
    if (status != RINGATTN_OK) return ::testing::AssertionFailure() << "afterwards: " << message;
    if (!right) return ::testing::AssertionFailure() << "afterwards: wrong bits";
    return ::testing::AssertionSuccess();
  }
  // `body(rank)` on a thread of its own for every rank.
  std::vector<Answer> on_threads(const std::function<ringattn_status(int)>& body) const {
    std::vector<Answer> answers(comms_.size());
    support::run_threads(
        ranks(), [&](int rank) { answers[static_cast<std::size_t>(rank)] = answer(body(rank)); }, 60,
        "ranks on threads");
    return answers;
  }

  static void require(ringattn_status status) {
    if (status != RINGATTN_OK) throw std::runtime_error(ringattn_last_error());
  }

 private:
  ringattn_plan_desc desc_;
  RingOptions options_;
  ringattn_context* context_ = nullptr;
  std::vector<ringattn_comm*> comms_;
  std::vector<ringattn_plan*> plans_;
  std::vector<std::unique_ptr<Shards>> shards_;
};

inline bool has(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos;
}

// A refusal: this status, one line, every word.
inline ::testing::AssertionResult refused(const Answer& got, ringattn_status status,
                                          const std::vector<std::string>& words) {
  if (got.status != status) {
    return ::testing::AssertionFailure() << "status " << ringattn_status_name(got.status) << ", expected "
                                         << ringattn_status_name(status) << ": " << got.message;
  }
  if (got.message.empty()) return ::testing::AssertionFailure() << "no message";
  if (has(got.message, "\n")) return ::testing::AssertionFailure() << "more than one line: " << got.message;
  for (const std::string& word : words) {
    if (!has(got.message, word))
      return ::testing::AssertionFailure() << "\"" << word << "\" is not in: " << got.message;
  }
  return ::testing::AssertionSuccess();
}

// One rank refused: its own status there, PEER_REFUSED with its name and the same words elsewhere.
inline void expect_one_refused(const std::vector<Answer>& answers, int odd, ringattn_status status,
                               const std::vector<std::string>& words) {
  for (int rank = 0; rank < static_cast<int>(answers.size()); ++rank) {
    const Answer& got = answers[static_cast<std::size_t>(rank)];
    std::vector<std::string> wanted = words;
    if (rank != odd) wanted.push_back("rank " + std::to_string(odd) + " refused: ");
    EXPECT_TRUE(refused(got, rank == odd ? status : RINGATTN_ERR_PEER_REFUSED, wanted)) << "rank " << rank;
  }
}

// All ranks: the same status and the same words.
inline void expect_all(const std::vector<Answer>& answers, ringattn_status status,
                       const std::vector<std::string>& words) {
  for (std::size_t rank = 0; rank < answers.size(); ++rank) {
    EXPECT_TRUE(refused(answers[rank], status, words)) << "rank " << rank;
    EXPECT_EQ(answers[rank].message, answers[0].message) << "rank " << rank;
  }
}

}  // namespace ringattn::wrong_use
