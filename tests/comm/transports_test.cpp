// Which transport a comm takes, and which tables may be registered.
#include "comm/transports.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "tests/support/fake_transport.h"

namespace ringattn::comm {
namespace {

// Sets RINGATTN_TRANSPORT and restores it.
class Environment {
 public:
  explicit Environment(const char* value) {
    const char* old = std::getenv("RINGATTN_TRANSPORT");
    had_ = old != nullptr;
    if (had_) old_ = old;
    setenv("RINGATTN_TRANSPORT", value, 1);
  }
  ~Environment() {
    if (had_) {
      setenv("RINGATTN_TRANSPORT", old_.c_str(), 1);
    } else {
      unsetenv("RINGATTN_TRANSPORT");
    }
  }

 private:
  bool had_ = false;
  std::string old_;
};

bool says(const Status& status, const std::string& words) {
  return status.message().find(words) != std::string::npos;
}

TEST(RingTransports, LocalIsThereAndCanRun) {
  bool found = false;
  for (const TransportState& state : transports(Plugins::leave)) {
    if (std::string(state.table->name) != "local") continue;
    found = true;
    EXPECT_GT(state.score, 0);
    EXPECT_EQ(state.why_not, "");
  }
  EXPECT_TRUE(found);
}

TEST(RingTransports, TheOneThatIsWishedIsTaken) {
  const ringattn_transport_v1* table = nullptr;
  ASSERT_TRUE(choose_transport("local", &table).ok());
  EXPECT_STREQ(table->name, "local");
}

TEST(RingTransports, AnUnknownNameIsNotFoundAndAllNamesAreSaid) {
  const ringattn_transport_v1* table = nullptr;
  const Status status = choose_transport("pigeon", &table);
  EXPECT_EQ(status.code(), RINGATTN_ERR_NOT_FOUND);
  EXPECT_TRUE(says(status, "transport: \"pigeon\"") && says(status, "local")) << status.message();
  EXPECT_EQ(table, nullptr);
}

TEST(RingTransports, TheEnvironmentCountsWhereNothingIsWished) {
  const ringattn_transport_v1* table = nullptr;
  {
    const Environment pigeon("pigeon");
    const Status status = choose_transport("", &table);
    EXPECT_EQ(status.code(), RINGATTN_ERR_NOT_FOUND);
    EXPECT_TRUE(says(status, "RINGATTN_TRANSPORT: \"pigeon\"")) << status.message();
    EXPECT_TRUE(choose_transport("local", &table).ok()) << "the description's own wish comes first";
  }
  const Environment local("local");
  ASSERT_TRUE(choose_transport("", &table).ok());
  EXPECT_STREQ(table->name, "local");
}

TEST(RingTransports, TheEnvironmentReachesComms) {
  const Environment pigeon("pigeon");
  ringattn_context* context = nullptr;
  ASSERT_EQ(ringattn_context_create(nullptr, &context), RINGATTN_OK);
  ringattn_comm_desc desc = RINGATTN_STRUCT(ringattn_comm_desc);
  desc.world_size = 1;
  ringattn_comm* comm = nullptr;
  EXPECT_EQ(ringattn_comm_create_local(context, &desc, &comm), RINGATTN_ERR_NOT_FOUND);
  EXPECT_NE(std::string(ringattn_last_error()).find("RINGATTN_TRANSPORT"), std::string::npos);
  EXPECT_EQ(comm, nullptr);
  ringattn_context_destroy(context);
}

// A table that says it cannot run; registered once for the whole process, as tables stay for ever.
const ringattn_transport_v1* crippled() {
  static const ringattn_transport_v1 table = [] {
    ringattn_transport_v1 t = *test::fake_copy();
    t.name = "crippled";
    t.score = [](const char** why) -> std::int32_t {
      *why = "it has no legs";
      return 0;
    };
    return t;
  }();
  static const Status registered = register_transport(&table);
  EXPECT_TRUE(registered.ok()) << registered.message();
  return &table;
}

TEST(RingTransports, OneThatCannotRunSaysWhy) {
  crippled();
  const ringattn_transport_v1* table = nullptr;
  const Status status = choose_transport("crippled", &table);
  EXPECT_EQ(status.code(), RINGATTN_ERR_UNSUPPORTED);
  EXPECT_TRUE(says(status, "it has no legs")) << status.message();
  ASSERT_TRUE(choose_transport("", &table).ok());
  EXPECT_STRNE(table->name, "crippled");
}

TEST(RingTransports, ANameThatExistsIsRefused) {
  const ringattn_transport_v1* table = crippled();
  const Status status = register_transport(table);
  EXPECT_EQ(status.code(), RINGATTN_ERR_INVALID_ARGUMENT);
  EXPECT_TRUE(says(status, "crippled")) << status.message();
}

// On a machine without the plugin too: a program that works there must not fail where UCX is installed.
TEST(RingTransports, TheNameOfAShippedTransportIsRefused) {
  const std::size_t before = transports(Plugins::leave).size();
  for (const char* name : {"local", "tcp", "ucx"}) {
    ringattn_transport_v1 table = *test::fake_copy();
    table.name = name;
    const Status status = register_transport(&table);
    EXPECT_EQ(status.code(), RINGATTN_ERR_INVALID_ARGUMENT) << name;
    EXPECT_TRUE(says(status, "transport.name: \"" + std::string(name) + "\"")) << status.message();
    EXPECT_TRUE(says(status, std::string(name) == "ucx" ? "reserved" : "exists already")) << status.message();
    EXPECT_TRUE(says(status, "expected a new name")) << status.message();
  }
  EXPECT_EQ(transports(Plugins::leave).size(), before);
}

TEST(RingTransports, BadTablesAreRefused) {
  struct Case {
    const char* what;
    std::function<void(ringattn_transport_v1&)> bend;
    ringattn_status expected;
  };
  const Case cases[] = {
      {"struct_size 0", [](auto& t) { t.struct_size = 0; }, RINGATTN_ERR_STRUCT_SIZE},
      {"a byte short", [](auto& t) { --t.struct_size; }, RINGATTN_ERR_STRUCT_SIZE},
      {"abi", [](auto& t) { t.abi = 2; }, RINGATTN_ERR_INVALID_ARGUMENT},
      {"garbage for a size", [](auto& t) { t.struct_size = 0xffffffff; }, RINGATTN_ERR_STRUCT_SIZE},
      {"name", [](auto& t) { t.name = nullptr; }, RINGATTN_ERR_INVALID_ARGUMENT},
      {"empty name", [](auto& t) { t.name = ""; }, RINGATTN_ERR_INVALID_ARGUMENT},
      {"name of other letters", [](auto& t) { t.name = "Bad Name\n"; }, RINGATTN_ERR_INVALID_ARGUMENT},
      {"unknown caps", [](auto& t) { t.caps = 1u << 31; }, RINGATTN_ERR_INVALID_ARGUMENT},
      {"score", [](auto& t) { t.score = nullptr; }, RINGATTN_ERR_INVALID_ARGUMENT},
      {"open", [](auto& t) { t.open = nullptr; }, RINGATTN_ERR_INVALID_ARGUMENT},
      {"close", [](auto& t) { t.close = nullptr; }, RINGATTN_ERR_INVALID_ARGUMENT},
      {"post", [](auto& t) { t.post = nullptr; }, RINGATTN_ERR_INVALID_ARGUMENT},
      {"test", [](auto& t) { t.test = nullptr; }, RINGATTN_ERR_INVALID_ARGUMENT},
      {"release", [](auto& t) { t.release = nullptr; }, RINGATTN_ERR_INVALID_ARGUMENT},
      {"withdraw", [](auto& t) { t.withdraw = nullptr; }, RINGATTN_ERR_INVALID_ARGUMENT},
      {"wait", [](auto& t) { t.wait = nullptr; }, RINGATTN_ERR_INVALID_ARGUMENT},
      {"wake", [](auto& t) { t.wake = nullptr; }, RINGATTN_ERR_INVALID_ARGUMENT},
      {"tell", [](auto& t) { t.tell = nullptr; }, RINGATTN_ERR_INVALID_ARGUMENT},
      {"ask", [](auto& t) { t.ask = nullptr; }, RINGATTN_ERR_INVALID_ARGUMENT},
      {"abort", [](auto& t) { t.abort = nullptr; }, RINGATTN_ERR_INVALID_ARGUMENT},
      {"state", [](auto& t) { t.state = nullptr; }, RINGATTN_ERR_INVALID_ARGUMENT},
  };
  const std::size_t before = transports(Plugins::leave).size();
  for (const Case& test : cases) {
    ringattn_transport_v1 table = *test::fake_copy();
    table.name = "bent";
    test.bend(table);
    EXPECT_EQ(ringattn_transport_register(&table), test.expected) << test.what;
    const std::string message = ringattn_last_error();
    EXPECT_NE(message.find("expected"), std::string::npos) << test.what << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << test.what;
  }
  struct {
    ringattn_transport_v1 table = *test::fake_copy();
    std::uint64_t newer = 1;
  } newer;
  newer.table.struct_size = sizeof newer;
  newer.table.name = "newer";
  EXPECT_EQ(ringattn_transport_register(&newer.table), RINGATTN_ERR_STRUCT_SIZE)
      << "an option of a newer header";
  EXPECT_EQ(ringattn_transport_register(nullptr), RINGATTN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(transports(Plugins::leave).size(), before);
}

}  // namespace
}  // namespace ringattn::comm
