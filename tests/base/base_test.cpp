// The smallest parts: digests, environment, log, fork guard, aligned memory.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/env.h"
#include "base/fork_guard.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "ringattn.h"

namespace ringattn {
namespace {

TEST(BaseDigest, IsTheSameEverywhereForEver) {
  EXPECT_EQ(Digest().add(1).value(), Digest().add(1).value());
  // FNV-1a of no byte at all, and of eight zero bytes, through the final mix: fixed, as ranks may be of other
  // machines.
  const auto mixed = [](std::uint64_t x) {
    x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
    return x ^ (x >> 29);
  };
  EXPECT_EQ(Digest().value(), mixed(0xcbf29ce484222325ULL));
  std::uint64_t zeros = 0xcbf29ce484222325ULL;
  for (int i = 0; i < 8; ++i) zeros *= 0x100000001b3ULL;
  EXPECT_EQ(Digest().add(0).value(), mixed(zeros));
}

TEST(BaseDigest, OrderLengthAndEveryBitCount) {
  EXPECT_NE(Digest().add(1).add(2).value(), Digest().add(2).add(1).value());
  EXPECT_NE(Digest().value(), Digest().add(0).value());
  const std::vector<std::int64_t> none, zero{0}, two{0, 0};
  EXPECT_NE(Digest().add(none).value(), Digest().add(zero).value());
  EXPECT_NE(Digest().add(zero).value(), Digest().add(two).value());
  EXPECT_NE(Digest().add(zero).add(none).value(), Digest().add(none).add(zero).value());
  std::set<std::uint64_t> seen{Digest().add(0).value()};
  for (int bit = 0; bit < 64; ++bit) seen.insert(Digest().add(std::uint64_t{1} << bit).value());
  for (std::uint64_t i = 2; i < 20'000; ++i) seen.insert(Digest().add(i * 3 + 1'000'000'007).value());
  EXPECT_EQ(seen.size(), 65u + 19'998u);
}

// Sets a variable, or takes it away, and restores it.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    const char* old = std::getenv(name);
    had_ = old != nullptr;
    if (had_) old_ = old;
    if (value != nullptr) {
      setenv(name, value, 1);
    } else {
      unsetenv(name);
    }
  }
  ~Environment() {
    if (had_) {
      setenv(name_, old_.c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* name_;
  bool had_ = false;
  std::string old_;
};

TEST(BaseEnv, EveryVariableIsListedOnceWithItsMeaning) {
  std::set<std::string> names;
  for (const EnvVariable& variable : env_variables()) {
    EXPECT_EQ(std::string(variable.name).rfind("RINGATTN_", 0), 0u);
    EXPECT_STRNE(variable.meaning, "");
    EXPECT_TRUE(names.insert(variable.name).second);
  }
  EXPECT_EQ(names, (std::set<std::string>{"RINGATTN_LOG", "RINGATTN_FORCE_KERNEL", "RINGATTN_TRANSPORT",
                                          "RINGATTN_RANK", "RINGATTN_WORLD_SIZE", "RINGATTN_LOCAL_RANK",
                                          "RINGATTN_RENDEZVOUS", "RINGATTN_SECRET", "RINGATTN_INSECURE",
                                          "RINGATTN_INTERFACE", "RINGATTN_TCP_INTERFACE",
                                          "RINGATTN_TCP_ADDRESS", "RINGATTN_PLUGIN_PATH"}));
}

TEST(BaseEnv, ValueOrNothing) {
  const Environment unset(kEnvLog, nullptr);
  EXPECT_EQ(env_value(kEnvLog), "");
  const Environment set(kEnvLog, "debug");
  EXPECT_EQ(env_value(kEnvLog), "debug");
}

TEST(BaseEnv, BuildInfoListsEveryVariable) {
  const std::string info = ringattn_build_info();
  for (const EnvVariable& variable : env_variables()) EXPECT_NE(info.find(variable.name), std::string::npos);
}

struct Lines {
  std::vector<std::pair<std::int32_t, std::string>> lines;
  static void take(void* user, std::int32_t level, const char* message) {
    static_cast<Lines*>(user)->lines.emplace_back(level, message);
  }
};

TEST(BaseLog, LevelsBeyondTheWishedOneAreNotWritten) {
  for (std::int32_t level = RINGATTN_LOG_ERROR; level <= RINGATTN_LOG_DEBUG; ++level) {
    Lines lines;
    const Log log(Lines::take, &lines, level);
    for (std::int32_t l = RINGATTN_LOG_ERROR; l <= RINGATTN_LOG_DEBUG; ++l) {
      EXPECT_EQ(log.wants(l), l <= level);
      log.write(l, "line " + std::to_string(l));
    }
    ASSERT_EQ(lines.lines.size(), static_cast<std::size_t>(level));
    EXPECT_EQ(lines.lines[0], (std::pair<std::int32_t, std::string>(RINGATTN_LOG_ERROR, "line 1")));
  }
}

TEST(BaseLog, TheEnvironmentSetsTheLevelOfStandardError) {
  const char* names[] = {"off", "error", "warn", "info", "debug"};
  for (std::int32_t level = 0; level < 5; ++level) {
    const Environment set(kEnvLog, names[level]);
    Log log;
    ASSERT_TRUE(Log::from_environment(log).ok());
    EXPECT_EQ(log.wants(level + 1), false);
    EXPECT_EQ(log.wants(RINGATTN_LOG_ERROR), level >= RINGATTN_LOG_ERROR);
    if (level > 0) {
      testing::internal::CaptureStderr();
      log.write(level, "something");
      EXPECT_EQ(testing::internal::GetCapturedStderr(),
                std::string("ringattn ") + names[level] + ": something\n");
    }
  }
}

TEST(BaseLog, SilentWhereNothingIsAskedFor) {
  const Environment unset(kEnvLog, nullptr);
  Log log;
  ASSERT_TRUE(Log::from_environment(log).ok());
  EXPECT_FALSE(log.wants(RINGATTN_LOG_ERROR));
}

TEST(BaseLog, AnUnknownLevelIsRefusedAndNoContextIsMade) {
  for (const char* bad : {"loud", "INFO", "1", "debug ", "-1"}) {
    const Environment set(kEnvLog, bad);
    Log log;
    const Status status = Log::from_environment(log);
    EXPECT_EQ(status.code(), RINGATTN_ERR_INVALID_ARGUMENT) << bad;
    EXPECT_NE(status.message().find(std::string("RINGATTN_LOG: \"") + bad + "\""), std::string::npos)
        << status.message();
    ringattn_context* context = nullptr;
    EXPECT_EQ(ringattn_context_create(nullptr, &context), RINGATTN_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(context, nullptr);
    ringattn_context_desc desc = RINGATTN_STRUCT(ringattn_context_desc);
    desc.log = Lines::take;  // a log of its own: the variable is not for it
    Lines lines;
    desc.log_user = &lines;
    EXPECT_EQ(ringattn_context_create(&desc, &context), RINGATTN_OK);
    ringattn_context_destroy(context);
  }
}

TEST(BaseFork, TheGenerationGrowsInAChildAlone) {
  const std::uint32_t before = process_generation();
  EXPECT_EQ(process_generation(), before);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(process_generation() == before + 1 ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(process_generation(), before);
}

TEST(BaseMemory, IsAlignedAndRoundedUp) {
  for (const std::uint64_t bytes : {0u, 1u, 63u, 64u, 1000u}) {
    const AlignedBytes memory = allocate_aligned(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.get()) % 64, 0u);
  }
  EXPECT_EQ(round_up(0, 64), 0u);
  EXPECT_EQ(round_up(1, 64), 64u);
  EXPECT_EQ(round_up(64, 64), 64u);
  EXPECT_EQ(round_up(65, 64), 128u);
  EXPECT_EQ(kAlignment, 64u);
}

TEST(BaseStatus, RangesSayWhatIsBroken) {
  EXPECT_EQ(range_of(RINGATTN_OK), StatusRange::ok);
  EXPECT_EQ(range_of(RINGATTN_IN_PROGRESS), StatusRange::ok);
  EXPECT_EQ(range_of(-1), StatusRange::call);
  EXPECT_EQ(range_of(-99), StatusRange::call);
  EXPECT_EQ(range_of(-100), StatusRange::request);
  EXPECT_EQ(range_of(-199), StatusRange::request);
  EXPECT_EQ(range_of(-200), StatusRange::comm);
  EXPECT_EQ(range_of(-299), StatusRange::comm);
  EXPECT_EQ(range_of(-300), StatusRange::context);
}

}  // namespace
}  // namespace ringattn
