// The whole table: every exported function and every field of every struct that a caller fills has a row;
// every row gives its status and its words, touches nothing, and leaves all handles as good as before.
#include "tests/api/wrong_use_table.h"

#include <fstream>
#include <map>
#include <set>
#include <sstream>

namespace ringattn::wrong_use {
namespace {

const Rows& all_rows() {
  static const Rows rows = [] {
    Rows all;
    for (const auto part : {rows_of_handles, rows_of_context, rows_of_processes, rows_of_plan, rows_of_calls,
                            rows_of_tensors, rows_of_copies}) {
      append(all, part());
    }
    return all;
  }();
  return rows;
}

std::string read_file(const std::string& name) {
  std::ifstream file(std::string(RINGATTN_SOURCE_DIR) + "/" + name);
  EXPECT_TRUE(file.good()) << name;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The names of a list like "    ringattn_merge;".
std::set<std::string> exported_functions() {
  std::set<std::string> names;
  std::istringstream words(read_file("src/api/libringattn.map"));
  for (std::string word; words >> word;) {
    if (word.rfind("ringattn_", 0) == 0 && word.back() == ';') names.insert(word.substr(0, word.size() - 1));
  }
  return names;
}

// "struct.field" of the structs that a caller fills, from lines like "AT(ringattn_call, cu_q, 16);".
std::set<std::string> input_fields() {
  const std::set<std::string> filled_by_caller = {
      "ringattn_tensor",        "ringattn_context_desc", "ringattn_comm_desc", "ringattn_run",
      "ringattn_plan_desc",     "ringattn_facts",        "ringattn_call",      "ringattn_forward_args",
      "ringattn_backward_args", "ringattn_transport_v1"};
  // Any value is right: passed back to the caller as it is, or read only with another field that has rows.
  const std::set<std::string> free = {"ringattn_context_desc.parallel_user", "ringattn_context_desc.log_user",
                                      "ringattn_forward_args.progress_user",
                                      "ringattn_backward_args.progress_user"};
  std::set<std::string> fields;
  std::istringstream lines(read_file("tests/abi/offsets_test.c"));
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("AT(", 0) != 0) continue;
    const std::size_t comma = line.find(", "), end = line.find(", ", comma + 1);
    const std::string type = line.substr(3, comma - 3);
    std::string name = type;
    name.append(".").append(line, comma + 2, end - comma - 2);
    if (filled_by_caller.count(type) != 0 && free.count(name) == 0) fields.insert(name);
  }
  return fields;
}

TEST(WrongUse, EveryExportedFunctionHasARow) {
  std::set<std::string> in_table;
  for (const Row& row : all_rows()) in_table.insert(row.function);
  const std::set<std::string> exported = exported_functions();
  EXPECT_GE(exported.size(), 35u);
  for (const std::string& name : exported) EXPECT_EQ(in_table.count(name), 1u) << name << " has no row";
  for (const std::string& name : in_table) EXPECT_EQ(exported.count(name), 1u) << name << " is not exported";
}

TEST(WrongUse, EveryFieldThatACallerFillsHasARow) {
  std::set<std::string> in_table;
  for (const Row& row : all_rows()) in_table.insert(row.field);
  const std::set<std::string> fields = input_fields();
  EXPECT_GE(fields.size(), 95u);
  for (const std::string& name : fields) EXPECT_EQ(in_table.count(name), 1u) << name << " has no row";
}

class WrongUseTable : public ::testing::TestWithParam<std::string> {
 protected:
  // Rows of one function share a bench: it must survive them all.
  static Bench& bench() {
    static Bench* const instance = new Bench();
    return *instance;
  }
};

TEST_P(WrongUseTable, EachRowIsRefusedByNameAndNothingElseHappens) {
  const support::Watchdog watchdog(GetParam(), 60);
  Bench& all = bench();
  int count = 0;
  for (const Row& row : all_rows()) {
    if (row.function != GetParam()) continue;
    ++count;
    SCOPED_TRACE(row.function + ": " + row.field + " " + row.what);
    all.batch.reset();
    all.packed.reset();
    const Answer got = answer(row.call(all));
    if (row.status < 0) {
      std::vector<std::string> words = row.words;
      words.push_back("expected");
      EXPECT_TRUE(refused(got, row.status, words));
    } else {
      EXPECT_EQ(got.status, row.status) << got.message;
      EXPECT_EQ(got.message, "");
    }
    EXPECT_TRUE(all.batch.untouched());
    EXPECT_TRUE(all.packed.untouched());
    EXPECT_TRUE(all.batch.works());
    EXPECT_TRUE(all.packed.works());
  }
  RecordProperty("rows", count);
  EXPECT_GE(count, 1);
}

std::vector<std::string> function_names() {
  std::set<std::string> names;
  for (const Row& row : all_rows()) names.insert(row.function);
  return {names.begin(), names.end()};
}
INSTANTIATE_TEST_SUITE_P(Functions, WrongUseTable, ::testing::ValuesIn(function_names()),
                         [](const auto& info) { return info.param.substr(std::string("ringattn_").size()); });

}  // namespace
}  // namespace ringattn::wrong_use
