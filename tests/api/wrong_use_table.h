// The table of wrong uses: what is wrong with which struct (Bend), and which call says so (Row).
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/api/wrong_use_ring.h"

namespace ringattn::wrong_use {

inline constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
inline constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
inline constexpr std::int32_t kMost32 = std::numeric_limits<std::int32_t>::max();

// A good struct made wrong. `field` is "struct.field", as tests/abi/offsets_test.c names it.
template <typename T>
struct Bend {
  std::string field;
  std::string what;
  std::function<void(Padded<T>&)> bend;
  ringattn_status status;
  std::vector<std::string> words;
};

// Everything that rows work on: one rank that runs both passes, and one with documents.
struct Bench {
  Ring batch{1};
  Ring packed{1, packed_problem(), {"local", packed_call}};
};

struct Row {
  std::string function;
  std::string field;  // of a Bend; or the parameter's name
  std::string what;
  ringattn_status status;
  std::vector<std::string> words;
  std::function<ringattn_status(Bench&)> call;
};
using Rows = std::vector<Row>;

// struct_size of every wrong kind, and bytes of a newer header that are not zero.
template <typename T>
std::vector<Bend<T>> size_bends(const std::string& type, const std::string& name) {
  std::vector<Bend<T>> bends;
  constexpr std::uint32_t size = sizeof(T);
  for (const std::uint32_t bad : {0u, 1u, size / 2, size - 1, 4097u, 0xdeadbeefu, 0xffffffffu}) {
    bends.push_back({type + ".struct_size",
                     "size " + std::to_string(bad),
                     [bad](Padded<T>& s) { s.value.struct_size = bad; },
                     RINGATTN_ERR_STRUCT_SIZE,
                     {name + ".struct_size: " + std::to_string(bad), "sizeof = " + std::to_string(size)}});
  }
  for (const int byte : {0, 7, 31}) {
    bends.push_back({type + ".struct_size",
                     "an unknown byte " + std::to_string(byte),
                     [byte](Padded<T>& s) {
                       s.value.struct_size = size + 32;
                       s.more[byte] = 1;
                     },
                     RINGATTN_ERR_STRUCT_SIZE,
                     {name + ": byte " + std::to_string(size + static_cast<std::uint32_t>(byte))}});
  }
  return bends;
}

// Values of one number that are all refused by name.
template <typename T, typename Number>
std::vector<Bend<T>> number_bends(const std::string& field, Number T::*member,
                                  const std::vector<Number>& values, const std::string& name = "",
                                  ringattn_status status = RINGATTN_ERR_INVALID_ARGUMENT) {
  std::vector<Bend<T>> bends;
  const std::string shown = name.empty() ? field.substr(field.find('.') + 1) : name;
  for (const Number value : values) {
    bends.push_back({field,
                     "= " + std::to_string(value),
                     [member, value](Padded<T>& s) { s.value.*member = value; },
                     status,
                     {shown + ": " + std::to_string(value)}});
  }
  return bends;
}

template <typename List>
void append(List& to, List from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

// In wrong_use_plan_test.cpp, wrong_use_args_test.cpp and wrong_use_tensors_test.cpp.
std::vector<Bend<ringattn_plan_desc>> plan_desc_bends();
std::vector<Bend<ringattn_call>> call_bends();            // of the packed problem
std::vector<Bend<ringattn_comm_desc>> comm_desc_bends();  // in wrong_use_context_test.cpp
// A wrong argument of one rank, of forward and of backward.
struct ArgsBend {
  std::string field, what;
  bool of_backward;
  std::function<void(Shards&)> bend;
  ringattn_status status;
  std::vector<std::string> words;
};
std::vector<ArgsBend> tensor_bends();
std::vector<ArgsBend> overlap_bends();
std::vector<ArgsBend> args_bends();

Rows rows_of_handles();    // wrong_use_handles_test.cpp
Rows rows_of_context();    // wrong_use_context_test.cpp
Rows rows_of_processes();  // wrong_use_processes_test.cpp
Rows rows_of_plan();       // wrong_use_plan_test.cpp
Rows rows_of_calls();    // wrong_use_args_test.cpp: everything that takes a ringattn_call, and the arguments
Rows rows_of_tensors();  // wrong_use_tensors_test.cpp
Rows rows_of_copies();   // wrong_use_copies_test.cpp: shard, unshard, merge

}  // namespace ringattn::wrong_use
